"""What a conversion can be told, and its defaults."""

MAX_BYTES = 512
SEQUENCE_LENGTH = 128
QUANTIZATIONS = ("none", "float16", "int8", "int4")
