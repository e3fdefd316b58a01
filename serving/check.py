"""Checks that an exported model will run in TensorFlow Serving, before it is put there.

    python -m serving.check exports/sst2/1
    python -m serving.check exports/sst2/1 --tf-dir OLDER/site-packages/tensorflow

It tells what the export is, and runs every signature in TensorFlow's C++ runtime, which is what
TensorFlow Serving embeds, in a process without Python TensorFlow and from another folder. With
--tf-dir, the libraries of other versions do so too, and must give the same answers. The requests
are those of the export's warm-up; a signature that has none gets one that is made up.
"""

import argparse
import base64
import collections
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Read when TensorFlow is imported: only what it finds in the model is of interest here.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError, Message
from tensorflow.core.framework.node_def_pb2 import NodeDef
from tensorflow.core.framework.op_def_pb2 import OpList
from tensorflow.core.protobuf.meta_graph_pb2 import MetaGraphDef, SignatureDef, TensorInfo
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel
from tensorflow_serving.apis.inference_pb2 import MultiInferenceRequest
from tensorflow_serving.apis.predict_pb2 import PredictRequest

from serving.layout import DEFAULT_SIGNATURE, METADATA_FILE, SAVED_MODEL_FILE
from serving.server.inference import read_warmup, serialized_examples
from serving.server.servable import ServingError

_INIT_SIGNATURE = "__saved_model_init_op"  # run when the model is loaded
_TOLERANCE = 1e-5
_TIMEOUT_SECONDS = 600


@dataclass(frozen=True)
class _Run:
    """A request to a signature, by the names that its tensors have in the graph."""

    signature: str
    origin: str
    feeds: Mapping[str, bytes]
    fetches: Sequence[str]


def main(argv: Sequence[str] | None = None) -> int:
    """Prints what was found; returns the exit status: 0 if all is well, 1 if not."""
    options = _parser().parse_args(argv)
    path = Path(options.model)
    folders = options.tf_dir or [Path(tf.__file__).parent]
    try:
        graph = _read_graph(path)
        runs = _runs(graph, read_warmup(path))
        print("\n".join([str(path), *_description(path)]))
        problems = [*_foreign_paths(graph), *_composite_outputs(graph)]
        replies = [_run_in(folder, path, runs) for folder in folders]
        for reply in replies:
            found = [*_report(runs, reply, replies[0]), *_foreign_ops(graph, reply["ops"])]
            problems += [f"TensorFlow {reply['version']}: {problem}" for problem in found]
    except (OSError, ValueError, ServingError) as error:
        print(f"Cannot check {path}: {error}", file=sys.stderr)
        return 1
    for problem in problems:
        print(f"PROBLEM: {problem}")
    print(f"problems: {len(problems)}")
    return 1 if problems else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m serving.check",
        description="Run every signature of an export in TensorFlow's C++ runtime, as TensorFlow "
        "Serving does, and tell what the export is.",
    )
    parser.add_argument("model", help="folder of one version, with its saved_model.pb")
    parser.add_argument(
        "--tf-dir",
        action="append",
        help="folder of an installed tensorflow package whose libraries to run it in; may be "
        "given several times (default: the one of this Python)",
    )
    return parser


def _read_graph(path: Path) -> MetaGraphDef:
    try:
        saved_model = SavedModel.FromString((path / SAVED_MODEL_FILE).read_bytes())
    except DecodeError as error:
        raise ValueError(f"saved_model.pb is damaged: {error}") from error
    for graph in saved_model.meta_graphs:
        if "serve" in graph.meta_info_def.tags:
            return graph
    raise ValueError("saved_model.pb has no graph with the tag 'serve'")


def _description(path: Path) -> Iterator[str]:
    """Yields what the export says about itself."""
    file = path / METADATA_FILE
    if not file.exists():
        yield "  made by another program, which did not say how"
        return
    metadata = json.loads(file.read_text())
    yield from (f"  {name}: {_shown(value)}" for name, value in metadata.items())


