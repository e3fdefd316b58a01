"""What an export's options cost: its answers on labelled examples beside the model's own."""

import csv
import json
import pathlib

import numpy as np
import tensorflow as tf

import gpt1_keras
from serving.server.servable import DEFAULT_SIGNATURE, Servable

_BATCH_SIZE = 32
_DELIMITERS = {".csv": ",", ".tsv": "\t"}
LABEL = "label"


def read_examples(path):
    """Reads examples: JSON objects, one a line, or a table in CSV or TSV with a header.

    Args:
        path: of a file whose name ends in .jsonl, .csv or .tsv. Its names are the model's inputs,
            and `label`: a class, a score, or the number of the right choice, from 0. A language
            model's examples have none.

    Returns:
        list of dict.

    Raises:
        OSError: it cannot be read.
        ValueError: it is of another kind, or holds no examples.
    """
    path = pathlib.Path(path)
    with path.open(encoding="utf-8", newline="") as file:
        if path.suffix == ".jsonl":
            examples = [json.loads(line) for line in file if line.strip()]
        elif path.suffix in _DELIMITERS:
            examples = list(csv.DictReader(file, delimiter=_DELIMITERS[path.suffix]))
        else:
            raise ValueError(f"Expected a .jsonl, .csv or .tsv file of examples. Received: {path}.")
    if not examples or not all(isinstance(example, dict) for example in examples):
        raise ValueError(f"{path} holds no examples with names.")
    return examples


class Validation:
    """Labelled examples that a model and its export answer.

    Args:
        model: a task of `gpt1_keras`.
        examples: list of dict: the model's inputs and `label`, as `read_examples` gives them.
        batch_size: int, the examples of a request.

    Raises:
        ValueError: examples without the model's inputs, or with labels that it does not know.
    """

    def __init__(self, model, examples, batch_size=_BATCH_SIZE):
        fields = list(getattr(model.preprocessor, "fields", ("text",)))
        self._metric, self._measure, self._labels = _metric(model, examples)
        self._size = len(examples)
        self._requests = [
            _texts(examples[start : start + batch_size], fields)
            for start in range(0, len(examples), batch_size)
        ]

    def compare(self, function, path):
        """Answers the examples by the model and by its export.

        Args:
            function: the unchanged model's signature `serving_default`.
            path: the export's folder; it is run in the C++ runtime.

        Returns:
            dict: `examples`, how many; `metric`, what was measured; its values `before`, of the
            model, and `after`, of the export.
        """
        servable = Servable("export", 1, pathlib.Path(path))
        before, after = [], []
        for texts in self._requests:
            found = function(**texts)
            before.append({key: tensor.numpy() for key, tensor in found.items()})
            protos = {field: tf.make_tensor_proto(tensor) for field, tensor in texts.items()}
            after.append(servable.predict(DEFAULT_SIGNATURE, protos))
        return {
            "examples": self._size,
            "metric": self._metric,
            "before": float(self._measure(before, self._labels)),
            "after": float(self._measure(after, self._labels)),
        }


def _metric(model, examples):
    """The metric's name, the function of answers and labels that measures it, and the labels."""
    if getattr(model, "class_names", None):
        labels = [str(example.get(LABEL)) for example in examples]
        unknown = sorted(set(labels) - set(model.class_names))
        if unknown:
            raise ValueError(f"Expected labels of {model.class_names}. Received: {unknown}.")
        return "accuracy", _accuracy("label"), [label.encode() for label in labels]
    if getattr(model, "score_range", None):
        return "Pearson correlation", _correlation, _numbers(examples, float)
    if isinstance(model, gpt1_keras.GPT1MultipleChoice):
        return "accuracy", _accuracy("choice"), _numbers(examples, int)
    return "log-probability of a token", _log_probability, None


def _numbers(examples, kind):
    try:
        return [kind(example[LABEL]) for example in examples]
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"Expected a number as the {LABEL} of every example.") from error


def _texts(examples, fields):
    """Tensors of strings by field; lists of different lengths are filled up with empty strings."""
    missing = [field for field in fields if any(field not in example for example in examples)]
    if missing:
        raise ValueError(f"Expected examples of {fields}. Some have no {missing}.")
    columns = {field: [example[field] for example in examples] for field in fields}
    return {
        field: tf.ragged.constant(column, tf.string).to_tensor("")
        if isinstance(column[0], list)
        else tf.constant(column, tf.string)
        for field, column in columns.items()
    }


def _joined(answers, name):
    return np.concatenate([each[name] for each in answers])


def _accuracy(name):
    return lambda answers, labels: np.mean(_joined(answers, name) == np.array(labels))


def _correlation(answers, labels):
    return np.corrcoef(_joined(answers, "score"), labels)[0, 1]


def _log_probability(answers, labels):
    """The mean over all tokens that have one before them, in nats."""
    counts = np.maximum(_joined(answers, "num_tokens") - 1, 0)
    return np.sum(_joined(answers, "score") * counts) / np.sum(counts)
