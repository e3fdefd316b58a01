"""The loss of a batch as a pure function of variables' values."""

from collections.abc import Callable
from typing import Any

import keras
from keras import tree

from gpt1_keras.types import Tensor


def stateless_loss(
    task: Any,
    trainable: list[Tensor],
    non_trainable: list[Tensor],
    data: tuple[Any, Any, Any],
    training: bool = True,
) -> tuple[Tensor, Any, list[Tensor]]:
    """Computes a task's `forward_loss` of `(x, y, sample_weight)` at given values of its variables.

    Returns `(loss, outputs, new values of the non-trainable variables)`.
    """
    variables = [*task.trainable_variables, *task.non_trainable_variables]
    mapping = zip(variables, [*trainable, *non_trainable])
    with keras.StatelessScope(mapping, collect_losses=True) as scope:
        outputs, loss = task.forward_loss(*data, training)
    state = [scope.get_current_value(v) for v in task.non_trainable_variables]
    return loss, outputs, state


def map_tensors(function: Callable[[Tensor], Tensor], data: Any) -> Any:
    """Applies a function to each tensor of `(x, y, sample_weight)`; None stays None."""
    return tree.map_structure(lambda t: None if t is None else function(t), data)
