"""Examples' texts as tensors, for signatures that take texts."""

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf


def as_tensors(
    examples: Sequence[Mapping[str, Any]], fields: Sequence[str]
) -> dict[str, tf.Tensor]:
    """Returns examples' texts as tensors of strings by field; empty strings pad short lists.

    Raises:
        ValueError: examples lack a field.
    """
    missing = [field for field in fields if any(field not in example for example in examples)]
    if missing:
        raise ValueError(f"Expected examples of {fields}. Some have no {missing}.")
    columns = {field: [example[field] for example in examples] for field in fields}
    return {
        field: tf.ragged.constant(column, tf.string).to_tensor("")
        if isinstance(column[0], list)
        else tf.constant(column, tf.string)
        for field, column in columns.items()
    }
