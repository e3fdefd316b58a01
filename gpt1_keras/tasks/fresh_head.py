"""Fitting a fresh head before the weights below it."""

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from gpt1_keras.tasks.batches import Batches
from gpt1_keras.tasks.label_heads import LabelHead

_RATE, _UPDATES, _BATCH_SIZE = 0.01, 200, 32


def reads_one_state(task: Any) -> bool:
    """Returns whether the head reads one hidden state of each example: no choices, no windows."""
    return isinstance(task.task_head, LabelHead) and task.windows == 1


def fit_head(task: Any, batches: Batches, class_weight: Mapping[int, float] | None) -> None:
    """Trains the head by Adam for 200 updates, on hidden states that are computed once.

    Args:
        batches: of examples with labels, each in it once.
        class_weight: by the classes' numbers.
    """
    states_of = keras.Model(task.input, task.extract_dropout.input)
    found = []
    for batch in batches.x:
        x, *others = keras.utils.unpack_x_y_sample_weight(batch)
        found.append((states_of(x, training=False), *others))
    states, labels, weights = map(_joined, zip(*found))
    if labels is None:
        raise ValueError("`fit_head` needs a label for each example. Received: none.")
    inputs = keras.Input(states.shape[1:])
    is_tensorflow = keras.backend.backend() == "tensorflow"
    with task.distribute_strategy.scope() if is_tensorflow else contextlib.nullcontext():
        head = keras.Model(inputs, task.task_head(inputs))
        rate = keras.optimizers.schedules.PolynomialDecay(_RATE, _UPDATES, 0.0)
        head.compile(keras.optimizers.Adam(rate), loss=task.loss)
    # In one epoch of Keras's: hundreds of short ones would take longer than the updates.
    random, count = np.random.default_rng(0), _UPDATES * _BATCH_SIZE
    passes = [random.permutation(len(states)) for _ in range(-(-count // len(states)))]
    order = np.concatenate(passes)[:count]
    head.fit(
        *(states[order], labels[order]),
        batch_size=_BATCH_SIZE,
        shuffle=False,
        sample_weight=None if weights is None else weights[order],
        class_weight=class_weight,
        verbose=0,
    )


def _joined(parts: Sequence[Any]) -> Any:
    """Returns the tensors of all batches as one array; None if there are none."""
    if parts[0] is None:
        return None
    return np.concatenate([ops.convert_to_numpy(part) for part in parts])
