"""A peer of `benchmarks.int8_serving`: the same model in ONNX Runtime or OpenVINO, behind FastAPI.

    python -m benchmarks.peers.int8_app onnxruntime --folder DIR --tokenizer DIR --port 8000

Hugging Face's torch model with random weights becomes ONNX, and then int8: by ONNX Runtime's
dynamic quantization with a scale a column, or by NNCF, calibrated on texts, for OpenVINO. Hugging
Face's tokenizer is outside of the model. What is in the folder already is not made again. It needs
`pip install fastapi uvicorn onnx onnxscript onnxruntime openvino nncf`.
"""

import argparse
import pathlib

import numpy as np
import torch
from transformers import OpenAIGPTForSequenceClassification

from benchmarks.common.setting import SIZES, cores, hugging_face_config
from benchmarks.peers.fastapi_app import LABELS, load_tokenizer, serve

_ENGINES = ("onnxruntime", "openvino")
_CALIBRATION_TEXTS = 64


class _Classifier(torch.nn.Module):
    """Ids to the logits at each position: an index to choose one would fix the batch's size."""

    def __init__(self, config):
        super().__init__()
        self.model = OpenAIGPTForSequenceClassification(config).eval()

    def forward(self, input_ids):
        return self.model.score(self.model.transformer(input_ids=input_ids).last_hidden_state)


def make_model(engine, size, folder, texts, tokenizer):
    """Makes the int8 model's file, unless it exists; returns its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / {"onnxruntime": "int8.onnx", "openvino": "int8.xml"}[engine]
    if path.exists():
        return path
    float_path = folder / "float32.onnx"
    if not float_path.exists():
        config = hugging_face_config(size)
        config.num_labels = len(LABELS)
        config._attn_implementation = "eager"
        torch.manual_seed(0)
        batch, length = torch.export.Dim("batch"), torch.export.Dim("length")
        torch.onnx.export(
            _Classifier(config).eval(),
            (torch.ones(3, 17, dtype=torch.int64),),
            float_path,
            input_names=["input_ids"],
            output_names=["logits"],
            dynamic_shapes={"input_ids": {0: batch, 1: length}},
        )
    if engine == "onnxruntime":
        from onnxruntime.quantization import QuantType, quantize_dynamic

        quantize_dynamic(float_path, path, per_channel=True, weight_type=QuantType.QInt8)
    else:
        import nncf
        import openvino

        dataset = nncf.Dataset([_ids(tokenizer, [text], size)[0] for text in texts])
        model = nncf.quantize(
            openvino.convert_model(float_path),
            dataset,
            model_type=nncf.ModelType.TRANSFORMER,
            subset_size=len(texts),
        )
        openvino.save_model(model, path)
    return path


def _ids(tokenizer, texts, size):
    """Ids, padded, int64 `[texts, tokens]`, and the index of each text's last token."""
    rows = tokenizer(texts, truncation=True, max_length=size["max_sequence_length"])["input_ids"]
    longest = max(map(len, rows))
    ids = np.array([row + [0] * (longest - len(row)) for row in rows])
    return ids, np.array([len(row) - 1 for row in rows])


def _load(engine, path):
    """A function from ids to the logits at each position."""
    if engine == "onnxruntime":
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = cores()
        session = onnxruntime.InferenceSession(str(path), options)
        return lambda ids: session.run(None, {"input_ids": ids})[0]
    import openvino

    model = openvino.compile_model(path, "CPU", {"PERFORMANCE_HINT": "LATENCY"})
    return lambda ids: model.create_infer_request().infer([ids])[0]


def int8_scores(engine, size, folder, tokenizer, texts=()):
    """A function from texts to the scores of the int8 model, which is made unless it exists.

    Args:
        engine: `onnxruntime` or `openvino`.
        size: a name in `SIZES`.
        folder: of the model's files.
        tokenizer: folder of both files of the original.
        texts: list of str to calibrate on.
    """
    tokenizer = load_tokenizer(tokenizer)
    size = {**SIZES[size], "vocabulary_size": len(tokenizer)}
    run = _load(engine, make_model(engine, size, pathlib.Path(folder), texts, tokenizer))

    def scores_of(texts):
        ids, last = _ids(tokenizer, texts, size)
        logits = run(ids)[np.arange(len(last)), last]
        scores = np.exp(logits - logits.max(axis=-1, keepdims=True))
        return scores / scores.sum(axis=-1, keepdims=True)

    return scores_of


def main():
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers.int8_app")
    parser.add_argument("engine", choices=_ENGINES)
    parser.add_argument("--folder", required=True, help="of its models, which are made if missing")
    parser.add_argument("--size", choices=SIZES, default="paper")
    parser.add_argument("--tokenizer", required=True, help="folder of both files of the original")
    parser.add_argument("--calibration", help="texts, one a line; for OpenVINO")
    parser.add_argument("--port", type=int, help="default: make the model, serve nothing")
    options = parser.parse_args()
    texts = []
    if options.calibration:
        texts = pathlib.Path(options.calibration).read_text(encoding="utf-8").splitlines()
    scores_of = int8_scores(
        options.engine, options.size, options.folder, options.tokenizer, texts[:_CALIBRATION_TEXTS]
    )
    if options.port is not None:
        serve(scores_of, options.port)


if __name__ == "__main__":
    main()
