"""Examples: texts, labels and weights from any source, in the form that all rooms take."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from typing import Any, Self

import numpy as np

from gpt1_keras.files import write_text
from gpt1_keras.labelled_files.rows import LABEL

_DIGEST_BYTES = 8


@dataclasses.dataclass(frozen=True)
class Examples:
    """Texts, with their labels, weights and lines where these are known.

    Each edge makes them, and checks there once what it takes: `Task.read_examples` of lists,
    tables and tensors; `training.datasets` of users' files and TensorFlow Datasets;
    `serving.prediction` of tables to answer. `Task.fit`, `evaluate`, `predict` and
    `gpt1_keras.answers.answer` take them.

    Attributes:
        texts: dict from field to a sequence `[examples]` of str or bytes; for choices, of lists or
            arrays of them. `Task.read_examples` makes string tensors of them: a dict, or one tensor
            of a language model; without a preprocessor of ours, what the user gave.
        labels: array `[examples]`: int32 indices of classes or choices, or -1 for none; or float32
            scores, or NaN for none. None if no example has one.
        indices: int array `[examples]`, where each stands in its source: its line in a file that is
            answered, GLUE's `idx`, or its index; None for the last.
        class_names: in the order of their indices; None where labels are not indices of classes.
        weights: of the examples, or None.
        source: the path of their file; otherwise empty.
        batches: for each batch that a task reads them in, an int array of positions; None for
            batches of equal size.
        is_one: whether one example was given, without a batch dimension.
    """

    texts: Any
    labels: Any = None
    indices: Any = None
    class_names: Sequence[str] | None = None
    weights: Any = None
    source: str = ""
    batches: Sequence[np.ndarray] | None = None
    is_one: bool = False

    def __len__(self) -> int:
        """Returns the number of examples."""
        texts = self.texts
        while isinstance(texts, (dict, tuple)):
            texts = next(iter(texts.values() if isinstance(texts, dict) else texts))
        return int(texts.shape[0]) if hasattr(texts, "shape") else len(texts)

    def take(self, positions: Sequence[int] | np.ndarray) -> Self:
        """Returns the examples at some positions; texts, in sequences, become arrays."""
        texts = {field: as_column(texts)[positions] for field, texts in self.texts.items()}
        arrays: dict[str, Any] = {
            name: None if given is None else np.asarray(given)[positions]
            for name in ("labels", "weights", "indices")
            for given in [getattr(self, name)]
        }
        return dataclasses.replace(self, texts=texts, batches=None, **arrays)

    def sample(self, count: int, seed: int) -> Self:
        """Returns `count` examples chosen at random, or all if there are fewer."""
        return self.take(np.random.default_rng(seed).permutation(len(self))[:count])

    def in_batches(self, batches: Sequence[np.ndarray]) -> Self:
        """Returns the same examples, in these batches of positions."""
        return dataclasses.replace(self, batches=batches)

    def without_labels(self) -> Self:
        """Returns the same texts without labels, for prediction."""
        return dataclasses.replace(self, labels=None, weights=None)

    def labelled(self) -> Self:
        """Returns the examples that have a label."""
        return self.take(np.flatnonzero(self.is_labelled))

    @property
    def is_labelled(self) -> np.ndarray:
        """bool array `[examples]`."""
        labels = np.asarray(self.labels)
        return ~np.isnan(labels) if np.issubdtype(labels.dtype, np.floating) else labels >= 0

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yields the texts of each example by field."""
        for row in zip(*self.texts.values()):
            yield dict(zip(self.texts, row))

    def all_texts(self) -> Iterator[str]:
        """Yields every text, field by field."""
        for texts in self.texts.values():
            for text in texts:
                yield from map(as_str, [text] if isinstance(text, (str, bytes)) else text)

    def balanced_class_weights(self) -> dict[str, float]:
        """Returns a weight by class name, inverse to its frequency; the mean over examples is 1.

        Raises:
            ValueError: labels are not classes.
        """
        if self.class_names is None:
            raise ValueError("class_weight is for labels that are classes, not scores or choices.")
        classes, counts = np.unique(self.labels, return_counts=True)
        weights = len(self) / (len(classes) * counts)
        return dict(zip([self.class_names[number] for number in classes], weights.tolist()))

    def fingerprint(self) -> dict[str, Any]:
        """Returns values for JSON that tell these examples from others.

        It has the number of `examples`, and hashes of their `texts` and `labels`, in order.
        """
        texts = hashlib.blake2b(digest_size=_DIGEST_BYTES)
        for field, column in self.texts.items():
            texts.update(b"%d %s\n" % (len(column), field.encode()))
            for value in column:
                listed = [value] if isinstance(value, bytes) else value
                texts.update(b"%d:" % len(listed))
                for text in listed:
                    texts.update(b"%d:%s" % (len(text), text))  # so that no two lists are alike
        labels = json.dumps([self.class_names, self.labels.tolist()]).encode()
        return {
            "examples": len(self),
            "texts": texts.hexdigest(),
            "labels": hashlib.blake2b(labels, digest_size=_DIGEST_BYTES).hexdigest(),
        }

    def write(self, path: str | os.PathLike[str]) -> None:
        """Writes a .jsonl file that `gpt1_keras.labelled_files` reads as these examples."""
        labels = self.labels.tolist()
        if self.class_names is not None:
            labels = [self.class_names[number] for number in labels]
        lines = [
            json.dumps({**row, LABEL: label}, default=_as_json)
            for row, label in zip(self.rows(), labels)
        ]
        write_text(path, "".join(f"{line}\n" for line in lines))


def as_column(texts: Sequence[Any]) -> np.ndarray:
    """Returns texts, or lists of texts, as an array `[examples]` of objects."""
    if isinstance(texts, np.ndarray) and texts.ndim == 1:
        return texts
    column = np.empty(len(texts), object)
    for row, text in enumerate(texts):  # of lists of equal length, NumPy would make a matrix
        column[row] = text
    return column


def as_str(text: str | bytes) -> str:
    """Returns a text as str; what is not UTF-8 becomes U+FFFD."""
    return text.decode("utf-8", "replace") if isinstance(text, bytes) else text


def _as_json(value: bytes | np.ndarray) -> str | list[bytes]:
    return value.decode() if isinstance(value, bytes) else value.tolist()
