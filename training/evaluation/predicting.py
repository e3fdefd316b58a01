"""A model's predictions on a data set."""

import sys

import numpy as np

from gpt1_keras.tasks.task import Task
from training.datasets.labelled_examples import LabelledExamples
from training.datasets.length_batches import batch_order, count_tokens, make_batches

_BATCH_SIZE = 64


class DivergedError(ValueError):
    """A model's outputs are not numbers."""


def prediction_order(model: Task, examples: LabelledExamples) -> list[np.ndarray]:
    """Returns the batches in which `predict_outputs` reads the examples: arrays of indices."""
    return batch_order(count_tokens(examples, model.preprocessor), _BATCH_SIZE, seed=0, epoch=0)


def answers_of(outputs: np.ndarray) -> np.ndarray:
    """Turns a model's outputs into labels.

    Args:
        outputs: from `predict_outputs`.

    Returns:
        array `[examples]`: int indices of classes or choices, or float scores.
    """
    return outputs.argmax(axis=-1) if outputs.ndim > 1 else outputs


def predict_outputs(
    model: Task, examples: LabelledExamples, order: list[np.ndarray] | None = None
) -> np.ndarray:
    """Predicts each example.

    Args:
        order: from `prediction_order`; by default it is found.

    Returns:
        float array `[examples, classes or choices]`, or scores `[examples]`.

    Raises:
        DivergedError: an output is not a number.
    """
    order = prediction_order(model, examples) if order is None else order
    batches = make_batches(examples, order).map(lambda texts, _: texts)
    outputs = model.predict(batches, verbose=int(sys.stdout.isatty()))
    if np.isnan(outputs).any():
        raise DivergedError(
            "The model's outputs are not numbers (NaN): its training has diverged. Try a lower "
            "learning rate."
        )
    in_order = np.empty_like(outputs)
    in_order[np.concatenate(order)] = outputs
    return in_order
