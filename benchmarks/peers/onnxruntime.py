"""Hugging Face's model in ONNX Runtime: in float32, and in int8 by dynamic quantization."""

import pathlib

import numpy as np

from benchmarks.harness.machine import cores
from benchmarks.harness.measured_models import LABELS, SIZES
from benchmarks.peers.hugging_face import load_tokenizer, model_config


def classifier(precision, size, tokenizer, folder, calibration=(), callers=1):
    """Makes a classifier; int8 has a scale for each column. Files in the folder are used again."""
    import onnxruntime

    path = float_model(size, tokenizer, folder)
    if precision == "int8":
        path = _quantized(path, path.with_name("int8.onnx"))
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = cores() if callers == 1 else 1
    session = onnxruntime.InferenceSession(str(path), options)
    return scores_by(lambda ids: session.run(None, {"input_ids": ids})[0], size, tokenizer)


def float_model(size, tokenizer, folder):
    """Returns the path of a classifier as ONNX, from ids to logits at each position.

    Its weights are random. It has all positions, because choosing one would fix the batch's size.
    """
    path = pathlib.Path(folder, "peers", "float32.onnx")
    if path.exists():
        return path
    import torch
    from transformers import OpenAIGPTForSequenceClassification

    class Classifier(torch.nn.Module):
        def __init__(self, config):
            super().__init__()
            self.model = OpenAIGPTForSequenceClassification(config).eval()

        def forward(self, input_ids):
            return self.model.score(self.model.transformer(input_ids=input_ids).last_hidden_state)

    path.parent.mkdir(parents=True, exist_ok=True)
    size = {**SIZES[size], "vocabulary_size": len(load_tokenizer(tokenizer))}
    config = model_config(size, num_labels=len(LABELS))
    config._attn_implementation = "eager"
    torch.manual_seed(0)
    batch, length = torch.export.Dim("batch"), torch.export.Dim("length")
    torch.onnx.export(
        Classifier(config).eval(),
        (torch.ones(3, 17, dtype=torch.int64),),
        path,
        input_names=["input_ids"],
        output_names=["logits"],
        dynamic_shapes={"input_ids": {0: batch, 1: length}},
    )
    return path


def scores_by(run, size, tokenizer):
    """Returns a function from texts to scores; `run` is from ids to logits at each position."""
    tokenizer = load_tokenizer(tokenizer)

    def scores_of(texts):
        ids, last = padded_ids(tokenizer, texts, size)
        logits = run(ids)[np.arange(len(last)), last]  # [texts, classes]
        scores = np.exp(logits - logits.max(axis=-1, keepdims=True))
        return scores / scores.sum(axis=-1, keepdims=True)

    return scores_of


def padded_ids(tokenizer, texts, size):
    """Returns padded ids, int64 `[texts, tokens]`, and the index of each text's last token."""
    max_length = SIZES[size]["max_sequence_length"]
    rows = tokenizer(texts, truncation=True, max_length=max_length)["input_ids"]
    longest = max(map(len, rows))
    ids = np.array([row + [0] * (longest - len(row)) for row in rows])
    return ids, np.array([len(row) - 1 for row in rows])


def _quantized(float_path, path):
    from onnxruntime.quantization import QuantType, quantize_dynamic

    if not path.exists():
        quantize_dynamic(float_path, path, per_channel=True, weight_type=QuantType.QInt8)
    return path
