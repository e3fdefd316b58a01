"""Serialized tf.Examples of texts."""

import tensorflow as tf


def serialized_example(**texts):
    """A tf.Example with a text or a list of texts for each feature, str or bytes."""
    example = tf.train.Example()
    for name, value in texts.items():
        values = value if isinstance(value, list) else [value]
        values = [each.encode() if isinstance(each, str) else each for each in values]
        example.features.feature[name].bytes_list.value.extend(values)
    return example.SerializeToString()


def serialized_examples(**columns):
    """A tf.Example for each row of named columns of equal lengths."""
    rows = (dict(zip(columns, row)) for row in zip(*columns.values(), strict=True))
    return [serialized_example(**row) for row in rows]
