"""RowModel: a model that answers rows of texts, an export or a preset."""

import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from grpc import StatusCode

from gpt1_keras.files import read_json
from gpt1_keras.labelled_files import shortened, shown_names
from gpt1_keras.tasks.answers import answers_of, column_names, in_columns
from gpt1_keras.tasks.examples import errors_in_words
from serving.export.text_inputs import as_tensors
from serving.export_names import DEFAULT_SIGNATURE, EXPLAIN, METADATA_FILE, find_export
from serving.plain_values import plain
from serving.prediction.rows import RowAnswer
from serving.server.errors import ServingError
from serving.server.models.servable import Servable

_ANSWERS = ("label", "labels", "choice", "score", "scores", "is_sure", "blank")
# Outputs of `explain` with a value for each word.
_OF_WORDS = ("words", "word_fields", "word_choices", "word_shares")

# An export that merges requests refuses one while its queue is full.
_MOST_TRIES, _SECONDS_BETWEEN_TRIES = 6000, 0.01

_Outputs = Mapping[str, np.ndarray]


class RowModel:
    """Answers rows of texts. Several threads may use it at once.

    Args:
        run: from tensors of strings by field to the outputs. ValueError, if it refuses some.

    Raises:
        ValueError: the outputs are not those of classes, choices or scores.

    Attributes:
        fields: the names of the texts.
        columns: the names of an answer's values.
    """

    def __init__(
        self,
        fields: Sequence[str],
        class_names: Sequence[str] | None,
        outputs: Collection[str],
        run: Callable[[Mapping[str, tf.Tensor]], _Outputs],
    ) -> None:
        is_known = class_names is not None or "choice" in outputs
        if not (is_known if "scores" in outputs else "score" in outputs):
            raise ValueError(
                "A table is answered with classes, choices or scores. Received: a model that "
                f"returns {', '.join(sorted(outputs))}."
            )
        self.fields = list(fields)
        self.columns = column_names(
            *(class_names, "choice" in outputs, "is_sure" in outputs, "labels" in outputs)
        )
        left_out = () if len(self.fields) > 1 else ("word_fields",)
        self._of_words = [each for each in _OF_WORDS if each in outputs and each not in left_out]
        self.columns += self._of_words
        self._choices = self.fields[-1] if "choice" in outputs else None
        self._class_names = class_names
        self._run = run

    def answers(self, rows: Sequence[Mapping[str, Any]]) -> list[RowAnswer]:
        """Answers rows.

        Rows with a blank text, or that the model refuses, have no answer.

        Args:
            rows: each has a text for each of `fields`, or a list of texts.

        Raises:
            OSError, tf.errors.OpError: the runtime failed.
            ValueError: the answers are of other classes than `class_names`.
        """
        answers = [RowAnswer({}, self._problem_of(row)) for row in rows]
        asked = [number for number, answer in enumerate(answers) if not answer.problem]
        for number, answer in zip(asked, self._ask([rows[number] for number in asked])):
            answers[number] = answer
        return answers

    def _problem_of(self, row: Mapping[str, Any]) -> str:
        """Returns what keeps a row from being asked about, or an empty str."""
        for field in self.fields:
            texts = row[field]
            if isinstance(texts, list) != (field == self._choices):
                return f"{field} is {'not ' if field == self._choices else ''}a list"
        blank = [field for field in self.fields if not _has_text(row[field])]
        if self._choices and not {*self.fields} - {self._choices} <= {*blank}:
            # The context and the question are one text, of which either may be missing.
            blank = [field for field in blank if field == self._choices]
        return f"{blank[0]} is blank" if blank else ""

    def _ask(self, rows: Sequence[Mapping[str, Any]]) -> list[RowAnswer]:
        """Answers rows with texts. A batch that is refused is halved, to find out which rows."""
        if not rows:
            return []
        try:
            outputs = self._run(as_tensors(rows, self.fields))
        except ValueError as error:
            if len(rows) == 1:
                return [RowAnswer({}, str(error).partition("\n")[0].strip(" ."))]
            half = len(rows) // 2
            return self._ask(rows[:half]) + self._ask(rows[half:])
        return self._in_words(outputs, rows)

    def _in_words(self, outputs: _Outputs, rows: Sequence[Mapping[str, Any]]) -> list[RowAnswer]:
        """Returns the outputs of rows as answers."""
        named = {name: plain(outputs[name]) for name in _ANSWERS if name in outputs}
        if self._class_names is not None:
            _check_names(self._class_names, named["label"], named["scores"])
        choices = None if self._choices is None else [row[self._choices] for row in rows]
        found = map(in_columns, answers_of(named, self._class_names, choices))
        for name in self._of_words:
            counts = outputs["num_words"].tolist()
            words = zip(plain(outputs[name]), counts)
            named[name] = [of_row[:count] for of_row, count in words]
        answers = []
        for number, values in enumerate(found):
            values |= {name: named[name][number] for name in self._of_words}
            if values.pop("blank", False):  # an export of an earlier version does not say
                answers.append(RowAnswer({}, f"{' or '.join(self.fields)} is blank"))
            elif math.isfinite(values.get("score", 0.0)):
                answers.append(RowAnswer(values, truncated=bool(outputs["truncated"][number])))
            else:  # the text of a language model has no token to predict
                answers.append(RowAnswer({}, f"its score is {values['score']}"))
        return answers


