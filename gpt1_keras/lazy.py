"""TensorFlow, imported when it is first used.

The backbones, their objective and their optimizer run on any Keras backend. Modules that need
TensorFlow import it from here, so that `gpt1_keras` can be imported where it is not installed. They
begin with `from __future__ import annotations`, as their signatures name TensorFlow's types.
`importlib.util.LazyLoader` does not serve: it searches for the module at once, and puts it into
`sys.modules`, where other libraries look to see whether it is in use.
"""

import functools
import importlib
import importlib.util
from typing import TYPE_CHECKING, Any


class _LazyModule:
    """A module that is imported when one of its attributes is first read."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        try:
            module = importlib.import_module(self._name)
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(
                "TensorFlow is not installed, and this needs it. On JAX without it, tasks predict "
                "and generate from strings, and train on ids.",
                name=error.name,
            ) from error
        return getattr(module, attribute)


if TYPE_CHECKING:
    import tensorflow
else:
    tensorflow = _LazyModule("tensorflow")


@functools.cache
def has_tensorflow() -> bool:
    """Returns whether TensorFlow is installed."""
    return importlib.util.find_spec("tensorflow") is not None
