"""GPT-1 for TensorFlow and Keras: pre-train, fine-tune, and serve on raw text."""

import lazy_loader

from gpt1_keras.registration import register_with_keras

# What __init__.pyi names is imported when it is first used.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

register_with_keras()
