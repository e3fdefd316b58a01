"""TensorFlow's C++ runtime by way of its C API: the loader and the session that TF Serving embeds.

This module imports no Python TensorFlow, so a process can run a model in any version's libraries.
Tensors go in as serialized TensorProtos, which the runtime itself parses, and come out as arrays.
"""

import ctypes
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

_Pointer = ctypes.c_void_p
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
_UNIMPLEMENTED = 12


class StatusError(Exception):
    """What the runtime refused or failed at.

    Attributes:
        code: the number of the status code, the same as gRPC's.
        message: the runtime's own message.
    """

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class FeedError(StatusError):
    """A feed that is no well-formed TensorProto.

    Attributes:
        name: the tensor that it was for.
    """

    def __init__(self, name: str, error: StatusError) -> None:
        super().__init__(error.code, error.message)
        self.name = name


class _Buffer(ctypes.Structure):
    _fields_ = [("data", _Pointer), ("length", ctypes.c_size_t), ("deallocator", _Pointer)]


class _Output(ctypes.Structure):
    _fields_ = [("operation", _Pointer), ("index", ctypes.c_int)]


_BufferPointer = ctypes.POINTER(_Buffer)
_FUNCTIONS = {  # name: (result, arguments)
    "TF_Version": (ctypes.c_char_p, []),
    "TF_GetAllOpList": (_BufferPointer, []),
    "TF_NewStatus": (_Pointer, []),
    "TF_GetCode": (ctypes.c_int, [_Pointer]),
    "TF_Message": (ctypes.c_char_p, [_Pointer]),
    "TF_DeleteStatus": (None, [_Pointer]),
    "TF_NewBufferFromString": (_BufferPointer, [ctypes.c_char_p, ctypes.c_size_t]),
    "TF_DeleteBuffer": (None, [_BufferPointer]),
    "TF_NewGraph": (_Pointer, []),
    "TF_DeleteGraph": (None, [_Pointer]),
    "TF_GraphOperationByName": (_Pointer, [_Pointer, ctypes.c_char_p]),
    "TF_NewSessionOptions": (_Pointer, []),
    "TF_DeleteSessionOptions": (None, [_Pointer]),
    "TF_LoadSessionFromSavedModel": (
        _Pointer,
        [
            *(_Pointer, _BufferPointer, ctypes.c_char_p, ctypes.POINTER(ctypes.c_char_p)),
            *(ctypes.c_int, _Pointer, _BufferPointer, _Pointer),
        ],
    ),
    "TF_SessionRun": (
        None,
        [
            *(_Pointer, _BufferPointer),
            *(ctypes.POINTER(_Output), ctypes.POINTER(_Pointer), ctypes.c_int),
            *(ctypes.POINTER(_Output), ctypes.POINTER(_Pointer), ctypes.c_int),
            *(ctypes.POINTER(_Pointer), ctypes.c_int, _BufferPointer, _Pointer),
        ],
    ),
    "TF_CloseSession": (None, [_Pointer, _Pointer]),
    "TF_DeleteSession": (None, [_Pointer, _Pointer]),
    "TF_AllocateTensor": (
        _Pointer,
        [ctypes.c_int, ctypes.POINTER(ctypes.c_int64), ctypes.c_int, ctypes.c_size_t],
    ),
    "TF_TensorFromProto": (None, [_BufferPointer, _Pointer, _Pointer]),
    "TF_DeleteTensor": (None, [_Pointer]),
    "TF_TensorType": (ctypes.c_int, [_Pointer]),
    "TF_NumDims": (ctypes.c_int, [_Pointer]),
    "TF_Dim": (ctypes.c_int64, [_Pointer, ctypes.c_int]),
    "TF_TensorData": (_Pointer, [_Pointer]),
    "TF_TensorByteSize": (ctypes.c_size_t, [_Pointer]),
    "TF_StringGetDataPointer": (_Pointer, [_Pointer]),
    "TF_StringGetSize": (ctypes.c_size_t, [_Pointer]),
}


