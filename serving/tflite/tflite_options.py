"""Options of .tflite files.

`gpt1 tflite --help` reads this file, so it imports no TensorFlow.
"""

MAX_BYTES = 512  # of a text, by default
SEQUENCE_LENGTH = 128  # tokens of a framed text, by default
QUANTIZATIONS = ("none", "float16", "int8", "int4")