def _shown(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


# --- what the graph says ---


def _nodes(graph: MetaGraphDef) -> Iterator[NodeDef]:
    yield from graph.graph_def.node
    for function in graph.graph_def.library.function:
        yield from function.node_def


def _foreign_ops(graph: MetaGraphDef, op_list: str) -> Iterator[str]:
    """Yields a problem if there are ops that a runtime does not have."""
    known = {op.name for op in OpList.FromString(base64.b64decode(op_list)).op}
    known |= {function.signature.name for function in graph.graph_def.library.function}
    foreign = sorted({node.op for node in _nodes(graph)} - known)
    if foreign:
        yield f"ops that it does not have: {', '.join(foreign)}"


def _composite_outputs(graph: MetaGraphDef) -> Iterator[str]:
    """Yields a problem for each output that has no tensor of its own."""
    for name, signature in sorted(graph.signature_def.items()):
        for alias, info in sorted(signature.outputs.items()):
            if not info.name:
                yield f"signature {name}: output {alias} is ragged or sparse, which is not served"


def _foreign_paths(graph: MetaGraphDef) -> Iterator[str]:
    """Yields a problem for each file outside the export that the graph names."""
    for node in _nodes(graph):
        if node.op == "Const" and node.attr["value"].tensor.dtype == tf.string:
            for value in node.attr["value"].tensor.string_val:
                if value.startswith(b"/") and os.path.isfile(value):
                    yield f"{node.name} is the path of a file of this machine: {value!r}"


# --- what it is asked ---


def _runs(graph: MetaGraphDef, warmup: Sequence[Message]) -> list[_Run]:
    """Returns requests for every signature: those of the warm-up, or one that is made up."""
    signatures = {
        name: signature
        for name, signature in sorted(graph.signature_def.items())
        if name != _INIT_SIGNATURE and any(info.name for info in signature.outputs.values())
    }
    asked: dict[str, list[Mapping[str, bytes]]] = {name: [] for name in signatures}
    for request in warmup:
        for name, inputs in _inputs(request):
            if name not in signatures:
                raise ValueError(f"its warm-up asks for signature {name}, which is not there")
            asked[name].append(inputs)
    return [
        _Run(
            name,
            "from the warm-up" if asked[name] else "made up",
            {signature.inputs[alias].name: proto for alias, proto in inputs.items()},
            [info.name for _, info in sorted(signature.outputs.items()) if info.name],
        )
        for name, signature in signatures.items()
        for inputs in asked[name] or [_made_up(signature, signatures)]
    ]


def _inputs(request: Any) -> Iterator[tuple[str, Mapping[str, bytes]]]:
    """Yields the signatures that a request is for, with serialized tensors by input name."""
    if isinstance(request, PredictRequest):
        inputs = {alias: proto.SerializeToString() for alias, proto in request.inputs.items()}
    else:
        inputs = {"inputs": _serialized(serialized_examples(request.input))}
    specs = [request] if not isinstance(request, MultiInferenceRequest) else request.tasks
    for spec in specs:
        yield spec.model_spec.signature_name or DEFAULT_SIGNATURE, inputs


def _made_up(
    signature: SignatureDef, signatures: Mapping[str, SignatureDef]
) -> Mapping[str, bytes]:
    """Returns one row of something for each input, by name."""
    if set(signature.inputs) == {"inputs"} and DEFAULT_SIGNATURE in signatures:
        texts = signatures[DEFAULT_SIGNATURE].inputs
        return {"inputs": _serialized([_example(texts).SerializeToString()])}
    return {alias: _serialized(_row(info)) for alias, info in signature.inputs.items()}


def _example(texts: Mapping[str, TensorInfo]) -> tf.train.Example:
    example = tf.train.Example()
    for name, info in texts.items():
        values = np.ravel(_row(info)).tolist()
        if info.dtype == tf.string:
            example.features.feature[name].bytes_list.value.extend(values)
    return example


def _row(info: TensorInfo) -> np.ndarray:
    """Returns an array that fits a signature's input, with 1 where any size will do."""
    shape = [max(dim.size, 1) for dim in info.tensor_shape.dim]
    dtype = tf.as_dtype(info.dtype).as_numpy_dtype
    return np.full(shape, b"a text" if info.dtype == tf.string else 1, dtype)


def _serialized(values: Any) -> bytes:
    return tf.make_tensor_proto(values).SerializeToString()


# --- what it answers ---


def _run_in(folder: str | Path, path: Path, runs: Sequence[_Run]) -> dict[str, Any]:
    """Returns what `serving.runtime.runtime_process` replies about the model at another place."""
    requests = [
        {
            "feeds": {name: base64.b64encode(proto).decode() for name, proto in run.feeds.items()},
            "fetches": run.fetches,
        }
        for run in runs
    ]
    with tempfile.TemporaryDirectory() as elsewhere:
        moved = Path(elsewhere) / "moved"
        shutil.copytree(path, moved, copy_function=_link)
        task = {"runtime": str(Path(folder).absolute()), "path": str(moved), "requests": requests}
        process = subprocess.run(
            [sys.executable, "-m", "serving.runtime.runtime_process"],
            input=json.dumps(task),
            cwd=Path(__file__).parents[1],
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_SECONDS,
        )
    if process.returncode:
        lines = process.stderr.strip().splitlines() or [f"exit status {process.returncode}"]
        raise ValueError(f"the C++ runtime in {folder} failed: {lines[-1]}")
    return json.loads(process.stdout)


def _link(source: str, target: str) -> None:
    """Copies a file without its contents where the file system can do that."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def _report(runs: Sequence[_Run], reply: Mapping[str, Any], first: Mapping[str, Any]) -> list[str]:
    """Prints what a runtime did; returns its errors, and where it differs from the first one."""
    print(f"TensorFlow {reply['version']}")
    if "error" in reply:
        return [f"cannot load it: {reply['error']}"]
    lines = collections.Counter(f"{run.signature}, requests {run.origin}" for run in runs)
    for line, count in lines.items():
        print(f"  {line}: {count}")
    errors: dict[str, str] = {}
    for number, run in enumerate(runs):
        answer = reply["answers"][number]
        if "error" in answer:
            reason = answer["error"].splitlines()[0]
            error = f"signature {run.signature}, a request {run.origin}: {reason}"
            errors.setdefault(run.signature, error)
        elif not _same(answer, first.get("answers", reply["answers"])[number]):
            error = f"signature {run.signature}: not the answers of the first TensorFlow"
            errors.setdefault(run.signature, error)
    return list(errors.values())


def _same(answer: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Tells whether two answers are the same but for the last digits of their numbers."""
    pairs = [(np.array(a), np.array(b)) for a, b in zip(answer["values"], other.get("values", []))]
    return all(
        np.allclose(a, b, rtol=0, atol=_TOLERANCE, equal_nan=True)
        if a.dtype.kind == b.dtype.kind == "f" and a.shape == b.shape
        else np.array_equal(a, b)
        for a, b in pairs
    )


if __name__ == "__main__":
    sys.exit(main())
