"""Named configurations of the backbones; presets: those that ship, loading and uploading them."""

import lazy_loader

# What __init__.pyi names is imported when it is first used.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
