from .converter import convert as convert
from .text_model import TextModel as TextModel
from .text_model import read_metadata as read_metadata

MAX_BYTES: int
SEQUENCE_LENGTH: int
QUANTIZATIONS: tuple[str, ...]
