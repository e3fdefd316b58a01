"""A model's predictions on a data set, and their metrics over all of it."""

import numpy as np

from training.datasets.labelled_examples import batch_order, count_tokens, make_batches
from training.evaluation.metrics import METRICS

_BATCH_SIZE = 64


def predict(model, examples, verbose="auto"):
    """What a fine-tuned model answers.

    Args:
        model: `GPT1TextClassifier`, `GPT1TextSimilarity` or `GPT1MultipleChoice`.
        examples: `training.datasets.labelled_examples.LabelledExamples`.
        verbose: as in `keras.Model.predict`.

    Returns:
        array `[examples]`: int numbers of classes or answers, or float scores.
    """
    order = batch_order(count_tokens(examples, model.preprocessor), _BATCH_SIZE, seed=0, epoch=0)
    batches = make_batches(examples, order).map(lambda texts, _: texts)
    answers = model.predict(batches, verbose=verbose)
    if answers.ndim > 1:
        answers = answers.argmax(axis=-1)
    found = np.empty_like(answers)
    found[np.concatenate(order)] = answers
    return found


def score(examples, answers, metrics):
    """The metrics of answers, a dict of floats.

    Args:
        examples: `training.datasets.labelled_examples.LabelledExamples`, with labels.
        answers: as `predict` gives them.
        metrics: names, keys of `training.evaluation.metrics.METRICS`.
    """
    return {name: float(METRICS[name](examples.labels, answers)) for name in metrics}
