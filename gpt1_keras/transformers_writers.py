"""Writers of `transformers`' format, by the class that they write.

`gpt1_keras.convert` registers them when it is imported. Backbones, tasks and tokenizers look up
their writer here, so they do not import the code that imports them.
"""

import os
from collections.abc import Callable
from typing import Any

_Writer = Callable[[Any, str | os.PathLike[str]], None]
_writers: dict[type, _Writer] = {}


def register_writer(cls: type, writer: _Writer) -> None:
    """Registers a function that writes a class, and its subclasses, into a folder."""
    _writers[cls] = writer


def write_for_transformers(written: Any, path: str | os.PathLike[str]) -> None:
    """Writes a task, a backbone or a tokenizer into a folder.

    Raises:
        ValueError: no writer is registered for such an object; or the writer raises it.
    """
    for cls in type(written).__mro__:
        if cls in _writers:
            _writers[cls](written, path)
            return
    raise ValueError(
        f"`transformers` has no format for a {type(written).__name__}; expected one of "
        f"{', '.join(each.__name__ for each in _writers)}."
    )
