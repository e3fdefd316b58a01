"""Functions that process only those texts of a batch that need it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpt1_keras.lazy import tensorflow as tf


def update_where(
    condition: tf.Tensor, function: Callable[[tf.Tensor], tf.Tensor], texts: tf.Tensor
) -> tf.Tensor:
    """Applies a function to the texts for which a condition holds.

    Args:
        condition: bool `[n]`.
        function: from string `[m]` to string `[m]`; not run if no text needs it.
        texts: string `[n]`.

    Returns:
        string `[n]`.
    """

    def update() -> tf.Tensor:
        indices = tf.where(condition)
        return tf.tensor_scatter_nd_update(texts, indices, function(tf.gather_nd(texts, indices)))

    return call_if(tf.reduce_any(condition), update, lambda: texts)


def call_if(condition: tf.Tensor, function: Callable[[], Any], otherwise: Callable[[], Any]) -> Any:
    """`tf.cond` whose first branch is large and seldom taken.

    TensorFlow visits every op of a branch that is not taken, too. As the body of a function that
    is not inlined, the whole branch is one op.
    """
    if not tf.executing_eagerly():
        function = tf.function(
            function, autograph=False, experimental_attributes={"_noinline": True}
        )
    return tf.cond(condition, function, otherwise)


def repeat(function: Callable[[tf.Tensor], tf.Tensor], texts: tf.Tensor, rounds: int) -> tf.Tensor:
    """Applies a function until it changes nothing, but at most `rounds` times.

    Args:
        function: from string `[n]` to string `[n]`.
        texts: string `[n]`.
        rounds: the bound.

    Returns:
        string `[n]`.
    """

    def apply(texts: tf.Tensor, changes: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        changed = function(texts)
        return changed, tf.reduce_any(changed != texts)

    return tf.while_loop(
        lambda texts, changes: changes,
        apply,
        (texts, tf.size(texts) > 0),
        maximum_iterations=rounds,
    )[0]


def is_ascii(texts: tf.Tensor) -> tf.Tensor:
    """Whether each text is ASCII: string `[n]` to bool `[n]`."""
    return tf.strings.regex_full_match(texts, r"[\x00-\x7f]*")
