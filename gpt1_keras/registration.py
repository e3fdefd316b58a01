"""Puts our classes into the registries of Keras and KerasHub as soon as Keras is imported.

`import gpt1_keras` does not import Keras, so that programs answer `--help` at once. But
`keras.saving.load_model` and KerasHub's `from_preset` find a class only if its module has been
imported. So all our classes are imported once both Keras and this package are, in either order.
"""

import functools
import importlib
import importlib.machinery
import sys
import threading
import types
from collections.abc import Callable, Sequence

_KERAS, _PACKAGE = "keras", __package__
_KERAS_HUB = ("keras_hub", "keras_nlp")  # two names of one package


def register_with_keras() -> None:
    """Imports all that this package names: now if Keras is imported, otherwise once it is."""
    if _KERAS in sys.modules:
        _import_all()
    else:
        sys.meta_path.insert(0, _Watcher())


def _import_all() -> None:
    for package in (_PACKAGE, f"{_PACKAGE}.presets"):
        module = importlib.import_module(package)
        for name in dir(module):
            getattr(module, name)


class _Watcher:
    """A module finder that watches the imports of Keras, of KerasHub and of our own modules.

    If KerasHub or one of our modules imports Keras, it is still unfinished once Keras is imported,
    and our classes could not import from it. So they are imported when the outermost of these
    imports ends, in the last of the threads that have one.
    """

    def __init__(self) -> None:
        self._depth = 0
        self._lock = threading.Lock()

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name not in (_KERAS, *_KERAS_HUB) and not name.startswith(f"{_PACKAGE}."):
            return None
        for finder in sys.meta_path:
            if finder is not self and (spec := finder.find_spec(name, path, target)):
                if spec.loader is not None:
                    execute = functools.partial(self._execute, spec.loader.exec_module)
                    setattr(spec.loader, "exec_module", execute)  # noqa: B010, mypy sees a method
                return spec
        return None

    def _execute(
        self, execute: Callable[[types.ModuleType], None], module: types.ModuleType
    ) -> None:
        with self._lock:
            self._depth += 1
        try:
            execute(module)
        finally:
            with self._lock:
                self._depth -= 1
        with self._lock:
            is_last = self._depth == 0 and _KERAS in sys.modules and self in sys.meta_path
            if is_last:
                sys.meta_path.remove(self)
        if is_last:
            # The module is whole. Other threads must not wait for it until this function returns:
            # they may be importing what this thread then waits for.
            setattr(module.__spec__, "_initializing", False)  # noqa: B010, typeshed lacks it
            _import_all()
