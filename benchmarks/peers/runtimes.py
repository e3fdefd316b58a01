"""Hugging Face's classifier in ONNX Runtime and OpenVINO, in float32 and in int8.

The torch model with random weights becomes ONNX; and then int8, by ONNX Runtime's dynamic
quantization with a scale a column, or by NNCF, calibrated on texts, for OpenVINO. Hugging Face's
tokenizer is outside of the model. What is in the folder already is not made again.
"""

import threading

import numpy as np
import torch
from transformers import OpenAIGPTForSequenceClassification

from benchmarks.common.setting import cores, hugging_face_config

_FLOAT_FILE = "float32.onnx"


class _Classifier(torch.nn.Module):
    """Ids to the logits at each position: an index to choose one would fix the batch's size."""

    def __init__(self, config):
        super().__init__()
        self.model = OpenAIGPTForSequenceClassification(config).eval()

    def forward(self, input_ids):
        return self.model.score(self.model.transformer(input_ids=input_ids).last_hidden_state)


def runtime_scores(engine, precision, size, num_labels, tokenizer, folder, calibration=()):
    """A function from texts to the scores of the model, whose files are made unless they exist.

    Args:
        engine: `onnxruntime` or `openvino`.
        precision: `float32` or `int8`.
        size: dict like those in `SIZES`.
        num_labels: of the classifier.
        tokenizer: Hugging Face tokenizer.
        folder: `pathlib.Path` of the model's files.
        calibration: list of str, for OpenVINO in int8.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / _FLOAT_FILE
    if not path.exists():
        _export(size, num_labels, path)
    if precision == "int8":
        path = folder / {"onnxruntime": "int8.onnx", "openvino": "int8.xml"}[engine]
        if not path.exists() and engine == "onnxruntime":
            _quantize(folder / _FLOAT_FILE, path)
        elif not path.exists():
            ids = [_ids(tokenizer, [text], size)[0] for text in calibration]
            _quantize_by_nncf(folder / _FLOAT_FILE, path, ids)
    run = {"onnxruntime": _onnxruntime, "openvino": _openvino}[engine](path, precision)

    def scores_of(texts):
        ids, last = _ids(tokenizer, texts, size)
        logits = run(ids)[np.arange(len(last)), last]
        scores = np.exp(logits - logits.max(axis=-1, keepdims=True))
        return scores / scores.sum(axis=-1, keepdims=True)

    return scores_of


def _export(size, num_labels, path):
    config = hugging_face_config(size)
    config.num_labels = num_labels
    config._attn_implementation = "eager"
    torch.manual_seed(0)
    batch, length = torch.export.Dim("batch"), torch.export.Dim("length")
    torch.onnx.export(
        _Classifier(config).eval(),
        (torch.ones(3, 17, dtype=torch.int64),),
        path,
        input_names=["input_ids"],
        output_names=["logits"],
        dynamic_shapes={"input_ids": {0: batch, 1: length}},
    )


def _quantize(float_path, path):
    from onnxruntime.quantization import QuantType, quantize_dynamic

    quantize_dynamic(float_path, path, per_channel=True, weight_type=QuantType.QInt8)


def _quantize_by_nncf(float_path, path, ids):
    import nncf
    import openvino

    model = nncf.quantize(
        openvino.convert_model(float_path),
        nncf.Dataset(ids),
        model_type=nncf.ModelType.TRANSFORMER,
        subset_size=len(ids),
    )
    openvino.save_model(model, path)


def _ids(tokenizer, texts, size):
    """Ids, padded, int64 `[texts, tokens]`, and the index of each text's last token."""
    rows = tokenizer(texts, truncation=True, max_length=size["max_sequence_length"])["input_ids"]
    longest = max(map(len, rows))
    ids = np.array([row + [0] * (longest - len(row)) for row in rows])
    return ids, np.array([len(row) - 1 for row in rows])


def _onnxruntime(path, precision):
    """A function from ids to the logits at each position."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = cores()
    session = onnxruntime.InferenceSession(str(path), options)
    return lambda ids: session.run(None, {"input_ids": ids})[0]


def _openvino(path, precision):
    """As `_onnxruntime`."""
    import openvino

    settings = {"PERFORMANCE_HINT": "LATENCY"}
    if precision == "float32":  # where there are bfloat16 instructions, it would use them
        settings["INFERENCE_PRECISION_HINT"] = "f32"
    request = openvino.compile_model(path, "CPU", settings).create_infer_request()
    lock = threading.Lock()

    def run(ids):
        with lock:  # two threads at once can lock each other out; and it computes one at a time
            return request.infer([ids])[0]

    return run
