"""A model's predictions on a data set, and their metrics."""

import numpy as np

from gpt1_keras.tasks.base import RawTextTask
from training.datasets.labelled_examples import LabelledExamples
from training.datasets.length_batches import batch_order, count_tokens, make_batches
from training.evaluation.metrics import METRICS

_BATCH_SIZE = 64


def predict(
    model: RawTextTask, examples: LabelledExamples, verbose: str | int = "auto"
) -> np.ndarray:
    """Predicts the label of each example.

    Args:
        model: fine-tuned.
        examples: with the fields that the model takes.
        verbose: as in `keras.Model.predict`.

    Returns:
        array `[examples]`: int indices of classes or choices, or float scores.
    """
    order = batch_order(count_tokens(examples, model.preprocessor), _BATCH_SIZE, seed=0, epoch=0)
    batches = make_batches(examples, order).map(lambda texts, _: texts)
    outputs = model.predict(batches, verbose=verbose)
    if outputs.ndim > 1:
        outputs = outputs.argmax(axis=-1)
    predictions = np.empty_like(outputs)
    predictions[np.concatenate(order)] = outputs
    return predictions


def score(
    examples: LabelledExamples, predictions: np.ndarray, metrics: tuple[str, ...]
) -> dict[str, float]:
    """Computes metrics by name.

    Args:
        examples: all of them labelled.
        predictions: array `[examples]`, from `predict`.
        metrics: keys of `training.evaluation.metrics.METRICS`.
    """
    return {name: float(METRICS[name](examples.labels, predictions)) for name in metrics}
