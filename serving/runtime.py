"""TensorFlow's C++ runtime, without Python TensorFlow: its C API, and the session of a SavedModel.

The C API is called through `ctypes`, so that a process can load the libraries of any installed
version. The loader and the session are those that TF Serving embeds. Tensors go in as serialized
TensorProtos, which the runtime itself parses, and come out as arrays.
"""

import ctypes
import os
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

Pointer = ctypes.c_void_p

_STRING = 7
_STRING_BYTES = 24  # of a string tensor's element, a TF_TString
_DTYPES = {
    1: np.float32,
    2: np.float64,
    3: np.int32,
    4: np.uint8,
    5: np.int16,
    6: np.int8,
    9: np.int64,
    10: np.bool_,
    17: np.uint16,
    22: np.uint32,
    23: np.uint64,
}
_NOT_FOUND = 5
_UNIMPLEMENTED = 12


class StatusError(Exception):
    """The runtime refused something, or failed.

    Attributes:
        code: the number of the status code, the same as gRPC's.
        message: the runtime's own message.
    """

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class _Buffer(ctypes.Structure):
    """TF_Buffer."""

    _fields_ = [("data", Pointer), ("length", ctypes.c_size_t), ("deallocator", Pointer)]


class Output(ctypes.Structure):
    """TF_Output: a tensor of a graph, the output of an operation."""

    _fields_ = [("operation", Pointer), ("index", ctypes.c_int)]


_BufferPointer = ctypes.POINTER(_Buffer)
_FUNCTIONS = {  # name: (result, arguments)
    "TF_Version": (ctypes.c_char_p, []),
    "TF_GetAllOpList": (_BufferPointer, []),
    "TF_NewStatus": (Pointer, []),
    "TF_GetCode": (ctypes.c_int, [Pointer]),
    "TF_Message": (ctypes.c_char_p, [Pointer]),
    "TF_DeleteStatus": (None, [Pointer]),
    "TF_NewBufferFromString": (_BufferPointer, [ctypes.c_char_p, ctypes.c_size_t]),
    "TF_DeleteBuffer": (None, [_BufferPointer]),
    "TF_NewGraph": (Pointer, []),
    "TF_DeleteGraph": (None, [Pointer]),
    "TF_GraphOperationByName": (Pointer, [Pointer, ctypes.c_char_p]),
    "TF_NewSessionOptions": (Pointer, []),
    "TF_SetConfig": (None, [Pointer, ctypes.c_char_p, ctypes.c_size_t, Pointer]),
    "TF_DeleteSessionOptions": (None, [Pointer]),
    "TF_LoadSessionFromSavedModel": (
        Pointer,
        [
            *(Pointer, _BufferPointer, ctypes.c_char_p, ctypes.POINTER(ctypes.c_char_p)),
            *(ctypes.c_int, Pointer, _BufferPointer, Pointer),
        ],
    ),
    "TF_SessionRun": (
        None,
        [
            *(Pointer, _BufferPointer),
            *(ctypes.POINTER(Output), ctypes.POINTER(Pointer), ctypes.c_int),
            *(ctypes.POINTER(Output), ctypes.POINTER(Pointer), ctypes.c_int),
            *(ctypes.POINTER(Pointer), ctypes.c_int, _BufferPointer, Pointer),
        ],
    ),
    "TF_CloseSession": (None, [Pointer, Pointer]),
    "TF_DeleteSession": (None, [Pointer, Pointer]),
    "TF_AllocateTensor": (
        Pointer,
        [ctypes.c_int, ctypes.POINTER(ctypes.c_int64), ctypes.c_int, ctypes.c_size_t],
    ),
    "TF_TensorFromProto": (None, [_BufferPointer, Pointer, Pointer]),
    "TF_DeleteTensor": (None, [Pointer]),
    "TF_TensorType": (ctypes.c_int, [Pointer]),
    "TF_NumDims": (ctypes.c_int, [Pointer]),
    "TF_Dim": (ctypes.c_int64, [Pointer, ctypes.c_int]),
    "TF_TensorData": (Pointer, [Pointer]),
    "TF_TensorByteSize": (ctypes.c_size_t, [Pointer]),
    "TF_StringGetDataPointer": (Pointer, [Pointer]),
    "TF_StringGetSize": (ctypes.c_size_t, [Pointer]),
}


