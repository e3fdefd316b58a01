"""What `benchmarks.on_device` compares, each in a process of its own with one thread.

    python -m benchmarks.peers.on_device NAME --folder FOLDER --block 50

The folder is what `benchmarks.on_device` prepared, and ONE_THREAD belongs in the environment. Each
block of texts, one text at a time, is a turn, as `benchmarks.common.turns` says; tokenization
counts. The summary has the bytes of the files that an application would ship, and the class that
was given to each text. Imports are inside the functions, so that no process pays for another's
framework.
"""

import argparse
import contextlib
import functools
import io
import json
import pathlib
import sys

import numpy as np

from benchmarks.common.turns import Turns, summarize

HEAD_FILE, JOB_FILE = "head.npz", "job.json"
ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"), "1"
)


def _saved_model(folder, job):
    import tensorflow as tf

    [version] = (folder / "saved_model").iterdir()
    model = tf.saved_model.load(version)
    run = model.signatures["serving_default"]

    def score(texts):
        inputs = {field: tf.constant([text]) for field, text in zip(job["fields"], texts)}
        return run(**inputs)["scores"].numpy()[0]

    return score, sum(path.stat().st_size for path in version.rglob("*") if path.is_file()), model


def _litert(folder, job, name):
    from ai_edge_litert.interpreter import Interpreter

    path = folder / f"{name}.tflite"
    run = Interpreter(str(path), num_threads=1).get_signature_runner("text")
    size = job["max_bytes"]

    def score(texts):
        padded = [text.encode().ljust(size, b"\0") for text in texts]
        inputs = [np.frombuffer(each, np.uint8).astype(np.int32) for each in padded]
        return run(**dict(zip(job["fields"], inputs)))["scores"]

    return score, path.stat().st_size


def _hugging_face(folder, job):
    """torch's dynamic quantization; GPT-1's Conv1D are turned into what it knows."""
    import torch

    torch.set_num_threads(1)
    model = _torch_model(folder)
    model = torch.ao.quantization.quantize_dynamic(model, {torch.nn.Linear}, torch.qint8)
    buffer = io.BytesIO()
    torch.save(model.state_dict(), buffer)
    frame, tokenizer_size = _outside_tokenizer(folder, job)

    def score(texts):
        with torch.inference_mode():
            return model(torch.tensor([frame(texts)])).numpy()[0]

    return score, buffer.tell() + tokenizer_size


def _onnx(folder, job):
    import onnxruntime

    small = folder / "model.int8.onnx"
    if not small.exists():
        _write_onnx(folder, job, small)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(small, options, providers=["CPUExecutionProvider"])
    [name] = (each.name for each in session.get_inputs())
    frame, tokenizer_size = _outside_tokenizer(folder, job)

    def score(texts):
        return session.run(None, {name: np.array([frame(texts)], np.int64)})[0][0]

    return score, small.stat().st_size + tokenizer_size


def _write_onnx(folder, job, path):
    import onnx
    import torch
    from onnxruntime.quantization import QuantType, quantize_dynamic

    plain = folder / "model.onnx"
    ids = torch.ones([1, 8], dtype=torch.int64)
    shapes = ({1: torch.export.Dim("length", min=2, max=job["sequence_length"])},)
    program = torch.onnx.export(_torch_model(folder), (ids,), dynamic_shapes=shapes, dynamo=True)
    proto = program.model_proto
    del proto.graph.value_info[:]  # shapes that quantization changes, and would trip over
    onnx.save(proto, plain)
    quantize_dynamic(plain, path, weight_type=QuantType.QInt8)


def _executorch(folder, job):
    import torch
    from executorch.extension.pybindings.portable_lib import _unsafe_reset_threadpool
    from executorch.runtime import Runtime

    torch.set_num_threads(1)
    _unsafe_reset_threadpool(1)
    path = folder / "model.pte"
    if not path.exists():
        _write_executorch(folder, job, path)
    method = Runtime.get().load_program(path).load_method("forward")
    frame, tokenizer_size = _outside_tokenizer(folder, job)

    def score(texts):
        return method.execute([torch.tensor([frame(texts)])])[0].numpy()[0]

    return score, path.stat().st_size + tokenizer_size


