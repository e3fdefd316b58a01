"""Simple baselines: the majority, tf-idf and words in common, and their scores."""

import itertools
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import scipy.sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge

from gpt1_keras.examples import Examples
from training.datasets.paper_datasets import MULTIPLE_CHOICE
from training.datasets.user_files import Dataset
from training.evaluation.metrics import score

MAJORITY, TFIDF, OVERLAP = "majority", "tf-idf + logistic regression", "word overlap"
_MOST_ITERATIONS = 1000  # of logistic regression

_WORD = r"\w+"  # scikit-learn's default leaves out words of one character
_words = TfidfVectorizer(token_pattern=_WORD).build_analyzer()  # lower-cased

# A baseline learns from a sample of larger data, so that it takes seconds: a linear model's time
# grows with the words and with the classes.
_MOST_CHARACTERS = 40_000_000
_FEW_CLASSES = 2
_ADVICE = (
    "Try more --epochs, another --learning-rate, more labelled texts, or larger weights, as "
    "--preset hf://openai-community/openai-gpt."
)


def baselines_of(dataset: Dataset) -> dict[str, Callable[..., np.ndarray]]:
    """Returns the baselines of a data set by name; `OVERLAP` only where there are several texts.

    Each takes `(dataset, train, examples)`, a `Dataset` and two `Examples`, and returns
    predictions as `training.evaluation.predictions.predictions_of` does.

    - `MAJORITY`: the most frequent label; for scores, their mean.
    - `TFIDF`: logistic regression (for scores, ridge regression) on the tf-idf of each text's
      words. For choices, it predicts whether a choice is right from the choice alone: context and
      question are the same for all choices, so they tell a linear model nothing.
    - `OVERLAP`: the share of the two texts' words that both have (Jaccard). For classes, logistic
      regression on that share; for scores, the share scaled to their range, untrained; for choices,
      the choice that overlaps most with context and question.
    """
    found: dict[str, Callable[..., np.ndarray]] = {MAJORITY: _majority, TFIDF: _tfidf}
    return found | {OVERLAP: _overlap} if len(dataset.fields) > 1 else found


def _majority(dataset: Dataset, train: Examples, examples: Examples) -> np.ndarray:
    labels = train.labels
    label = labels.mean() if dataset.score_range is not None else np.bincount(labels).argmax()
    return np.full(len(examples), label)


def _tfidf(dataset: Dataset, train: Examples, examples: Examples) -> np.ndarray:
    vectorizer = TfidfVectorizer(token_pattern=_WORD, dtype=np.float32)
    if dataset.kind == MULTIPLE_CHOICE:
        choices, is_right = flat_choices(train)
        if not _can_learn(choices, is_right):
            return np.zeros(len(examples), np.int32)
        model = _logistic_regression().fit(vectorizer.fit_transform(choices), is_right)
        probabilities = model.predict_proba(vectorizer.transform(flat_choices(examples)[0]))[:, 1]
        return best_choices(examples, probabilities)
    texts = [_strings(column) for column in train.texts.values()]
    if not _can_learn(itertools.chain(*texts), train.labels):
        return _majority(dataset, train, examples)
    vectorizer.fit(text for column in texts for text in column)

    def features(columns: list[list[str]]) -> scipy.sparse.csr_matrix:
        return scipy.sparse.hstack([vectorizer.transform(column) for column in columns]).tocsr()

    model = _logistic_regression() if dataset.score_range is None else Ridge()
    model.fit(features(texts), train.labels)
    return model.predict(features([_strings(column) for column in examples.texts.values()]))


def _overlap(dataset: Dataset, train: Examples, examples: Examples) -> np.ndarray:
    if dataset.kind == MULTIPLE_CHOICE:
        return best_choices(examples, np.array(list(_choice_overlaps(examples))))
    found = _pair_overlaps(examples)
    if dataset.score_range is not None:
        low, high = dataset.score_range
        return low + (high - low) * found
    if np.all(train.labels == train.labels[0]):
        return _majority(dataset, train, examples)
    model = _logistic_regression().fit(_pair_overlaps(train)[:, None], train.labels)
    return model.predict(found[:, None])


def _can_learn(texts: Iterable[str], labels: np.ndarray) -> bool:
    """Returns whether there are words, and labels that differ: scikit-learn needs both."""
    return not np.all(labels == labels[0]) and any(map(_words, texts))


def _pair_overlaps(examples: Examples) -> np.ndarray:
    """Returns float `[examples]`."""
    return np.array([_jaccard(*pair) for pair in zip(*map(_strings, examples.texts.values()))])


def _choice_overlaps(examples: Examples) -> Iterator[float]:
    """Yields the overlap of every choice with the other texts of its example."""
    shared = [_strings(column) for name, column in examples.texts.items() if name != "choices"]
    for choices, *others in zip(examples.texts["choices"], *shared):
        for choice in _strings(choices):
            yield _jaccard(" ".join(others), choice)


def _jaccard(one: str, other: str) -> float:
    words, others = set(_words(one)), set(_words(other))
    return len(words & others) / max(1, len(words | others))


def flat_choices(examples: Examples) -> tuple[list[str], np.ndarray]:
    """Returns all choices of all examples, and whether each is the right one."""
    pairs = list(zip(examples.texts["choices"], examples.labels))
    texts = [text for choices, _ in pairs for text in _strings(choices)]
    return texts, np.concatenate([np.arange(len(choices)) == label for choices, label in pairs])


def best_choices(examples: Examples, scores: np.ndarray) -> np.ndarray:
    """Returns the index of each example's choice with the highest score, int `[examples]`."""
    ends = np.cumsum([len(choices) for choices in examples.texts["choices"]])
    return np.array([part.argmax() for part in np.split(scores, ends[:-1])])


def _logistic_regression() -> LogisticRegression:
    return LogisticRegression(max_iter=_MOST_ITERATIONS)


def _strings(column: np.ndarray) -> list[str]:
    return [text.decode("utf-8", "replace") for text in column]


def score_baselines(
    dataset: Dataset, train: Examples, examples: Examples, seed: int = 0
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


def _most_examples(train: Examples) -> int:
    """Returns how many of the examples a baseline may learn from."""
    characters = sum(_length(text) for column in train.texts.values() for text in column)
    classes = max(_FEW_CLASSES, len(train.class_names or ()))
    most = _MOST_CHARACTERS * _FEW_CLASSES // classes
    return max(1, len(train) * most // max(most, characters))


def _length(text: bytes | np.ndarray) -> int:
    return len(text) if isinstance(text, bytes) else sum(map(len, text))
