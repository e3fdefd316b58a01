"""Labels: classes, given as numbers or as names, and scores."""

from gpt1_keras.lazy import tensorflow as tf


def encode_labels(labels, class_names):
    """Turns labels into class numbers.

    Args:
        labels: int `[batch]`, or string `[batch]` of class names.
        class_names: list of str.

    Returns:
        int32 `[batch]`, in [0, classes).

    Raises:
        tf.errors.InvalidArgumentError: a label that is no class.
    """
    labels = tf.convert_to_tensor(labels)
    if labels.dtype == tf.string:
        matches = labels[..., tf.newaxis] == tf.constant(class_names)
        known = tf.reduce_any(matches, axis=-1)
        numbers = tf.argmax(matches, axis=-1, output_type=tf.int32)
    else:
        known = (labels >= 0) & (labels < len(class_names))
        numbers = tf.cast(labels, tf.int32)
    message = f"Labels must be one of {class_names} or its number. Received:"
    check = tf.debugging.Assert(tf.reduce_all(known), [message, tf.boolean_mask(labels, ~known)])
    with tf.control_dependencies([check] if check is not None else []):
        return tf.identity(numbers)


def encode_scores(scores, score_range):
    """Checks scores.

    Args:
        scores: numbers `[batch]`.
        score_range: the least and the greatest score.

    Returns:
        float32 `[batch]`.

    Raises:
        tf.errors.InvalidArgumentError: a score that is out of the range.
    """
    low, high = score_range
    scores = tf.cast(tf.convert_to_tensor(scores), tf.float32)
    known = (scores >= low) & (scores <= high)
    message = f"Scores must be from {low} to {high}. Received:"
    check = tf.debugging.Assert(tf.reduce_all(known), [message, tf.boolean_mask(scores, ~known)])
    with tf.control_dependencies([check] if check is not None else []):
        return tf.identity(scores)
