"""Programs that make and measure models: `python -m training.NAME --help`."""

import os
import sys

if sys.argv[0] == "-m":  # Python is about to start one of these programs
    # Read when TensorFlow and gRPC are imported: a program tells errors itself, in a line.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    # On its own, TensorFlow uses oneDNN only where a processor has instructions for 8-bit numbers
    # or bfloat16; with AVX2 alone, a training step is faster with it too.
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
    # TensorFlow's libraries greet while they are imported, whatever that level. What Python says
    # is still seen, and `gpt1_keras.cli` lets the libraries speak once the program runs.
    sys.stderr = os.fdopen(os.dup(2), "w", buffering=1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
