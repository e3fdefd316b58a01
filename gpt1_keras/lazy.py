"""TensorFlow, imported when it is first used.

The backbones, their objective and their optimizer run on any Keras backend. So that they can be
imported where there is no TensorFlow, the modules for text import it from here. Such modules begin
with `from __future__ import annotations`, as their signatures name TensorFlow's types.
"""

import importlib
from typing import TYPE_CHECKING, Any


class _LazyModule:
    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(importlib.import_module(self._name), attribute)


if TYPE_CHECKING:
    import tensorflow
else:
    tensorflow = _LazyModule("tensorflow")
