"""Models as .tflite files for devices: text in, scores out, in LiteRT's built-in ops alone.

`python -m serving.tflite` converts; see docs/on_device.md.
"""

from serving.tflite.convert import convert
from serving.tflite.tflite_metadata import read_metadata

__all__ = ["convert", "read_metadata"]
