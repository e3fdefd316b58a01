from .converter import convert as convert
from .text_model import TextModel as TextModel
from .tflite_metadata import read_metadata as read_metadata
