"""What `gpt1 check` runs: every signature in TensorFlow's C++ runtime, with its own requests."""

import base64
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError, Message
from tensorflow.core.framework.node_def_pb2 import NodeDef
from tensorflow.core.framework.op_def_pb2 import OpList
from tensorflow.core.protobuf.meta_graph_pb2 import MetaGraphDef, SignatureDef, TensorInfo
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel
from tensorflow_serving.apis.inference_pb2 import MultiInferenceRequest
from tensorflow_serving.apis.predict_pb2 import PredictRequest

from serving.export_names import DEFAULT_SIGNATURE, EXAMPLES_INPUT, SAVED_MODEL_FILE
from serving.runtime_process import REQUEST
from serving.server.inference import serialized_examples

_INIT_SIGNATURE = "__saved_model_init_op"  # run when the model is loaded
_TOLERANCE = 1e-5
_TIMEOUT_SECONDS = 600
# Products of attention have four axes, abcd.
_PRODUCT = re.compile(r",exec,cpu,(inner_product|matmul),.*\bsrc:\w+:\w*:blocked:(ab|ba):")


def read_graph(path: Path) -> MetaGraphDef:
    """Reads the graph that TensorFlow Serving serves.

    Raises:
        OSError: it cannot be read.
        ValueError: it is damaged, or has no graph for serving.
    """
    try:
        saved_model = SavedModel.FromString((path / SAVED_MODEL_FILE).read_bytes())
    except DecodeError as error:
        raise ValueError(f"saved_model.pb is damaged: {error}") from error
    for graph in saved_model.meta_graphs:
        if "serve" in graph.meta_info_def.tags:
            return graph
    raise ValueError("saved_model.pb has no graph with the tag 'serve'")


def foreign_ops(graph: MetaGraphDef, op_list: str) -> Iterator[str]:
    """Yields a problem if a graph has ops that a runtime lacks.

    Args:
        op_list: the runtime's ops, a serialized OpList in base64.
    """
    known = {op.name for op in OpList.FromString(base64.b64decode(op_list)).op}
    known |= {function.signature.name for function in graph.graph_def.library.function}
    foreign = sorted({node.op for node in _nodes(graph)} - known)
    if foreign:
        yield f"ops that it does not have: {', '.join(foreign)}"


def composite_outputs(graph: MetaGraphDef) -> Iterator[str]:
    """Yields a problem for each output that is not a single tensor."""
    for name, signature in sorted(graph.signature_def.items()):
        for alias, info in sorted(signature.outputs.items()):
            if not info.name:
                yield f"signature {name}: output {alias} is ragged or sparse, which is not served"


def foreign_paths(graph: MetaGraphDef) -> Iterator[str]:
    """Yields a problem for each file outside the export that the graph names."""
    for node in _nodes(graph):
        if node.op == "Const" and node.attr["value"].tensor.dtype == tf.string:
            for value in node.attr["value"].tensor.string_val:
                if value.startswith(b"/") and os.path.isfile(value):
                    yield f"{node.name} is the path of a file of this machine: {value!r}"


def _nodes(graph: MetaGraphDef) -> Iterator[NodeDef]:
    yield from graph.graph_def.node
    for function in graph.graph_def.library.function:
        yield from function.node_def


@dataclass(frozen=True)
class Request:
    """A request to a signature; its tensors have the names of the graph.

    Attributes:
        signature: the signature's name.
        origin: where the request comes from, for messages.
        feeds: serialized TensorProtos by tensor name.
        fetches: names of the tensors to return.
    """

    signature: str
    origin: str
    feeds: Mapping[str, bytes]
    fetches: Sequence[str]


def requests_for(graph: MetaGraphDef, warmup: Sequence[Message]) -> list[Request]:
    """Returns requests for every signature: from the warm-up, or made up if it has none.

    Raises:
        ValueError: a request is for a signature that the graph does not have.
    """
    signatures = {
        name: signature
        for name, signature in sorted(graph.signature_def.items())
        if name != _INIT_SIGNATURE and any(info.name for info in signature.outputs.values())
    }
    asked: dict[str, list[Mapping[str, bytes]]] = {name: [] for name in signatures}
    for request in warmup:
        for name, inputs in _inputs(request):
            if name not in signatures:
                raise ValueError(
                    f"its warm-up asks for the signature {name}; expected one of {list(signatures)}"
                )
            asked[name].append(inputs)
    return [
        Request(
            name,
            "from the warm-up" if asked[name] else "made up",
            {signature.inputs[alias].name: proto for alias, proto in inputs.items()},
            [info.name for _, info in sorted(signature.outputs.items()) if info.name],
        )
        for name, signature in signatures.items()
        for inputs in asked[name] or [_made_up(signature, signatures)]
    ]


def _inputs(request: Any) -> Iterator[tuple[str, Mapping[str, bytes]]]:
    if isinstance(request, PredictRequest):
        inputs = {alias: proto.SerializeToString() for alias, proto in request.inputs.items()}
    else:
        inputs = {EXAMPLES_INPUT: _serialized(serialized_examples(request.input))}
    specs = [request] if not isinstance(request, MultiInferenceRequest) else request.tasks
    for spec in specs:
        yield spec.model_spec.signature_name or DEFAULT_SIGNATURE, inputs


