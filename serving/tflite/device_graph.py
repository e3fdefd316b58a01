"""What the graphs of all tasks share on a device."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import tensorflow as tf

from gpt1_keras.tasks.base import RawTextTask

INT = tf.int32  # and float32: the types that LiteRT's Kotlin and JavaScript have in common

Tensors: TypeAlias = dict[str, tf.Tensor]
Specs: TypeAlias = Mapping[str, tf.TensorSpec]


class DeviceGraph(tf.Module):
    """The signatures of a .tflite file, as functions of named tensors of fixed shapes.

    Args:
        model: a task with a preprocessor.
        num_choices: the most choices of an example, if the task has choices.

    Raises:
        ValueError: a number of choices for a task without choices, or none for one with choices.
    """

    has_choices = False

    def __init__(self, model: RawTextTask, num_choices: int | None) -> None:
        super().__init__()
        name = type(model).__name__
        if self.has_choices and (num_choices is None or num_choices < 1):
            raise ValueError(
                f"A {name} needs num_choices, at least 1. Received: num_choices={num_choices}."
            )
        if num_choices is not None and not self.has_choices:
            raise ValueError(f"A {name} has no choices. Received: num_choices={num_choices}.")

    def signatures(self) -> dict[str, tuple[Callable[..., Tensors], Specs]]:
        """Returns the functions by name, each with the specs of its inputs by name."""
        raise NotImplementedError

    def metadata(self) -> dict[str, Any]:
        """Returns what the file says about itself beyond what every file does."""
        return {"vocabulary": None}


def fills(texts: Sequence[tf.Tensor]) -> tf.Tensor:
    """Returns whether a text, int32 `[max_bytes]` each, fills its input: bool scalar.

    Such a text has no zero after it, and may have been longer.
    """
    return tf.reduce_any(tf.stack([text[-1] for text in texts]) != 0)


def flag(condition: tf.Tensor) -> tf.Tensor:
    """Returns a bool scalar as int32 `[1]`."""
    return tf.cast(condition, INT)[tf.newaxis]
