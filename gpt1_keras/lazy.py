"""TensorFlow, imported when it is first used.

The decoder, its objective and its optimizer run on any Keras backend. So that they can be imported
where there is no TensorFlow, the modules for text import it from here.
"""

import importlib


class _LazyModule:
    def __init__(self, name):
        self._name = name

    def __getattr__(self, attribute):
        return getattr(importlib.import_module(self._name), attribute)


tensorflow = _LazyModule("tensorflow")
