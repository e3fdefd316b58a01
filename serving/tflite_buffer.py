"""Reads metadata of .tflite files, for the converter and the server."""

from tensorflow.lite.python import schema_py_generated as schema


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
