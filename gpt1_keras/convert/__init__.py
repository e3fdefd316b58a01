"""Reading and writing published checkpoint formats. Nothing is unpickled.

KerasHub's `from_preset` reads folders and handles of `transformers`' format too.
"""

from gpt1_keras.convert.from_transformers import load_hugging_face
from gpt1_keras.convert.last_token_preprocessor import LastTokenPreprocessor
from gpt1_keras.convert.openai import load_openai
from gpt1_keras.convert.to_transformers import save_hugging_face

__all__ = ["LastTokenPreprocessor", "load_hugging_face", "load_openai", "save_hugging_face"]
