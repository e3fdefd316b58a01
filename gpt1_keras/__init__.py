"""GPT-1 for TensorFlow and Keras: pre-train, fine-tune, and serve on raw text."""

import lazy_loader

from gpt1_keras.quiet import is_program_starting
from gpt1_keras.registration import register_with_keras

# What __init__.pyi names is imported when it is first used.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

if not is_program_starting():  # otherwise `gpt1_keras.cli` does it, after it checks the options
    register_with_keras()
