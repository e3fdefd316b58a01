"""Branches, loops and calls in a graph.

Branches and loops process only those texts of a batch that need it. Exports make calls, too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpt1_keras.lazy import tensorflow as tf
from gpt1_keras.tokenization.aligned_texts import Texts, put, strings_of, take


def update_where(condition: tf.Tensor, function: Callable[[Texts], Texts], texts: Texts) -> Texts:
    """Applies a function to the texts, `[n]`, for which a condition, bool `[n]`, holds.

    The function takes and returns texts `[m]`. It does not run if no text needs it.
    """

    def update() -> Texts:
        indices = tf.where(condition)
        return put(texts, indices, function(take(texts, indices)))

    return call_if(tf.reduce_any(condition), update, lambda: texts)


def call_if(condition: tf.Tensor, function: Callable[[], Any], otherwise: Callable[[], Any]) -> Any:
    """`tf.cond` whose first branch is large and seldom taken."""
    return tf.cond(condition, not_inlined(function), otherwise)


def not_inlined(function: Callable[..., Any]) -> Callable[..., Any]:
    """Makes a function that is one op of the graphs that call it. Eagerly, it is as before.

    TensorFlow also visits every op of a branch that it does not take, unless the branch is one op.
    """
    return traced_once(function, _noinline=True)


def traced_once(function: Callable[..., Any], **attributes: bool) -> Callable[..., Any]:
    """Makes a function that graphs hold once for all calls. Eagerly, it is as before."""
    compiled = tf.function(function, autograph=False, experimental_attributes=attributes or None)

    def call(*args: Any, **kwargs: Any) -> Any:
        return (function if tf.executing_eagerly() else compiled)(*args, **kwargs)

    return call


def repeat(function: Callable[[Texts], Texts], texts: Texts, rounds: int) -> Texts:
    """Applies a function of texts, `[n]`, until it changes nothing, but at most `rounds` times."""

    def apply(texts: Texts, changes: tf.Tensor) -> tuple[Texts, tf.Tensor]:
        changed = function(texts)
        return changed, tf.reduce_any(strings_of(changed) != strings_of(texts))

    return tf.while_loop(
        lambda texts, changes: changes,
        apply,
        (texts, tf.size(strings_of(texts)) > 0),
        shape_invariants=(loop_shapes(texts), tf.TensorShape([])),
        maximum_iterations=rounds,
    )[0]


def loop_shapes(texts: Texts) -> Any:
    """Returns the shape invariants of texts that a loop changes."""
    return tf.nest.map_structure(lambda _: tf.TensorShape([None]), texts)
