"""Scores texts with a classifier's .tflite file: python score.py sst2.tflite "a joy to watch"."""

import sys

import numpy as np
from ai_edge_litert.interpreter import Interpreter

score = Interpreter(sys.argv[1], num_threads=1).get_signature_runner("text")
[max_bytes] = score.get_input_details()["text"]["shape"]
for text in sys.argv[2:]:
    bytes = text.encode()[:max_bytes].ljust(max_bytes, b"\0")
    print(score(text=np.frombuffer(bytes, np.uint8).astype(np.int32))["scores"], text)
