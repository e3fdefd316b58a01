"""Answers: what an export returns for what a task's `predict_outputs` returns."""

import dataclasses
from collections.abc import Callable, Mapping

import tensorflow as tf

from serving.export.signature import Tensors


@dataclasses.dataclass(frozen=True)
class Answers:
    """What an export makes of a task's answers.

    Args:
        outputs: from what the model's `predict_outputs` returns to named outputs `[batch, ...]`.
        explained: for `explain`, from the same, float `[batch, n]`, and int32 `[batch]`, the index
            of the greatest where no word was left out or faded, to the number that words have
            shares in, float32 `[batch]`. None for a task that is not explained.
        of_examples: by the name of a signature of tf.Examples, `classify` or `regress`, from the
            texts and the outputs of `serving_default` to the outputs of that signature.
    """

    outputs: Callable[[tf.Tensor], Tensors]
    explained: Callable[[tf.Tensor, tf.Tensor], tf.Tensor] | None = None
    of_examples: Mapping[str, Callable[[Tensors, Tensors], Tensors]] = dataclasses.field(
        default_factory=dict
    )
