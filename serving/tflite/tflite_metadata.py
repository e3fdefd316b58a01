"""The metadata of a .tflite file: JSON in a buffer of its own."""

import json
import os
import pathlib
import struct
from typing import Any

import numpy as np
from tensorflow.lite.python import schema_py_generated as schema

from serving.tflite.flatbuffer import pack, unpack
from serving.tflite_buffer import read_buffer

NAME = "gpt1_keras"
# What flatbuffers, NumPy and json raise for a damaged file.
_FAULTS = (struct.error, ValueError, IndexError, TypeError, OverflowError)


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
