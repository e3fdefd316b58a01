from .converter import convert as convert
from .tflite_metadata import read_metadata as read_metadata