def _made_up(
    signature: SignatureDef, signatures: Mapping[str, SignatureDef]
) -> Mapping[str, bytes]:
    if set(signature.inputs) == {EXAMPLES_INPUT} and DEFAULT_SIGNATURE in signatures:
        texts = signatures[DEFAULT_SIGNATURE].inputs
        return {EXAMPLES_INPUT: _serialized([_example(texts).SerializeToString()])}
    return {alias: _serialized(_row(info)) for alias, info in signature.inputs.items()}


def _example(texts: Mapping[str, TensorInfo]) -> tf.train.Example:
    example = tf.train.Example()
    for name, info in texts.items():
        values = np.ravel(_row(info)).tolist()
        if info.dtype == tf.string:
            example.features.feature[name].bytes_list.value.extend(values)
    return example


def _row(info: TensorInfo) -> np.ndarray:
    shape = [max(dim.size, 1) for dim in info.tensor_shape.dim]
    dtype = tf.as_dtype(info.dtype).as_numpy_dtype
    return np.full(shape, b"a text" if info.dtype == tf.string else 1, dtype)


def _serialized(values: Any) -> bytes:
    return tf.make_tensor_proto(values).SerializeToString()


def run_in(
    folder: str | os.PathLike[str],
    path: Path,
    requests: Sequence[Request],
    environment: Mapping[str, str] = MappingProxyType({"ONEDNN_VERBOSE": "1"}),
    **job: Any,
) -> Any:
    """Runs requests in a process without Python TensorFlow, on a copy of the export.

    Args:
        folder: the folder of an installed tensorflow package, whose libraries are used.
        environment: variables of the process's environment, besides this process's.
        **job: what else `serving.runtime_process` reads.

    Returns:
        What `serving.runtime_process` writes, a dict; and `products`, for each request the lines of
        oneDNN's log about products of two matrices. There are none where TensorFlow does not use
        oneDNN.

    Raises:
        ValueError: the process failed.
    """
    described = [
        {
            "feeds": {
                name: base64.b64encode(proto).decode() for name, proto in request.feeds.items()
            },
            "fetches": request.fetches,
        }
        for request in requests
    ]
    with tempfile.TemporaryDirectory() as elsewhere:
        moved = Path(elsewhere) / "moved"
        shutil.copytree(path, moved, copy_function=_link)
        task = {
            "runtime": str(Path(folder).absolute()),
            "path": str(moved),
            "requests": described,
            **job,
        }
        process = subprocess.run(
            [sys.executable, "-m", "serving.runtime_process"],
            input=json.dumps(task),
            cwd=Path(__file__).parents[3],
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_SECONDS,
            env={**os.environ, **environment},
        )
    if process.returncode:
        lines = process.stderr.strip().splitlines() or [f"exit status {process.returncode}"]
        raise ValueError(f"the C++ runtime in {folder} failed: {lines[-1]}")
    *log, answer = process.stdout.splitlines()
    return {**json.loads(answer), "products": products_of(log)}


def failures(
    requests: Sequence[Request], found: Mapping[str, Any], first: Mapping[str, Any]
) -> Iterator[str]:
    """Yields the first problem of each signature in one runtime.

    Args:
        found: what `run_in` returned for this runtime.
        first: what it returned for the first one, which the others must agree with.
    """
    if "error" in found:
        yield f"cannot load it: {found['error']}"
        return
    seen = set()
    for index, request in enumerate(requests):
        reply = found["replies"][index]
        if "error" in reply:
            reason = reply["error"].splitlines()[0]
            problem = f"signature {request.signature}, a request {request.origin}: {reason}"
        elif not _same(reply, first.get("replies", found["replies"])[index]):
            problem = f"signature {request.signature}: not the outputs of the first TensorFlow"
        elif names := _not_finite(request, reply):
            problem = f"signature {request.signature}: NaN or infinite numbers in {names}"
        else:
            continue
        if request.signature not in seen:
            yield problem
        seen.add(request.signature)


def unfused(requests: Sequence[Request], found: Mapping[str, Any]) -> Iterator[str]:
    """Yields a note for each signature without a product that includes its bias.

    An export's blocks have biases. TensorFlow adds them in further passes over the memory if it
    does not know on which device the products are, as in functions that merge requests.

    Args:
        found: what `run_in` returned.
    """
    products: dict[str, list[str]] = {}
    for request, lines in zip(requests, found["products"]):
        products.setdefault(request.signature, []).extend(lines)
    for signature, lines in products.items():
        if lines and not any(" bia" in line for line in lines):
            yield f"signature {signature}: biases are not fused into its products, which is slower"


def products_of(log: Sequence[str]) -> list[list[str]]:
    """Returns the lines about products of two matrices in oneDNN's log, by request."""
    by_request: list[list[str]] = []
    for line in log:
        if line == REQUEST:
            by_request.append([])
        elif by_request and _PRODUCT.search(line):
            by_request[-1].append(line)
    return by_request


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def _not_finite(request: Request, reply: Mapping[str, Any]) -> list[str]:
    values = [np.array(value) for value in reply["values"]]
    return [
        name
        for name, value in zip(request.fetches, values, strict=True)
        if value.dtype.kind == "f" and not np.isfinite(value).all()
    ]


def _same(reply: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    pairs = [(np.array(a), np.array(b)) for a, b in zip(reply["values"], other.get("values", []))]
    return all(
        np.allclose(a, b, rtol=0, atol=_TOLERANCE, equal_nan=True)
        if a.dtype.kind == b.dtype.kind == "f" and a.shape == b.shape
        else np.array_equal(a, b)
        for a, b in pairs
    )
