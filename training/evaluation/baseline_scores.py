"""Scores beside the trivial baselines, which say what a model's own score is worth."""

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from training.datasets.labelled_examples import LabelledExamples
from training.datasets.user_files import Dataset
from training.evaluation.dataset_metrics import score
from training.evaluation.trivial_baselines import baselines_of

# A baseline learns from a sample of larger data, so that it takes seconds: a linear model's time
# grows with the words and with the classes.
_MOST_CHARACTERS = 40_000_000
_FEW_CLASSES = 2
_ADVICE = (
    "Try more --epochs, another --learning-rate, more labelled texts, or larger weights, as "
    "--preset hf://openai-community/openai-gpt."
)


def score_baselines(
    dataset: Dataset, train: LabelledExamples, examples: LabelledExamples, seed: int = 0
) -> dict[str, Any]:
    """Scores the baselines of a data set, in seconds.

    Args:
        train: what the baselines learn from, all labelled.
        seed: of the sample of `train` that they learn from, where it is large.

    Returns:
        `metric`, the data set's first; `scores`, by the baselines' names; and `train_examples`, how
        many they learned from.
    """
    train = train.sample(_most_examples(train), seed)
    metric = dataset.metrics[0]
    scores = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a nearly best model serves as well
        for name, predict in baselines_of(dataset).items():
            answers = predict(dataset, train, examples)
            scores[name] = score(examples, answers, (metric,))[metric]
    return {"metric": metric, "scores": scores, "train_examples": len(train)}


def describe_beside(value: float, baselines: Mapping[str, Any]) -> str:
    """Puts a model's score beside those of the baselines.

    Returns:
        A line for the model and one for each baseline, the best first. If the model does not beat
        them, lines that say so and what to try come before.
    """
    metric, scores = baselines["metric"], baselines["scores"]
    ranked = sorted(scores.items(), key=lambda item: item[1], reverse=True)
    best, best_score = ranked[0]
    lines = []
    if value <= best_score:
        lines += [
            f"The model does not beat a simple baseline: {metric} {value:.4f}, and {best} has "
            f"{best_score:.4f}.",
            _ADVICE,
        ]
    width = max(map(len, scores))
    shown = [("this model", value), *ranked]
    lines += [f"{metric}  {name:<{width}}  {found:.4f}" for name, found in shown]
    return "\n".join(lines)


def _most_examples(train: LabelledExamples) -> int:
    """Returns how many of the examples a baseline may learn from."""
    characters = sum(_length(text) for column in train.texts.values() for text in column)
    classes = max(_FEW_CLASSES, len(train.class_names or ()))
    most = _MOST_CHARACTERS * _FEW_CLASSES // classes
    return max(1, len(train) * most // max(most, characters))


def _length(text: bytes | np.ndarray) -> int:
    return len(text) if isinstance(text, bytes) else sum(map(len, text))
