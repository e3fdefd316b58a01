"""Models as .tflite files for devices: text in, scores out, in LiteRT's built-in ops alone.

`python -m serving.tflite` converts; see docs/on_device.md.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from serving.tflite.converter import convert
    from serving.tflite.tflite_metadata import read_metadata

__all__ = ["convert", "read_metadata"]


def __getattr__(name: str) -> Any:
    # Imported when they are asked for: the modules of this package need not import all of them.
    if name == "convert":
        from serving.tflite.converter import convert

        return convert
    if name == "read_metadata":
        from serving.tflite.tflite_metadata import read_metadata

        return read_metadata
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
