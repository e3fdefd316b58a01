"""Data sets of TensorFlow Datasets: prepared, and read into columns."""

import re
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_datasets as tfds

from training.datasets.data_options import DataOptions


def prepared_builder(name: str, data: DataOptions) -> tfds.core.DatasetBuilder:
    """Returns the builder of a data set that is ready to be read.

    Args:
        name: such as `"glue/sst2"`.
        data: where it is, and whether to download and prepare it if it is missing.

    Raises:
        FileNotFoundError: the data set is not on disk.
        ValueError: TensorFlow Datasets has no data set of that name.
    """
    try:
        builder = tfds.builder(name, data_dir=data.data_dir)
    except ValueError as error:  # its message goes on with the names of all data sets
        raise ValueError(
            f"TensorFlow Datasets has no data set {name!r}: {str(error).splitlines()[0]}"
        ) from None
    if not builder.is_prepared():
        if not data.download:
            raise FileNotFoundError(
                f"The data set {name} is not in {builder.data_dir}. Give the folder that holds it "
                "with --data-dir, or add --download to fetch it."
            )
        builder.download_and_prepare()
    return builder


def read_split(builder: tfds.core.DatasetBuilder, split: str) -> dict[str, Any]:
    """Reads a whole split into memory.

    Args:
        split: such as `"train"` or `"train[:80%]"`.

    Returns:
        dict from feature to an array `[examples, ...]`, or to a ragged tensor where examples differ
        in length.
    """
    if split.split("[")[0] not in builder.info.splits:
        raise ValueError(
            f"{builder.info.full_name} in {builder.data_dir} has no split {split!r}; it has "
            f"{sorted(builder.info.splits)}."
        )
    rows = builder.as_dataset(split=split)
    columns = next(iter(rows.ragged_batch(len(rows)))) if len(rows) else {}
    return {
        feature: column.numpy() if isinstance(column, tf.Tensor) else column
        for feature, column in columns.items()
    }


Columns = dict[str, Any]
Texts = dict[str, np.ndarray]


def read_columns(columns: Columns, fields: dict[str, str]) -> tuple[Texts, np.ndarray]:
    """Reads one example from each row; labels of GLUE's test splits are -1."""
    texts = {field: columns[feature] for field, feature in fields.items()}
    labels = columns["label"]
    if np.issubdtype(labels.dtype, np.floating):
        return texts, np.where(labels < 0, np.nan, labels).astype(np.float32)
    return texts, labels.astype(np.int32)


def read_race(columns: Columns, fields: dict[str, str]) -> tuple[Texts, np.ndarray]:
    """Reads passages with several questions each, whose labels are letters."""
    questions, options = columns[fields["question"]], columns[fields["choices"]]
    passages = np.repeat(np.arange(questions.nrows()), questions.row_lengths())
    texts = {
        "context": columns[fields["context"]][passages],
        "question": questions.values.numpy(),
        "choices": _rows(options.values),
    }
    letters = columns["answers"].values.numpy()
    return texts, np.array([ord(letter) - ord("A") for letter in letters], np.int32)


def read_story_cloze(columns: Columns, fields: dict[str, str]) -> tuple[Texts, np.ndarray]:
    """Reads stories whose labels count the endings from 1."""
    texts = {
        "context": columns[fields["context"]],
        "choices": _rows(columns[fields["choices"]]),
    }
    return texts, columns["label"].astype(np.int32) - 1


def read_definite_pronouns(columns: Columns, fields: dict[str, str]) -> tuple[Texts, np.ndarray]:
    """Reads sentences up to a pronoun; a choice is a name in its place and the rest."""
    rows = zip(columns["sentence"], columns["pronoun"], columns["candidates"])
    resolved = [resolve_pronoun(*row) for row in rows]
    texts = {name: np.empty(len(resolved), object) for name in ("context", "choices")}
    for row, sentences in enumerate(resolved):
        before, _, _ = sentences[0]
        texts["context"][row] = before
        texts["choices"][row] = np.array([name + after for _, name, after in sentences], object)
    return texts, columns["label"].astype(np.int32)


def resolve_pronoun(
    sentence: bytes, pronoun: bytes, names: Iterable[bytes]
) -> list[tuple[bytes, bytes, bytes]]:
    """Puts each name in place of a pronoun's first use.

    Returns:
        list of `(before, name, after)`, one for each name.
    """
    match = re.search(rb"\b" + re.escape(pronoun) + rb"\b", sentence, re.IGNORECASE)
    if match is None:
        raise ValueError(f"The sentence {sentence!r} does not have the pronoun {pronoun!r}.")
    return [(sentence[: match.start()], name, sentence[match.end() :]) for name in names]


def _rows(ragged: tf.RaggedTensor) -> np.ndarray:
    """Returns the rows of a ragged tensor: an array `[rows]` of arrays."""
    rows = np.empty(int(ragged.nrows()), object)
    # One by one: of rows of equal length, NumPy would make a matrix.
    for row, values in enumerate(np.split(ragged.values.numpy(), ragged.row_splits.numpy()[1:-1])):
        rows[row] = values
    return rows


# By the names that `TfdsDataset.reader` may have.
READERS: dict[str, Callable[[Columns, dict[str, str]], tuple[Texts, np.ndarray]]] = {
    "columns": read_columns,
    "race": read_race,
    "story_cloze": read_story_cloze,
    "definite_pronouns": read_definite_pronouns,
}
