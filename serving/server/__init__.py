"""A model server for one machine that speaks TensorFlow Serving's gRPC and REST."""

import lazy_loader

# What __init__.pyi names is imported when it is first used.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
