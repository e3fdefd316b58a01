"""Programs that export, serve and query models: `python -m serving.NAME --help`."""

import os
import sys

if sys.argv[0] == "-m":  # Python is about to start one of these programs
    # Read when TensorFlow and gRPC are imported: a program tells errors itself, in a line.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    # TensorFlow's libraries greet while they are imported, whatever that level. What Python says
    # is still seen, and `gpt1_keras.cli` lets the libraries speak once the program runs.
    sys.stderr = os.fdopen(os.dup(2), "w", buffering=1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
