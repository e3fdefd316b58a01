"""Answers: a task's predictions in words, as `Task.classify` returns them."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from keras import ops

from gpt1_keras.tasks.data import blank_examples, errors_in_words, holds_batches
from gpt1_keras.tasks.fields_preprocessor import FieldsPreprocessor
from gpt1_keras.tokenization.backend import is_single

Answer = dict[str, Any]


def classify(task: Any, x: Any, batch_size: int | None) -> Any:
    """Answers texts; see `Task.classify`."""
    _check_classifies(task)
    if isinstance(x, Iterator) or holds_batches(x):
        batches = (batch[0] if isinstance(batch, tuple) else batch for batch in x)
        with errors_in_words():
            return [
                answer
                for texts in batches
                for answer in _answers(task, texts, task.predict_on_batch(texts))
            ]
    texts = task.preprocessor.by_field(x)
    first = texts[task.preprocessor.fields[0]]
    is_one = is_single(first)
    is_empty = not is_one and hasattr(first, "__len__") and not len(first)
    answers = []
    if not is_empty:
        answers = _answers(task, texts, task.predict(texts, batch_size, verbose=0))
    pandas = sys.modules.get("pandas")  # if it is not imported, the texts are not of pandas
    if pandas is None or not isinstance(x, (pandas.DataFrame, pandas.Series)):
        return answers[0] if is_one else answers
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


def _answers(task: Any, texts: Any, outputs: Any) -> list[Answer]:
    """Returns the outputs that `predict` returned for texts, in words."""
    are_blank = blank_examples(task.preprocessor, texts)
    return [
        {**answer, "blank": is_blank}
        for answer, is_blank in zip(_in_words(task, texts, outputs), are_blank, strict=True)
    ]


def _in_words(task: Any, texts: Any, outputs: Any) -> list[Answer]:
    """Returns the answers, without `blank`."""
    outputs = ops.convert_to_numpy(outputs)
    if task.calibration is None:
        return [{"score": score} for score in np.reshape(outputs, -1).tolist()]
    probabilities = ops.convert_to_numpy(task.probabilities(outputs))
    best, scores = probabilities.argmax(axis=-1).tolist(), probabilities.tolist()
    if task.task_head.is_multi_label:
        answers = [
            {
                "labels": [name for name, score in zip(task.class_names, each) if score > 0.5],
                "scores": dict(zip(task.class_names, each)),
            }
            for each in scores
        ]
    elif task.class_names is not None:
        answers = [
            {
                "label": task.class_names[index],
                "score": each[index],
                "scores": dict(zip(task.class_names, each)),
            }
            for index, each in zip(best, scores)
        ]
    else:
        answers = [
            {
                "label": choices[index],
                "choice": index,
                "score": each[index],
                "scores": each[: len(choices)],
            }
            for index, each, choices in zip(best, scores, _choices(task, texts))
        ]
    if task.calibration.sure_threshold is not None:
        are_sure = ops.convert_to_numpy(task.calibration.is_sure(probabilities)).tolist()
        for answer, is_sure in zip(answers, are_sure):
            answer["is_sure"] = is_sure
    return answers


def _choices(task: Any, texts: Any) -> Sequence[Sequence[str]]:
    """Returns the choices of each example, as the model has read them."""
    choices = task.preprocessor.as_batch(texts)[task.preprocessor.fields[-1]]
    rows = choices.to_list() if hasattr(choices, "to_list") else choices
    return [
        [each.decode(errors="replace") if isinstance(each, bytes) else each for each in row]
        for row in rows
    ]


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
