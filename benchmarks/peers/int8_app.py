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
    """Ids and the index of each text's last token to logits."""

    def __init__(self, config):
        super().__init__()
        self.model = OpenAIGPTForSequenceClassification(config).eval()

    def forward(self, input_ids, last):
        states = self.model.transformer(input_ids=input_ids).last_hidden_state
        return self.model.score(states[torch.arange(len(last)), last])


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
            (torch.ones(3, 17, dtype=torch.int64), torch.tensor([16, 4, 9])),
            float_path,
            input_names=["input_ids", "last"],
            output_names=["logits"],
            dynamic_shapes={"input_ids": {0: batch, 1: length}, "last": {0: batch}},
        )
    if engine == "onnxruntime":
        from onnxruntime.quantization import QuantType, quantize_dynamic

        quantize_dynamic(float_path, path, per_channel=True, weight_type=QuantType.QInt8)
    else:
        import nncf
        import openvino

        dataset = nncf.Dataset([_inputs(tokenizer, [text], size) for text in texts])
        model = nncf.quantize(
            openvino.convert_model(float_path),
            dataset,
            model_type=nncf.ModelType.TRANSFORMER,
            subset_size=len(texts),
        )
        openvino.save_model(model, path)
    return path


def _inputs(tokenizer, texts, size):
    rows = tokenizer(texts, truncation=True, max_length=size["max_sequence_length"])["input_ids"]
    longest = max(map(len, rows))
    return {
        "input_ids": np.array([row + [0] * (longest - len(row)) for row in rows]),
        "last": np.array([len(row) - 1 for row in rows]),
    }


def _load(engine, path):
    """A function from the model's inputs to logits."""
    if engine == "onnxruntime":
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = cores()
        session = onnxruntime.InferenceSession(str(path), options)
        return lambda inputs: session.run(None, inputs)[0]
    import openvino

    model = openvino.compile_model(path, "CPU", {"PERFORMANCE_HINT": "LATENCY"})
    return lambda inputs: model.create_infer_request().infer(inputs)["logits"]


def main():
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers.int8_app")
    parser.add_argument("engine", choices=_ENGINES)
    parser.add_argument("--folder", required=True, help="of its models, which are made if missing")
    parser.add_argument("--size", choices=SIZES, default="paper")
    parser.add_argument("--tokenizer", required=True, help="folder of both files of the original")
    parser.add_argument("--calibration", help="texts, one a line; for OpenVINO")
    parser.add_argument("--port", type=int, help="default: make the model, serve nothing")
    options = parser.parse_args()
    tokenizer = load_tokenizer(options.tokenizer)
    size = {**SIZES[options.size], "vocabulary_size": len(tokenizer)}
    texts = []
    if options.calibration:
        texts = pathlib.Path(options.calibration).read_text(encoding="utf-8").splitlines()
    path = make_model(
        options.engine, size, pathlib.Path(options.folder), texts[:_CALIBRATION_TEXTS], tokenizer
    )
    if options.port is None:
        return
    run = _load(options.engine, path)

    def scores_of(texts):
        logits = run(_inputs(tokenizer, texts, size))
        scores = np.exp(logits - logits.max(axis=-1, keepdims=True))
        return scores / scores.sum(axis=-1, keepdims=True)

    serve(scores_of, options.port)


if __name__ == "__main__":
    main()
