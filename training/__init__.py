"""Programs that make and measure models: `gpt1 --help` lists them."""

import os

from gpt1_keras.quiet import is_program_starting, silence_imports

if is_program_starting():
    silence_imports()
    # On its own, TensorFlow uses oneDNN only where a processor has instructions for 8-bit numbers
    # or bfloat16; a training step is faster with it on AVX2 alone too.
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
