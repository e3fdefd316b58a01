"""Says which normalization published weights are read with, where the user has not chosen one."""

import functools
import sys

_LINES = {
    "bert": (
        "The checkpoint of transformers is read with normalization='bert', as there; the weights "
        "that OpenAI released were trained with 'original'."
    ),
    "original": (
        "OpenAI's files are read with normalization='original', which the weights were trained "
        "with; 'bert' is that of transformers."
    ),
}


def take_normalization(asked: str | None, default: str) -> str:
    """Returns the normalization that was asked for; or the default one, and says so in one line."""
    if asked is None:
        _say(default)
    return asked or default


@functools.cache  # once in a process
def _say(default: str) -> None:
    line = f"{_LINES[default]} Give `normalization` to choose (docs/tokenization.md)."
    print(line, file=sys.stderr, flush=True)
