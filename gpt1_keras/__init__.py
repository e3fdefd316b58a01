"""GPT-1 for TensorFlow and Keras: pre-train, fine-tune, and serve on raw text."""

import lazy_loader

from gpt1_keras.registration import register_with_keras

# What __init__.pyi names is imported when it is first used.
__getattr__, __dir__, _ = lazy_loader.attach_stub(__name__, __file__)

# What `from gpt1_keras import *` brings: the classes. The modules' names are those of many a
# variable.
__all__ = [name for name in __dir__() if name[0].isupper()]

register_with_keras()
