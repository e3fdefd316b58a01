"""What a .tflite file says about itself: JSON in a metadata buffer of its own."""

import json
import pathlib

import numpy as np
from tensorflow.lite.python import schema_py_generated as schema

from serving.tflite.flatbuffer import pack, unpack

NAME = "gpt1_keras"


def add_metadata(content, metadata):
    """Adds metadata to a model.

    Args:
        content: bytes, the file's content.
        metadata: dict of what JSON can hold.

    Returns:
        bytes.
    """
    model = unpack(content)
    buffer = schema.BufferT()
    buffer.data = np.frombuffer(json.dumps(metadata).encode(), np.uint8)
    entry = schema.MetadataT()
    entry.name, entry.buffer = NAME, len(model.buffers)
    model.buffers.append(buffer)
    model.metadata.append(entry)
    return pack(model)


def read_metadata(path):
    """Reads what `add_metadata` wrote.

    Args:
        path: of the .tflite file.

    Returns:
        dict: what an export says about itself (`serving.export.metadata_of`), with `max_bytes`, a
        dict from field to int; `sequence_length`; `num_choices`; `weights`, how they are stored;
        and of a language model `vocabulary`, the tokens in the order of their ids.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is no .tflite file, or not one of ours.
    """
    content = pathlib.Path(path).read_bytes()
    if content[4:8] != b"TFL3":
        raise ValueError(f"{path} is no .tflite file.")
    model = schema.Model.GetRootAsModel(content, 0)
    for number in range(model.MetadataLength()):
        entry = model.Metadata(number)
        if entry.Name() == NAME.encode():
            buffer = model.Buffers(entry.Buffer())
            # Large buffers may lie behind the flatbuffer.
            if offset := buffer.Offset():
                return json.loads(content[offset : offset + buffer.Size()])
            return json.loads(buffer.DataAsNumpy().tobytes())
    raise ValueError(f"{path} has no metadata named {NAME!r}: this program did not convert it.")
