"""Runs a module or a script on Keras's JAX backend, as on a machine without TensorFlow.

python tests/helpers/without_tensorflow.py training.pretrain --corpus DIR ...
python tests/helpers/without_tensorflow.py pytest -q FILE
"""

import importlib.machinery
import os
import pathlib
import runpy
import sys


class _PathFinder(importlib.machinery.PathFinder):
    """Finds every installed module except TensorFlow."""

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name.startswith("tensorflow"):
            return None
        return super().find_spec(name, path, target)


if __name__ == "__main__":
    os.environ["KERAS_BACKEND"] = "jax"
    os.environ["JAX_PLATFORMS"] = "cpu"
    finder = sys.meta_path.index(importlib.machinery.PathFinder)
    sys.meta_path[finder] = _PathFinder
    sys.path[0] = str(pathlib.Path(__file__).parents[2])
    sys.argv = sys.argv[1:]
    if sys.argv[0].endswith(".py"):
        runpy.run_path(sys.argv[0], run_name="__main__")
    else:
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    assert not any(name.startswith("tensorflow") for name in sys.modules)
