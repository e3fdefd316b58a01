"""Answers: a task's predictions in words, as `Task.classify` returns them."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from keras import ops

from gpt1_keras.tasks.examples import Examples, blank_examples, errors_in_words, holds_batches
from gpt1_keras.tasks.fields_preprocessor import FieldsPreprocessor

Answer = dict[str, Any]


def classify(task: Any, x: Any, batch_size: int | None) -> Any:
    """Answers texts; see `Task.classify`."""
    _check_classifies(task)
    if isinstance(x, Iterator) or holds_batches(x):
        batches = (batch[0] if isinstance(batch, tuple) else batch for batch in x)
        with errors_in_words():
            return [
                answer
                for examples in map(task.read_examples, batches)
                for answer in _answers(task, examples, task.predict_on_batch(examples.texts))
            ]
    examples, answers = task.read_examples(x), []
    if len(examples):
        answers = _answers(task, examples, task.predict(examples, batch_size, verbose=0))
    pandas = sys.modules.get("pandas")  # if it is not imported, the texts are not of pandas
    if pandas is None or not isinstance(x, (pandas.DataFrame, pandas.Series)):
        return answers[0] if examples.is_one else answers
    has_threshold = task.calibration is not None and task.calibration.sure_threshold is not None
    columns = column_names(
        *(task.class_names, task.calibration is not None, has_threshold),
        is_multi_label=task.task_head.is_multi_label,
    )
    return pandas.DataFrame(map(in_columns, answers), index=x.index, columns=[*columns, "blank"])


def _check_classifies(task: Any) -> None:
    """Raises ValueError unless a task takes texts and answers with classes, choices or scores."""
    if task.calibration is None and not hasattr(task.task_head, "score_of"):
        raise ValueError(
            "`classify` is for tasks that answer with classes, choices or scores. Received: a "
            f"{type(task).__name__}."
        )
    if not isinstance(task.preprocessor, FieldsPreprocessor):
        raise ValueError(
            "`classify` takes texts by the fields of the task's preprocessor. Received: a "
            f"{type(task).__name__} with preprocessor={task.preprocessor!r}."
        )


def _answers(task: Any, examples: Examples, outputs: Any) -> list[Answer]:
    """Returns the outputs that `predict` returned for examples, in words."""
    outputs = ops.convert_to_numpy(outputs)
    blank = {"blank": blank_examples(task.preprocessor, examples.texts)}
    if task.calibration is None:
        return answers_of({"score": np.reshape(outputs, -1).tolist(), **blank})
    probabilities = ops.convert_to_numpy(task.probabilities(outputs))
    best, names = probabilities.argmax(axis=-1).tolist(), task.class_names
    named: dict[str, Any] = {"scores": probabilities.tolist(), **blank}
    if task.task_head.is_multi_label:
        named["labels"] = [
            [name if score > 0.5 else "" for name, score in zip(names, each)]
            for each in named["scores"]
        ]
    elif names is not None:
        named["label"] = [names[index] for index in best]
    else:
        named["choice"] = best
    if task.calibration.sure_threshold is not None:
        named["is_sure"] = ops.convert_to_numpy(task.calibration.is_sure(probabilities)).tolist()
    choices = None if names is not None else _choices(task, examples)
    return answers_of(named, names, choices)


def _choices(task: Any, examples: Examples) -> Sequence[Sequence[str]]:
    """Returns the choices of each example, as the model has read them."""
    choices = examples.texts[task.preprocessor.fields[-1]]
    rows = choices.to_list() if hasattr(choices, "to_list") else choices
    return [
        [each.decode(errors="replace") if isinstance(each, bytes) else each for each in row]
        for row in rows
    ]


def answers_of(
    outputs: Mapping[str, Sequence[Any]],
    class_names: Sequence[str] | None = None,
    choices: Sequence[Sequence[str]] | None = None,
) -> list[Answer]:
    """Returns the answer to each example, as `Task.classify` does.

    Args:
        outputs: lists with a value for each example, by the names that an export gives them.
        class_names: in the order of `scores`; None for scores and choices.
        choices: of each example; None for scores and classes.
    """
    if "scores" not in outputs:
        answers: list[Answer] = [{"score": score} for score in outputs["score"]]
    elif choices is not None:
        answers = [
            {
                "label": row[index],
                "choice": index,
                "score": scores[index],
                "scores": scores[: len(row)],
            }
            for index, scores, row in zip(outputs["choice"], outputs["scores"], choices)
        ]
    else:
        named = [dict(zip(class_names or (), scores)) for scores in outputs["scores"]]
        if "labels" in outputs:
            answers = [
                {"labels": list(filter(None, labels)), "scores": scores}
                for labels, scores in zip(outputs["labels"], named)
            ]
        else:
            answers = [
                {"label": label, "score": scores[label], "scores": scores}
                for label, scores in zip(outputs["label"], named)
            ]
    for name in ("is_sure", "blank"):
        for answer, value in zip(answers, outputs.get(name, ())):
            answer[name] = value
    return answers


def column_names(
    class_names: Sequence[str] | None,
    are_choices: bool,
    has_threshold: bool,
    is_multi_label: bool = False,
) -> list[str]:
    """Returns the names of the columns that answers have in a table.

    Without class names, answers are choices or scores. `has_threshold`: they have `is_sure`.
    """
    if class_names is not None:
        names = ["labels"] if is_multi_label else ["label", "score"]
        names += [f"score_{name}" for name in class_names]
    else:
        names = ["label", "choice", "score", "scores"] if are_choices else ["score"]
    return [*names, "is_sure"] if has_threshold else names


def in_columns(answer: Mapping[str, Any]) -> Answer:
    """Returns the values of an answer by the names that `column_names` returns."""
    scores = answer.get("scores")
    if not isinstance(scores, Mapping):
        return dict(answer)
    others = {name: value for name, value in answer.items() if name != "scores"}
    return {**others, **{f"score_{name}": score for name, score in scores.items()}}
