"""TensorFlow's C API, called through `ctypes`, without Python TensorFlow.

A process can therefore load the libraries of any installed version.
"""

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

Pointer = ctypes.c_void_p


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
