"""Work on those texts of a batch that need it."""

from gpt1_keras.lazy import tensorflow as tf


def update_where(condition, function, texts):
    """Applies a function to the texts that a condition holds for.

    Args:
        condition: bool `[n]`.
        function: from string `[m]` to string `[m]`; not run where it would get no text.
        texts: string `[n]`.

    Returns:
        string `[n]`.
    """
    places = tf.where(condition)
    return tf.cond(
        tf.size(places) > 0,
        lambda: tf.tensor_scatter_nd_update(texts, places, function(tf.gather_nd(texts, places))),
        lambda: texts,
    )


def repeat(function, texts, rounds):
    """Applies a function until it changes nothing, but not more often than `rounds`.

    Args:
        function: from string `[n]` to string `[n]`.
        texts: string `[n]`.
        rounds: int.

    Returns:
        string `[n]`.
    """

    def apply(texts, changes):
        changed = function(texts)
        return changed, tf.reduce_any(changed != texts)

    return tf.while_loop(
        lambda texts, changes: changes,
        apply,
        (texts, tf.size(texts) > 0),
        maximum_iterations=rounds,
    )[0]


def is_ascii(texts):
    """Whether each text is ASCII: string `[n]` to bool `[n]`."""
    return tf.strings.regex_full_match(texts, r"[\x00-\x7f]*")
