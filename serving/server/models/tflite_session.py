"""TfLiteSession: runs a .tflite file in LiteRT, with the interface of a SavedModel's session."""

import queue
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from flatbuffers import flexbuffers
from google.protobuf.message import DecodeError
from grpc import StatusCode
from tensorflow.core.protobuf.config_pb2 import RunOptions
from tensorflow.core.protobuf.meta_graph_pb2 import SignatureDef, TensorInfo

from serving.export_names import DEFAULT_SIGNATURE
from serving.runtime import Runtime, parse
from serving.server.errors import ServingError, invalid_argument
from serving.tflite_metadata import read_buffer

_SIGNATURES = "signature_defs_metadata"  # the file's buffer that TensorFlow Serving reads


class TfLiteSession:
    """A .tflite file, ready to run. Any number of threads may run it at once.

    LiteRT cannot stop a run: a time limit only bounds how long a request waits for its turn.

    Args:
        num_interpreters: the most runs at once; each needs its own memory.
        runtime: parses the feeds.

    Attributes:
        signature_defs: all signatures by name, from the file's metadata. Without any there,
            `serving_default` is the only one; its inputs and outputs have the names of the file's
            tensors, without `:0`.

    Raises:
        ServingError: it cannot be loaded, or LiteRT is not installed.
        OSError: it cannot be read.
    """

    def __init__(self, path: Path, num_interpreters: int, runtime: Runtime) -> None:
        self._path = path
        self._content = path.read_bytes()
        self._runtime = runtime
        self._cancelled = False
        first = self._interpreter()
        # Interpreters are made when they are needed: the one returned last is taken first.
        self._free: queue.LifoQueue[Any] = queue.LifoQueue()
        for each in [*[None] * (num_interpreters - 1), first]:
            self._free.put(each)
        self._inputs = {each["name"]: each for each in first.get_input_details()}
        self._outputs = {each["name"]: each for each in first.get_output_details()}
        self.signature_defs = self._read_signatures() or {DEFAULT_SIGNATURE: self._signature()}

    def run(
        self, feeds: Mapping[str, bytes], fetches: Sequence[str], options: bytes = b""
    ) -> list[np.ndarray]:
        """Runs the model, like `serving.runtime.Session.run`.

        Raises:
            FeedError: a feed is not well-formed.
            StatusError: there are no arrays of a feed's dtype.
            ServingError: the model refused a feed or failed, or time ran out.
        """
        inputs = {name: parse(self._runtime, name, proto) for name, proto in feeds.items()}
        timeout = RunOptions.FromString(options).timeout_in_ms / 1000 or None
        try:
            interpreter = self._free.get(timeout=timeout)
        except queue.Empty as error:
            raise ServingError(
                StatusCode.DEADLINE_EXCEEDED, "Timed out waiting for an interpreter"
            ) from error
        try:
            if self._cancelled:
                raise ServingError(StatusCode.CANCELLED, "Session has been closed.")
            interpreter = interpreter or self._interpreter()
            self._set_inputs(interpreter, inputs)
            interpreter.invoke()
            return [
                _array(interpreter.get_tensor(self._outputs[name]["index"])) for name in fetches
            ]
        except (ValueError, RuntimeError) as error:
            interpreter = None  # its state is unknown
            raise invalid_argument(" ".join(str(error).split())) from error
        finally:
            self._free.put(interpreter)

    def cancel(self) -> None:
        """Refuses further runs."""
        self._cancelled = True

    def _interpreter(self) -> Any:
        try:
            from ai_edge_litert.interpreter import Interpreter
        except ImportError as error:
            raise ServingError(
                StatusCode.FAILED_PRECONDITION,
                "A .tflite file needs LiteRT: pip install ai-edge-litert",
            ) from error
        try:
            made = Interpreter(model_content=self._content, num_threads=1)
            made.allocate_tensors()
        except (ValueError, RuntimeError) as error:
            reason = " ".join(str(error).split())
            raise invalid_argument(f"{self._path.name}: {reason}") from error
        return made

    def _set_inputs(self, interpreter: Any, inputs: Mapping[str, np.ndarray]) -> None:
        for name, array in inputs.items():
            interpreter.resize_tensor_input(self._inputs[name]["index"], array.shape)
        interpreter.allocate_tensors()
        for name, array in inputs.items():
            interpreter.set_tensor(self._inputs[name]["index"], array)

    def _read_signatures(self) -> dict[str, SignatureDef]:
        buffer = read_buffer(self._content, _SIGNATURES)
        if buffer is None:
            return {}
        try:
            entries = flexbuffers.GetRoot(buffer).AsMap
            signatures = {
                key.AsKey: SignatureDef.FromString(bytes(value.AsStringBytes))
                for key, value in zip(entries.Keys, entries.Values)
            }
        except (ValueError, TypeError, IndexError, DecodeError) as error:
            raise invalid_argument(
                f"Invalid SignatureDefs found in TfLite model: {error}"
            ) from error
        for signature in signatures.values():
            _fix_names(signature.inputs, self._inputs)
            _fix_names(signature.outputs, self._outputs)
        return signatures

    def _signature(self) -> SignatureDef:
        signature = SignatureDef(method_name="tensorflow/serving/predict")
        for tensors, described in (
            (self._inputs, signature.inputs),
            (self._outputs, signature.outputs),
        ):
            aliases = [name.partition(":")[0] for name in tensors]
            for alias, (name, tensor) in zip(aliases, tensors.items()):
                # TensorFlow Serving would lose all but one of the tensors of an op.
                described[alias if aliases.count(alias) == 1 else name].CopyFrom(_describe(tensor))
        return signature


def _fix_names(described: Mapping[str, TensorInfo], tensors: Mapping[str, Any]) -> None:
    """Gives tensors the file's names: early converters left out `:0`."""
    for alias, info in described.items():
        if info.name not in tensors:
            info.name = info.name.partition(":")[0]
        if info.name not in tensors:
            raise ServingError(
                StatusCode.INTERNAL,
                f"Signature {alias} references an unknown tensor: Unknown tensor '{info.name}'.",
            )


def _describe(tensor: Mapping[str, Any]) -> TensorInfo:
    info = TensorInfo(name=tensor["name"], dtype=tf.as_dtype(tensor["dtype"]).as_datatype_enum)
    lengths = tensor["shape_signature"] if len(tensor["shape_signature"]) else tensor["shape"]
    for axis, length in enumerate(lengths):
        info.tensor_shape.dim.add(size=-1 if axis == 0 else int(length))
    return info


def _array(tensor: np.ndarray) -> np.ndarray:
    return tensor.astype(object) if tensor.dtype.kind == "S" else tensor