class Runtime:
    """The runtime of one installed TensorFlow.

    Args:
        folder: the folder of its package, which holds the libraries.

    Raises:
        OSError: `folder` does not hold the libraries.
    """

    def __init__(self, folder: str | Path) -> None:
        for name in ("libtensorflow_framework", "libtensorflow_cc"):
            libraries = sorted(Path(folder).glob(f"{name}.*"))
            if not libraries:
                raise OSError(f"Expected TensorFlow's library {name} in {folder}; there is none")
            self._library = ctypes.CDLL(str(libraries[0]), ctypes.RTLD_GLOBAL)
        for function, (result, arguments) in _FUNCTIONS.items():
            prototype = getattr(self._library, function)
            prototype.restype, prototype.argtypes = result, arguments

    def __getattr__(self, name: str) -> Any:
        """Returns a function of the C API, by its name without `TF_`."""
        function = getattr(self._library, f"TF_{name}")
        setattr(self, name, function)  # look-ups take as long as running a small graph
        return function

    def op_list(self) -> bytes:
        """Returns all ops of this TensorFlow, as a serialized OpList."""
        buffer = self.GetAllOpList()
        try:
            return ctypes.string_at(buffer.contents.data, buffer.contents.length)
        finally:
            self.DeleteBuffer(buffer)

    def disable_xla(self) -> None:
        """Makes the runtime refuse to compile with XLA from now on, like TF Serving."""
        self._library["_ZN10tensorflow21DisableXlaCompilationEv"]()

    def enable_xla(self) -> None:
        """Lets the runtime compile with XLA again."""
        self._library["_ZN10tensorflow20EnableXlaCompilationEv"]()

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Calls a function of the C API whose last argument is a status, and returns its result.

        Raises:
            StatusError: the status is not OK.
        """
        status = self.NewStatus()
        try:
            result = function(*arguments, status)
            code = self.GetCode(status)
            if code:
                raise StatusError(code, self.Message(status).decode(errors="replace"))
            return result
        finally:
            self.DeleteStatus(status)


class FeedError(StatusError):
    """A feed is not a well-formed TensorProto.

    Attributes:
        name: the name of the tensor that was fed.
    """

    def __init__(self, name: str, error: StatusError) -> None:
        super().__init__(error.code, error.message)
        self.name = name


class Session:
    """A SavedModel, loaded for serving. Any number of threads may run it at once.

    Args:
        tags: the tags of the graph to load.
        config: a serialized ConfigProto: threads, and how graphs are optimised.

    Raises:
        StatusError: the runtime cannot load it.
    """

    def __init__(
        self,
        runtime: Runtime,
        path: str | Path,
        tags: Sequence[str] = ("serve",),
        config: bytes = b"",
    ) -> None:
        self._runtime = runtime
        self._graph = runtime.NewGraph()
        self._known: dict[str, Output] = {}
        options = runtime.NewSessionOptions()
        names = (ctypes.c_char_p * len(tags))(*(tag.encode() for tag in tags))
        try:
            runtime.call(runtime.SetConfig, options, config, len(config))
            self._session = runtime.call(
                runtime.LoadSessionFromSavedModel,
                *(options, None, os.fsencode(path), names, len(names), self._graph, None),
            )
        except StatusError:
            runtime.DeleteGraph(self._graph)
            raise
        finally:
            runtime.DeleteSessionOptions(options)
        # Freed with the last reference; runs in flight hold references.
        weakref.finalize(self, _delete, runtime, self._session, self._graph).atexit = False

    def run(
        self, feeds: Mapping[str, bytes], fetches: Sequence[str], options: bytes = b""
    ) -> list[np.ndarray]:
        """Runs the graph.

        Args:
            feeds: serialized TensorProtos by tensor name.
            fetches: names of the tensors to return.
            options: serialized RunOptions.

        Returns:
            The fetched tensors; strings are arrays of `bytes` objects.

        Raises:
            FeedError: a feed is not well-formed.
            StatusError: the graph has no such tensor, refused a feed, or failed.
        """
        runtime = self._runtime
        tensors: list[int] = []
        results = (Pointer * len(fetches))()
        buffer = runtime.NewBufferFromString(options, len(options))
        try:
            for name, proto in feeds.items():
                tensors.append(_parse(runtime, name, proto))
            runtime.call(
                runtime.SessionRun,
                *(self._session, buffer),
                *(self._outputs(feeds), (Pointer * len(tensors))(*tensors), len(tensors)),
                *(self._outputs(fetches), results, len(fetches)),
                *(None, 0, None),
            )
            return [_array(runtime, tensor or 0) for tensor in results]
        finally:
            for tensor in [*tensors, *filter(None, results)]:
                runtime.DeleteTensor(tensor)
            runtime.DeleteBuffer(buffer)

    def cancel(self) -> None:
        """Ends the runs in flight, which fail with CANCELLED, and refuses further ones."""
        self._runtime.call(self._runtime.CloseSession, self._session)

    def _outputs(self, names: Collection[str]) -> ctypes.Array[Output]:
        for name in names:
            if name not in self._known:
                self._known[name] = self._output(name)
        return (Output * len(names))(*(self._known[name] for name in names))

    def _output(self, name: str) -> Output:
        operation, _, index = name.partition(":")
        pointer = self._runtime.GraphOperationByName(self._graph, operation.encode())
        if not pointer:
            raise StatusError(_NOT_FOUND, f"The graph has no tensor {name}")
        return Output(pointer, int(index or 0))


def parse(runtime: Runtime, name: str, proto: bytes) -> np.ndarray:
    """Returns the array of a serialized TensorProto, as the runtime reads it.

    Raises:
        FeedError: it is not well-formed.
        StatusError: there are no arrays of its dtype.
    """
    tensor = _parse(runtime, name, proto)
    try:
        return _array(runtime, tensor)
    finally:
        runtime.DeleteTensor(tensor)


def _parse(runtime: Runtime, name: str, proto: bytes) -> int:
    """Returns a new tensor, which the caller deletes."""
    tensor = runtime.AllocateTensor(1, None, 0, 4)  # the dtype will be overwritten
    buffer = runtime.NewBufferFromString(proto, len(proto))
    try:
        runtime.call(runtime.TensorFromProto, buffer, tensor)
    except StatusError as error:
        runtime.DeleteTensor(tensor)
        raise FeedError(name, error) from error
    finally:
        runtime.DeleteBuffer(buffer)
    return tensor


def _array(runtime: Runtime, tensor: int) -> np.ndarray:
    """Returns a copy of a tensor."""
    dtype = runtime.TensorType(tensor)
    if dtype != _STRING and dtype not in _DTYPES:
        raise StatusError(_UNIMPLEMENTED, f"Tensors of DataType {dtype} are not supported")
    shape = [runtime.Dim(tensor, axis) for axis in range(runtime.NumDims(tensor))]
    if 0 in shape:  # the runtime may have no data to return
        return np.empty(shape, object if dtype == _STRING else _DTYPES[dtype])
    data = runtime.TensorData(tensor)
    if dtype == _STRING:
        array = np.empty(int(np.prod(shape)), object)
        for index in range(array.size):
            element = data + index * _STRING_BYTES
            array[index] = ctypes.string_at(
                runtime.StringGetDataPointer(element), runtime.StringGetSize(element)
            )
        return array.reshape(shape)
    values = ctypes.string_at(data, runtime.TensorByteSize(tensor))
    return np.frombuffer(values, _DTYPES[dtype]).reshape(shape)


def _delete(runtime: Runtime, session: int, graph: int) -> None:
    """Frees a session and its graph."""
    runtime.call(runtime.CloseSession, session)
    runtime.call(runtime.DeleteSession, session)
    runtime.DeleteGraph(graph)
