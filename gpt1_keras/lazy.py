"""TensorFlow, imported when it is first used.

The backbones, their objective and their optimizer run on any Keras backend. Modules that they share
a package with, but that need TensorFlow, import it from here, so that `gpt1_keras` can be imported
where TensorFlow is not installed. `importlib.util.LazyLoader` cannot do that: it looks for the
module at once, and puts it into `sys.modules`, where other libraries look whether it is in use.

An annotation such as `tf.Tensor` uses it too, unless the module has
`from __future__ import annotations`.
"""

import importlib
from typing import TYPE_CHECKING, Any


class _LazyModule:
    """A module that is imported when one of its attributes is first read."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(importlib.import_module(self._name), attribute)


if TYPE_CHECKING:
    import tensorflow as tensorflow
else:
    tensorflow = _LazyModule("tensorflow")
