"""Reads an export's graph, and finds what TensorFlow Serving would refuse in it."""

import base64
import os
from collections.abc import Iterator
from pathlib import Path

import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow.core.framework.node_def_pb2 import NodeDef
from tensorflow.core.framework.op_def_pb2 import OpList
from tensorflow.core.protobuf.meta_graph_pb2 import MetaGraphDef
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

from serving.export_names import SAVED_MODEL_FILE


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
    """Yields all nodes, including those of functions."""
    yield from graph.graph_def.node
    for function in graph.graph_def.library.function:
        yield from function.node_def
