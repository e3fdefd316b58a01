"""What data sets of TensorFlow Datasets do that others do not, each handled once.

A reader takes the columns of a split, a dict of arrays and of ragged tensors by feature, and the
fields of a task, and gives texts and labels: a dict from field to an array `[examples]` of byte
strings, or for answers to choose from of arrays of byte strings; and int32 or float32 `[examples]`.
Where there is no label, it is -1 or, for scores, not a number.
"""

import numpy as np


def read_columns(columns, fields):
    """One example a row, with its label, in GLUE's test splits -1."""
    texts = {field: columns[feature] for field, feature in fields.items()}
    labels = columns["label"]
    if np.issubdtype(labels.dtype, np.floating):
        return texts, np.where(labels < 0, np.nan, labels).astype(np.float32)
    return texts, labels.astype(np.int32)


def read_race(columns, fields):
    """Each passage has several questions, of which the answers are letters."""
    questions, options = columns[fields["question"]], columns[fields["choices"]]
    passages = np.repeat(np.arange(questions.nrows()), questions.row_lengths())
    texts = {
        "context": columns[fields["context"]][passages],
        "question": questions.values.numpy(),
        "choices": _rows(options.values),
    }
    letters = columns["answers"].values.numpy()
    return texts, np.array([ord(letter) - ord("A") for letter in letters], np.int32)


def read_story_cloze(columns, fields):
    """Labels are the numbers of the endings, from 1; -1 where there is none."""
    texts = {
        "context": columns[fields["context"]],
        "choices": _rows(columns[fields["choices"]]),
    }
    return texts, columns["label"].astype(np.int32) - 1


def _rows(ragged):
    """The rows of a ragged tensor, an array `[rows]` of arrays."""
    rows = np.empty(int(ragged.nrows()), object)
    # Not all at once: NumPy would make a matrix of rows of equal length.
    for row, values in enumerate(np.split(ragged.values.numpy(), ragged.row_splits.numpy()[1:-1])):
        rows[row] = values
    return rows
