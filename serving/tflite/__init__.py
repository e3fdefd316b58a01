"""Models as .tflite files for devices: text in, scores out, only with LiteRT's built-in ops.

`gpt1 tflite` converts; see docs/on_device.md.
"""

import lazy_loader

# What __init__.pyi names is imported when it is first used.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
