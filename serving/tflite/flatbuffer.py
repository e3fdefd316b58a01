"""Unpacks and packs .tflite files: a flatbuffer, with large constants after it."""

import flatbuffers
import numpy as np
from tensorflow.lite.python import schema_py_generated as schema

_LARGE = 1024  # bytes; constants of this size or more lie after the flatbuffer
_ALIGNMENT = 16  # bytes; the constants' offsets are multiples of it


def unpack(content: bytes) -> schema.ModelT:
    """Returns the object of a file's content, with all constants in its buffers."""
    model = schema.ModelT.InitFromObj(schema.Model.GetRootAsModel(content, 0))
    for buffer in model.buffers:
        if buffer.offset:
            buffer.data = np.frombuffer(content, np.uint8, buffer.size, buffer.offset)
            buffer.offset = buffer.size = 0
    return model


def pack(model: schema.ModelT) -> bytes:
    """Returns the content of a file from what `unpack` returned, and empties its buffers."""
    large = [each for each in model.buffers if each.data is not None and len(each.data) >= _LARGE]
    constants, length = [], 0
    for buffer in large:
        constants.append(bytes(buffer.data) + bytes(-len(buffer.data) % _ALIGNMENT))
        # Offsets from the first constant; never 0, which flatbuffers leaves out, so the size
        # differs.
        buffer.data, buffer.offset, buffer.size = None, length + _ALIGNMENT, len(buffer.data)
        length += len(constants[-1])
    start = len(_pack(model))
    gap = -start % _ALIGNMENT
    for buffer in large:
        buffer.offset += start + gap - _ALIGNMENT
    return b"".join([_pack(model), bytes(gap), *constants])


def _pack(model: schema.ModelT) -> bytes:
    builder = _SharingBuilder()
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


class _SharingBuilder(flatbuffers.Builder):
    """Writes equal vectors once, such as the scales of weights that several graphs read."""

    def __init__(self) -> None:
        super().__init__()
        self._written: dict[tuple[str, bytes], int] = {}

    def CreateNumpyVector(self, x: np.ndarray) -> int:  # flatbuffers' name
        key = x.dtype.str, x.tobytes()
        if key not in self._written:
            self._written[key] = super().CreateNumpyVector(x)
        return self._written[key]
