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
from gpt1_keras.tasks.answers import column_names
from gpt1_keras.tasks.data import errors_in_words
from serving.export.example_tensors import as_tensors
from serving.export_names import DEFAULT_SIGNATURE, EXPLAIN, METADATA_FILE
from serving.export_versions import find_export
from serving.plain_values import plain
from serving.prediction.rows import RowAnswer
from serving.server.errors import ServingError
from serving.server.models.servable import Servable

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
        if "score" not in outputs and not ("scores" in outputs and is_known):
            raise ValueError(
                "A table is answered with classes, choices or scores. Received: a model that "
                f"returns {', '.join(sorted(outputs))}."
            )
        self.fields = list(fields)
        self.columns = column_names(class_names, "choice" in outputs, "is_sure" in outputs)
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
            if not texts or not all(map(str.strip, texts if isinstance(texts, list) else [texts])):
                return f"{field} is blank"
        return ""

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
        columns: dict[str, list[Any]] = {}
        for name in ("label", "choice", "is_sure", *self._of_words):
            if name in outputs:
                columns[name] = plain(outputs[name])
        if "scores" in outputs:
            scores = plain(outputs["scores"])
            columns["score"] = list(map(max, scores))
            if self._choices is not None:
                choices = [row[self._choices] for row in rows]
                columns["scores"] = [each[: len(texts)] for each, texts in zip(scores, choices)]
            for name, column in zip(self._class_names or (), zip(*scores)):
                columns[f"score_{name}"] = list(column)
        else:
            columns["score"] = plain(outputs["score"])
        for name in self._of_words:
            counts = outputs["num_words"].tolist()
            columns[name] = [words[:count] for words, count in zip(columns[name], counts)]
        answers = []
        for number, truncated in enumerate(outputs["truncated"].tolist()):
            values = {name: columns[name][number] for name in self.columns}
            if math.isfinite(values["score"]):
                answers.append(RowAnswer(values, truncated=truncated))
            else:  # the text of a language model has no token to predict
                answers.append(RowAnswer({}, f"its score is {values['score']}"))
        return answers


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


def _open_export(folder: Path, explain: bool) -> RowModel:
    if not (folder / METADATA_FILE).is_file():
        raise ValueError(
            f"{folder} is not an export of gpt1 export: it has no {METADATA_FILE}, which names "
            "its texts and classes."
        )
    metadata = read_json(folder / METADATA_FILE)
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

    outputs = servable.signature_defs[name].outputs
    return RowModel(metadata["fields"], metadata["class_names"], outputs, run)


def _open_preset(path: str, explain: bool) -> RowModel:
    # Imported here, as an export does not need them.
    from gpt1_keras.presets import load_task
    from gpt1_keras.tasks.task import Task
    from serving.export.export_metadata import metadata_of
    from serving.export.export_options import Explanation
    from serving.export.export_spec import ExportSpec
    from serving.export.exported_tasks import signatures_of

    model: Task = load_task(path)
    spec = ExportSpec(model, explanation=Explanation() if explain else None)
    signature = signatures_of(spec).by_name[EXPLAIN if explain else DEFAULT_SIGNATURE].compiled

    def run(texts: Mapping[str, tf.Tensor]) -> _Outputs:
        with errors_in_words():
            return {name: tensor.numpy() for name, tensor in signature(**texts).items()}

    metadata = metadata_of(model)
    outputs = signature.structured_outputs
    return RowModel(metadata["fields"], metadata["class_names"], outputs, run)
