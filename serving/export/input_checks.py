"""Checks the inputs of a signature in its graph."""

from collections.abc import Mapping
from typing import Any, TypeAlias

import tensorflow as tf

# The condition, bool of any shape; a sentence that says what is expected; and what was received.
Condition: TypeAlias = tuple[tf.Tensor, str, tf.Tensor]


def asserted(tensors: Mapping[str, Any], *conditions: Condition) -> dict[str, Any]:
    """Returns the tensors; their graph fails unless all conditions hold."""
    assertions = [
        tf.debugging.Assert(tf.reduce_all(condition), [f"{expected} Received:", received])
        for condition, expected, received in conditions
    ]
    with tf.control_dependencies(assertions):
        return {name: tf.identity(tensor) for name, tensor in tensors.items()}


def in_range(name: str, numbers: tf.Tensor, size: int) -> Condition:
    """Returns the condition that numbers are indices of `size` elements.

    Without it, look-ups would count negative indices from the end, and on a GPU would take any
    index.
    """
    valid = (numbers >= 0) & (numbers < size)
    return valid, f"Expected {name} from 0 to {size - 1}.", tf.boolean_mask(numbers, ~valid)


def at_most(what: str, numbers: tf.Tensor, most: int) -> Condition:
    """Returns the condition that numbers are at most `most`."""
    return numbers <= most, f"Expected at most {most} {what}.", tf.reduce_max(numbers)


def same_shapes(first: tf.Tensor, *others: tf.Tensor) -> tf.Tensor:
    """Returns whether tensors of one rank have one shape, as a bool tensor."""
    return tf.reduce_all([tf.reduce_all(tf.shape(first) == tf.shape(each)) for each in others])