def _write_executorch(folder, job, path):
    """By XNNPACK's quantizer and partitioner, as ExecuTorch documents them."""
    import torch
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
        XNNPACKQuantizer,
        get_symmetric_quantization_config,
    )
    from executorch.exir import to_edge_transform_and_lower
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    ids = (torch.ones([1, 8], dtype=torch.int64),)
    shapes = ({1: torch.export.Dim("length", min=2, max=job["sequence_length"])},)
    config = get_symmetric_quantization_config(is_per_channel=True, is_dynamic=True)
    graph = torch.export.export(_torch_model(folder), ids, dynamic_shapes=shapes).module()
    graph = prepare_pt2e(graph, XNNPACKQuantizer().set_global(config))
    graph(*ids)
    program = torch.export.export(convert_pt2e(graph), ids, dynamic_shapes=shapes)
    lowered = to_edge_transform_and_lower(program, partitioner=[XnnpackPartitioner()])
    path.write_bytes(lowered.to_executorch().buffer)


def _torch_model(folder):
    """Hugging Face's model with the classifier's head: ids `[1, length]` to logits."""
    import torch
    from transformers import OpenAIGPTModel
    from transformers.pytorch_utils import Conv1D

    class Classifier(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.decoder = OpenAIGPTModel.from_pretrained(folder / "hugging_face")
            with np.load(folder / HEAD_FILE) as head:
                self.head = _linear(head["kernel"], head["bias"])

        def forward(self, ids):
            return self.head(self.decoder(ids).last_hidden_state[:, -1])

    def _linear(kernel, bias):
        layer = torch.nn.Linear(*kernel.shape)
        layer.weight.data = torch.tensor(np.ascontiguousarray(kernel.T))
        layer.bias.data = torch.tensor(bias)
        return layer

    model = Classifier().eval()
    for module in list(model.modules()):
        for name, child in module.named_children():
            if isinstance(child, Conv1D):
                weight, bias = child.weight.detach().numpy(), child.bias.detach().numpy()
                setattr(module, name, _linear(weight, bias))
    return model


def _outside_tokenizer(folder, job):
    """A function from texts to framed ids, by Hugging Face's `tokenizers`, and its file's size."""
    from tokenizers import Tokenizer

    path = folder / "hugging_face" / "tokenizer.json"
    tokenizer = Tokenizer.from_file(str(path))
    start, delimiter, extract = (tokenizer.token_to_id(token) for token in job["special_tokens"])

    def frame(texts):
        ids = [start]
        for text in texts:
            ids += tokenizer.encode(text).ids[: job["limit"]] + [delimiter]
        return [*ids[:-1], extract]

    return frame, path.stat().st_size


SAVED_MODEL = "TensorFlow, SavedModel, float32"
QUANTIZATION_OF = {
    "LiteRT float32": "none",
    "LiteRT float16": "float16",
    "LiteRT int8": "int8",
    "LiteRT int4": "int4",
}
PEERS = {
    SAVED_MODEL: _saved_model,
    "Hugging Face torch, dynamic int8": _hugging_face,
    "ONNX Runtime, dynamic int8": _onnx,
    "ExecuTorch, XNNPACK, dynamic int8": _executorch,
    **{name: functools.partial(_litert, name=file) for name, file in QUANTIZATION_OF.items()},
}


def main():
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers.on_device")
    parser.add_argument("name", choices=PEERS)
    parser.add_argument("--folder", type=pathlib.Path, required=True)
    parser.add_argument("--block", type=int, required=True)
    options = parser.parse_args()

    job = json.loads((options.folder / JOB_FILE).read_text())
    with contextlib.redirect_stdout(sys.stderr):  # turns are told on the standard output
        score, size, *_ = PEERS[options.name](options.folder, job)
    turns, classes = Turns(), []
    for first in range(0, len(job["texts"]), options.block):
        block = job["texts"][first : first + options.block]
        turns.begin()
        classes += [int(np.argmax(score(texts))) for texts in block]
        turns.end(texts=len(block))
    summarize(size=size, classes=classes)


if __name__ == "__main__":
    main()
