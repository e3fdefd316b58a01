"""Continues a prompt, token by token, with a language model's .tflite file.

    python generate.py lm.tflite "the road was long and"
    python generate.py lm.tflite "the road was long and" 1      # always the likeliest token

The third argument is the number of tokens to choose from (default: 40), at a temperature of 0.8.
"""

import sys

import numpy as np
from ai_edge_litert.interpreter import Interpreter

from serving.tflite import read_metadata

if len(sys.argv) not in (3, 4):
    sys.exit(__doc__)
path, prompt, top_k = sys.argv[1], sys.argv[2], int((*sys.argv, 40)[3])
metadata, interpreter = read_metadata(path), Interpreter(path)
read, go_on = (interpreter.get_signature_runner(name) for name in ("text", "tokens"))
size, random = metadata["max_bytes"]["text"], np.random.default_rng()
encoded = np.frombuffer(prompt.encode()[:size].ljust(size, b"\0"), np.uint8).astype(np.int32)

outputs = read(text=encoded)
num_tokens = outputs["num_tokens"]
while 0 < num_tokens[0] < metadata["sequence_length"]:
    best = np.argsort(outputs["logits"])[-top_k:]
    noise = random.gumbel(size=len(best))  # to choose with the softmax's probabilities
    token = best[np.argmax(outputs["logits"][best] / 0.8 + noise)].astype(np.int32)
    print(metadata["vocabulary"][token].replace("</w>", " "), end="", flush=True)
    outputs = go_on(token_ids=token[np.newaxis], num_tokens=num_tokens, cache=outputs["cache"])
    num_tokens = num_tokens + 1
print()