class Runtime:
    """The runtime of one installed TensorFlow.

    Args:
        folder: the folder of its package, which holds the libraries.

    Raises:
        OSError: `folder` holds no such libraries.
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

    def __getattr__(self, name: str):
        """A function of the C API, by its name without `TF_`."""
        return getattr(self._library, f"TF_{name}")

    def op_list(self) -> bytes:
        """All ops of this TensorFlow, as a serialized OpList."""
        buffer = self.GetAllOpList()
        try:
            return ctypes.string_at(buffer.contents.data, buffer.contents.length)
        finally:
            self.DeleteBuffer(buffer)

    def disable_xla(self) -> None:
        """Refuses to compile with XLA from now on, as TF Serving does."""
        self._library["_ZN10tensorflow21DisableXlaCompilationEv"]()

    def checked(self, function, *arguments):
        """Calls a function whose last argument is a status.

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


class Session:
    """A SavedModel, loaded for serving. Any number of threads may run it at once.

    Args:
        runtime: the runtime to load it in.
        path: the SavedModel's folder.

    Raises:
        StatusError: the runtime cannot load it.
    """

    def __init__(self, runtime: Runtime, path: str | Path) -> None:
        self._runtime = runtime
        self._graph = runtime.NewGraph()
        options = runtime.NewSessionOptions()
        tags = (ctypes.c_char_p * 1)(b"serve")
        try:
            self._session = runtime.checked(
                runtime.LoadSessionFromSavedModel,
                *(options, None, str(path).encode(), tags, 1, self._graph, None),
            )
        except StatusError:
            runtime.DeleteGraph(self._graph)
            raise
        finally:
            runtime.DeleteSessionOptions(options)
        # Freed with the last reference: a run that is in flight holds one.
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
            the fetched tensors; strings are arrays of `bytes` objects.

        Raises:
            FeedError: a feed is not well-formed.
            StatusError: the graph refused a feed, or failed.
        """
        runtime = self._runtime
        tensors: list[int] = []
        results = (_Pointer * len(fetches))()
        buffer = runtime.NewBufferFromString(options, len(options))
        try:
            for name, proto in feeds.items():
                tensors.append(_parse(runtime, name, proto))
            runtime.checked(
                runtime.SessionRun,
                *(self._session, buffer),
                *(self._outputs(feeds), (_Pointer * len(tensors))(*tensors), len(tensors)),
                *(self._outputs(fetches), results, len(fetches)),
                *(None, 0, None),
            )
            return [_array(runtime, tensor or 0) for tensor in results]
        finally:
            for tensor in [*tensors, *filter(None, results)]:
                runtime.DeleteTensor(tensor)
            runtime.DeleteBuffer(buffer)

    def _outputs(self, names):
        outputs = (_Output * len(names))()
        for output, name in zip(outputs, names):
            operation, _, index = name.partition(":")
            output.operation = self._runtime.GraphOperationByName(self._graph, operation.encode())
            output.index = int(index or 0)
            if not output.operation:
                raise StatusError(5, f"The graph has no tensor {name}")
        return outputs


def _parse(runtime: Runtime, name: str, proto: bytes) -> int:
    """Returns a new tensor."""
    tensor = runtime.AllocateTensor(1, None, 0, 4)  # of any kind: it is overwritten
    buffer = runtime.NewBufferFromString(proto, len(proto))
    try:
        runtime.checked(runtime.TensorFromProto, buffer, tensor)
    except StatusError as error:
        runtime.DeleteTensor(tensor)
        raise FeedError(name, error) from error
    finally:
        runtime.DeleteBuffer(buffer)
    return tensor


def _array(runtime: Runtime, tensor: int) -> np.ndarray:
    dtype = runtime.TensorType(tensor)
    shape = [runtime.Dim(tensor, axis) for axis in range(runtime.NumDims(tensor))]
    data = runtime.TensorData(tensor)
    if dtype == _STRING:
        array = np.empty(int(np.prod(shape)), object)
        for index in range(array.size):
            element = data + index * _STRING_BYTES
            array[index] = ctypes.string_at(
                runtime.StringGetDataPointer(element), runtime.StringGetSize(element)
            )
        return array.reshape(shape)
    if dtype not in _DTYPES:
        raise StatusError(_UNIMPLEMENTED, f"Outputs of DataType {dtype} cannot be returned")
    values = ctypes.string_at(data, runtime.TensorByteSize(tensor))
    return np.frombuffer(values, _DTYPES[dtype]).reshape(shape)


def _delete(runtime: Runtime, session: int, graph: int) -> None:
    runtime.checked(runtime.CloseSession, session)
    runtime.checked(runtime.DeleteSession, session)
    runtime.DeleteGraph(graph)
