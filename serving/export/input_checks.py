"""What must hold for the inputs of a signature, checked in its graph."""

from collections.abc import Mapping
from typing import Any, TypeAlias

import tensorflow as tf

# What must hold, bool of any shape; what is expected, in words; and what was received.
Condition: TypeAlias = tuple[tf.Tensor, str, tf.Tensor]


def asserted(tensors: Mapping[str, Any], *conditions: Condition) -> dict[str, Any]:
    """Returns tensors that are only computed with where all conditions hold."""
    assertions = [
        tf.debugging.Assert(tf.reduce_all(condition), [f"{expected} Received:", received])
        for condition, expected, received in conditions
    ]
    with tf.control_dependencies(assertions):
        return {name: tf.identity(tensor) for name, tensor in tensors.items()}


def in_range(name: str, numbers: tf.Tensor, size: int) -> Condition:
    """The condition that numbers are indices of `size` elements.

    Lookups count negative ones from the end, and those on a GPU take any.
    """
    valid = (numbers >= 0) & (numbers < size)
    return valid, f"Expected {name} from 0 to {size - 1}.", tf.boolean_mask(numbers, ~valid)


def at_most(what: str, numbers: tf.Tensor, most: int) -> Condition:
    """The condition that numbers are at most `most`."""
    return numbers <= most, f"Expected at most {most} {what}.", tf.reduce_max(numbers)


def same_shapes(first: tf.Tensor, *others: tf.Tensor) -> tf.Tensor:
    """Returns whether tensors of one rank have one shape, as a bool tensor."""
    return tf.reduce_all([tf.reduce_all(tf.shape(first) == tf.shape(each)) for each in others])
