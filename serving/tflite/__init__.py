"""Models as .tflite files for devices: text in, scores out, only with LiteRT's built-in ops.

`gpt1 tflite` converts; see docs/on_device.md.
"""

import lazy_loader

# Defaults and choices, for a --help that imports no TensorFlow.
MAX_BYTES = 512  # of a text
SEQUENCE_LENGTH = 128  # tokens of a framed text
QUANTIZATIONS = ("none", "float16", "int8", "int4")

# What __init__.pyi names is imported when it is first used.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
