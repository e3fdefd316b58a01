"""Reading and writing published checkpoint formats. Nothing is unpickled or downloaded."""

from gpt1_keras.convert.hugging_face import load_hugging_face, save_hugging_face
from gpt1_keras.convert.openai import load_openai

__all__ = ["load_hugging_face", "load_openai", "save_hugging_face"]