def _has_text(texts: str | list[str]) -> bool:
    """Returns whether there is a text, or a list of texts, none of which is white space alone."""
    return bool(texts) and all(map(str.strip, texts if isinstance(texts, list) else [texts]))


def open_model(path: str, explain: bool = False) -> RowModel:
    """Opens a model that answers rows.

    Args:
        path: of an export or its base folder, whose newest version TensorFlow's C++ runtime runs;
            or a preset, as `gpt1_keras.presets.find_preset` takes it, which runs the graph that it
            would be exported with.
        explain: whether answers have the words that led to them.

    Raises:
        ValueError: it is not an export of `gpt1 export`, or cannot explain its answers.
        FileNotFoundError, OSError, ImportError: see `find_preset`.
    """
    try:
        folder = find_export(path)
    except FileNotFoundError:
        return _open_preset(path, explain)
    return _open_export(folder, explain)


def _check_names(
    names: Sequence[str], labels: Sequence[str], scores: Sequence[Sequence[float]]
) -> None:
    """Raises ValueError unless each label is the name of its row's greatest score."""
    numbers = {name: number for number, name in enumerate(names)}
    for label, of_row in zip(labels, scores):
        number = numbers.get(label)
        if len(of_row) != len(names) or number is None or of_row[number] < max(of_row):
            raise ValueError(
                f"The model answers with the label {label!r} and the scores {list(of_row)}, which "
                f"are not of its class names {shown_names(names)}."
            )


def _open_export(folder: Path, explain: bool) -> RowModel:
    if not (folder / METADATA_FILE).is_file():
        raise ValueError(
            f"{folder} is not an export of gpt1 export: it has no {METADATA_FILE}, which names "
            "its texts and classes."
        )
    fields, class_names = _names_in(folder)
    try:
        servable = Servable("export", 1, folder)
    except ServingError as error:
        raise ValueError(f"Cannot load {folder}: {error.message}") from error
    name = EXPLAIN if explain else DEFAULT_SIGNATURE
    if name not in servable.signature_defs:
        raise ValueError(
            f"{folder} does not explain its answers. Export its model with gpt1 export "
            "--explain, or give the preset as --model."
        )

    def run(texts: Mapping[str, tf.Tensor]) -> _Outputs:
        protos = {field: tf.make_tensor_proto(tensor) for field, tensor in texts.items()}
        with errors_in_words():
            for _ in range(_MOST_TRIES):
                try:
                    return servable.predict(name, protos)
                except ServingError as error:
                    if error.code is StatusCode.INVALID_ARGUMENT:
                        raise ValueError(error.message) from error
                    if error.code is not StatusCode.UNAVAILABLE:
                        raise OSError(f"{folder} has failed: {error.message}") from error
                    time.sleep(_SECONDS_BETWEEN_TRIES)
        raise OSError(f"{folder} has answered no request for a minute: its queue is full.")

    signature = servable.signature_defs[name]
    if missing := sorted(set(fields) - signature.inputs.keys()):
        raise ValueError(
            f"{folder} takes {shown_names(list(signature.inputs))}, and its {METADATA_FILE} names "
            f"the texts {shown_names(missing)}."
        )
    scores = signature.outputs.get("scores")
    shape = tf.TensorShape(scores.tensor_shape if scores else [])
    if class_names is not None and not shape.is_compatible_with([None, len(class_names)]):
        raise ValueError(
            f"{folder} returns scores of shape {shape}, and its {METADATA_FILE} names "
            f"{len(class_names)} classes: {shown_names(class_names)}."
        )
    return RowModel(fields, class_names, signature.outputs, run)


def _names_in(folder: Path) -> tuple[list[str], list[str] | None]:
    """Returns the names of an export's texts, and of its classes if it has some."""
    metadata = read_json(folder / METADATA_FILE)
    for key in ("fields", "class_names"):
        names = metadata.get(key)
        is_list = isinstance(names, list) and all(isinstance(each, str) for each in names)
        if names is None and key == "class_names":
            continue
        if not is_list or not names or len(set(names)) < len(names):
            raise ValueError(
                f"{folder / METADATA_FILE} must hold a list of different names as {key}. Received: "
                f"{shortened(repr(names))}."
            )
    return metadata["fields"], metadata.get("class_names")


def _open_preset(path: str, explain: bool) -> RowModel:
    # Imported here, as an export does not need them.
    from gpt1_keras.presets import load_task
    from gpt1_keras.tasks.task import Task
    from serving.export.export_metadata import metadata_of
    from serving.export.export_options import Explanation
    from serving.export.exported_tasks import signatures_of
    from serving.export.signature import ExportSpec

    model: Task = load_task(path)
    spec = ExportSpec(model, explanation=Explanation() if explain else None)
    signature = signatures_of(spec).by_name[EXPLAIN if explain else DEFAULT_SIGNATURE].compiled

    def run(texts: Mapping[str, tf.Tensor]) -> _Outputs:
        with errors_in_words():
            return {name: tensor.numpy() for name, tensor in signature(**texts).items()}

    metadata = metadata_of(model)
    outputs = signature.structured_outputs
    return RowModel(metadata["fields"], metadata["class_names"], outputs, run)
