from .convert import convert as convert
from .metadata import read_metadata as read_metadata
