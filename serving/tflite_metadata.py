"""The metadata of a .tflite file: JSON in a buffer of its own, read from the flatbuffer."""

import json
import os
import pathlib
import struct
from typing import Any

import flatbuffers
import numpy as np
from tensorflow.lite.python import schema_py_generated as schema

_LARGE = 1024  # bytes; constants of this size or more lie after the flatbuffer
_ALIGNMENT = 16  # bytes; the constants' offsets are multiples of it

NAME = "gpt1_keras"
# What flatbuffers, NumPy and json raise for a damaged file.
_FAULTS = (struct.error, ValueError, IndexError, TypeError, OverflowError)


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


def add_metadata(content: bytes, metadata: dict[str, Any]) -> bytes:
    """Returns a file's content with added metadata, values that JSON can hold."""
    model = unpack(content)
    buffer = schema.BufferT()
    buffer.data = np.frombuffer(json.dumps(metadata).encode(), np.uint8)
    entry = schema.MetadataT()
    entry.name, entry.buffer = NAME, len(model.buffers)
    model.buffers.append(buffer)
    model.metadata.append(entry)
    return pack(model)


def read_metadata(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Reads what `add_metadata` wrote into a .tflite file.

    Returns:
        The metadata of an export (`serving.export.export_metadata.metadata_of`), with `max_bytes`,
        a dict from field to int; `sequence_length`; `num_choices`; `outputs`, the names of what the
        signature `text` returns; `weights`, how they are stored; and, for a language model,
        `vocabulary`, the tokens in the order of their ids.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is not a .tflite file, or a damaged one, or another program wrote it.
    """
    content = pathlib.Path(path).read_bytes()
    if content[4:8] != b"TFL3":
        raise ValueError(f"{path} is not a .tflite file.")
    try:
        buffer = read_buffer(content, NAME)
        metadata = None if buffer is None else json.loads(buffer)
    except _FAULTS as error:
        raise ValueError(f"{path} is damaged: {error}.") from None
    if metadata is None:
        raise ValueError(f"{path} has no metadata named {NAME!r}: gpt1 tflite did not write it.")
    return metadata


def read_buffer(content: bytes, name: str) -> bytes | None:
    """Returns the metadata of that name in a .tflite file's content, or None."""
    model = schema.Model.GetRootAsModel(content, 0)
    for index in range(model.MetadataLength()):
        entry = model.Metadata(index)
        if entry.Name() == name.encode():
            buffer = model.Buffers(entry.Buffer())
            # Large buffers may lie after the flatbuffer.
            if offset := buffer.Offset():
                return content[offset : offset + buffer.Size()]
            return buffer.DataAsNumpy().tobytes()
    return None
