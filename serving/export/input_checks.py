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


def attention_cost(tokens: tf.Tensor, sequence_length: int) -> tf.Tensor:
    """Returns what it costs to read examples, in tokens of ordinary sequences, int64.

    Attention's cost grows with the square of the length, so the tokens of an example that is
    longer than a sequence count more than once.

    Args:
        tokens: int32 or int64, each example's number of tokens.
        sequence_length: the most tokens of a sequence.
    """
    tokens = tf.cast(tokens, tf.int64)
    return tokens * tf.maximum(tokens, sequence_length) // sequence_length


def same_shapes(first: tf.Tensor, *others: tf.Tensor) -> tf.Tensor:
    """Returns whether tensors of one rank have one shape, as a bool tensor."""
    return tf.reduce_all([tf.reduce_all(tf.shape(first) == tf.shape(each)) for each in others])
