"""Writers of `transformers`' format, by what they write.

`gpt1_keras.convert` registers them as it is imported. What is written, such as a backbone, looks
its writer up here, and so does not import the code that imports it.
"""

import os
from collections.abc import Callable
from typing import Any

_Writer = Callable[[Any, str | os.PathLike[str]], None]
_writers: dict[type, _Writer] = {}


def register_writer(cls: type, writer: _Writer) -> None:
    """Registers what writes a class, and those that inherit from it, into a folder."""
    _writers[cls] = writer


def write_for_transformers(written: Any, path: str | os.PathLike[str]) -> None:
    """Writes a task, a backbone or a tokenizer into a folder.

    Raises:
        ValueError: no writer of such an object is registered; or as of the writer.
    """
    for cls in type(written).__mro__:
        if cls in _writers:
            _writers[cls](written, path)
            return
    raise ValueError(
        f"`transformers` has no format for a {type(written).__name__}; expected one of "
        f"{', '.join(each.__name__ for each in _writers)}."
    )
