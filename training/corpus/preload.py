"""What the fork server of `training.corpus.workers` imports, once for all workers.

TensorFlow's libraries write to stderr while they are imported, so stderr is silent meanwhile.
"""

import os

_stderr = os.dup(2)
os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
try:
    import training.corpus.shards  # noqa: F401
finally:
    os.dup2(_stderr, 2)
    os.close(_stderr)
