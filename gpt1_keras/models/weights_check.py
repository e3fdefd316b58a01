"""Checks a file of weights before Keras reads it.

Keras reads the arrays that a model has, whatever else the file holds. So a configuration of fewer
layers than its weights would make another model without a word.
"""

import math
from collections.abc import Iterator
from typing import Any

import h5py
import keras
import numpy as np

from gpt1_keras.upstream import (
    Saveable,
    check_dataset,
    to_snake_case,
    unique_name,
    walk_saveable,
    weights_files,
)

_VARIABLES = "vars"  # the group in which Keras stores a layer's arrays


def check_stored_weights(model: keras.Model, store: Any) -> None:
    """Checks what a file holds for the layers of a model, in its `load_own_variables`.

    Raises:
        ValueError: the file holds arrays that no layer reads, that are larger than any of the
            model's, or with values that are not finite numbers.
    """
    groups = set()
    for layer in _saved_layers(model):
        parts = [*layer.split("/"), _VARIABLES]
        groups |= {"/".join(parts[: end + 1]) for end in range(len(parts))}
    largest = max(math.prod(variable.shape) for variable in model.variables)
    for file in weights_files(store):
        for group, name in _names(file, groups):
            path = f"{group}/{name}"
            if group.endswith(f"/{_VARIABLES}"):
                # Keras compares the number of arrays and their shapes.
                _check_array(path, check_dataset(file, path), largest)
            elif path not in groups and not _is_empty(file[path]):
                raise ValueError(f"It holds {path}, which no layer of this model reads.")


def _saved_layers(model: keras.Model) -> set[str]:
    """Returns where Keras stores the layers of a functional model in a file of weights."""
    paths: set[str] = set()
    visited: set[int] = set()

    def visit(path: str, value: Any) -> None:
        if id(value) in visited:
            return
        visited.add(id(value))
        if isinstance(value, Saveable):
            paths.add(path)
            for name, child in walk_saveable(value):
                visit(f"{path}/{name}", child)
        elif isinstance(value, (list, tuple, dict)):
            used: dict[str, int] = {}
            for child in value.values() if isinstance(value, dict) else value:
                if isinstance(child, (Saveable, list, tuple, dict)):
                    is_layer = isinstance(child, Saveable)
                    name = to_snake_case(type(child).__name__) if is_layer else "container"
                    visit(f"{path}/{unique_name(name, used)}", child)

    visit("layers", model.layers)
    return paths


def _names(file: h5py.File, groups: set[str]) -> Iterator[tuple[str, str]]:
    """Yields some groups of a file, each with the name of each of its members.

    Not by h5py's `visit`, which ends the process where groups are nested 30,000 deep.
    """
    for group in sorted(groups):
        # Keras follows no links, and refuses them.
        if file.get(group, getclass=True) is h5py.Group:
            yield from ((group, name) for name in file[group])


def _is_empty(item: h5py.Group | h5py.Dataset) -> bool:
    """Returns whether this is the group of a layer without weights."""
    return isinstance(item, h5py.Group) and not [
        name for name in item if name != _VARIABLES or len(item[name])
    ]


def _check_array(name: str, array: h5py.Dataset, largest: int) -> None:
    """Raises ValueError for an array of more than `largest` values, or with one not finite."""
    if array.size > largest:
        raise ValueError(
            f"Its {name} has shape {array.shape}, which is more than the {largest:,} weights of "
            "the model's largest array."
        )
    # HDF5 does not know bfloat16, so Keras stores its bytes.
    dtype = array.attrs.get("dtype") if array.dtype.kind == "V" else None
    check_finite(f"Its {name}", np.array(array, dtype))


def check_finite(what: str, array: np.ndarray) -> None:
    """Raises ValueError if an array of weights does not hold finite numbers alone."""
    try:
        count = np.count_nonzero(~np.isfinite(array))
    except TypeError:
        raise ValueError(f"{what} must hold numbers. Received: dtype {array.dtype}.") from None
    if count:
        raise ValueError(
            f"{what} has {count:,} weights of {array.size:,} that are NaN or infinite. The model "
            "has diverged, or the file is damaged."
        )
