"""Named configurations of the backbones, presets that ship, and loading and uploading presets."""

import lazy_loader

# What __init__.pyi names is imported when it is first used.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
