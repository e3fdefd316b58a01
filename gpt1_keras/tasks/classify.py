"""A task as an engine of answers, and what `Task.classify` makes of them."""

from __future__ import annotations

import dataclasses
import functools
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from keras import ops

from gpt1_keras.answers import Engine, Outputs, answer, in_columns
from gpt1_keras.examples import Examples, as_str
from gpt1_keras.tasks.batches import as_lists, blank_examples, errors_in_words, holds_batches
from gpt1_keras.tasks.fields_preprocessor import FieldsPreprocessor


def classify(task: Any, x: Any, batch_size: int | None) -> Any:
    """Answers texts; see `Task.classify`."""
    engine = task_engine(task, batch_size)
    if isinstance(x, Iterator) or holds_batches(x):
        of_batch = functools.partial(_outputs, task, lambda read: task.predict_on_batch(read.texts))
        engine = dataclasses.replace(engine, run=of_batch)
        batches = (batch[0] if isinstance(batch, tuple) else batch for batch in x)
        with errors_in_words():
            return [each for batch in batches for each in answer(engine, task.read_examples(batch))]
    examples = task.read_examples(x.without_labels() if isinstance(x, Examples) else x)
    answers = answer(engine, examples)
    pandas = sys.modules.get("pandas")  # if it is not imported, the texts are not of pandas
    if pandas is None or not isinstance(x, (pandas.DataFrame, pandas.Series)):
        return answers[0] if examples.is_one else answers
    columns = [*engine.columns, "blank"]
    return pandas.DataFrame(map(in_columns, answers), index=x.index, columns=columns)


def task_engine(task: Any, batch_size: int | None = None) -> Engine:
    """Returns the engine of a task, in Keras.

    Raises:
        ValueError: the task does not take texts, or does not answer with classes, choices or
            scores.
    """
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
    outputs = ["score", "blank"]
    if task.calibration is not None:
        outputs = ["label", "scores", "blank"]
        outputs += ["choice"] if task.class_names is None else []
        outputs += ["labels"] if task.task_head.is_multi_label else []
        outputs += [] if task.calibration.sure_threshold is None else ["is_sure"]
    run = functools.partial(_outputs, task, lambda read: task.predict(read, batch_size, verbose=0))
    return Engine(task.preprocessor.fields, task.class_names, outputs, run)


def _outputs(task: Any, predict: Callable[[Examples], Any], examples: Examples) -> Outputs:
    examples = task.read_examples(examples.without_labels())
    named = named_outputs(task, examples.texts, predict(examples))
    return {**named, "blank": blank_examples(task.preprocessor, examples.texts)}


def named_outputs(task: Any, texts: Mapping[str, Any], outputs: Any) -> dict[str, Any]:
    """Returns what `Task.predict` returned of texts, by the names that an export gives it."""
    outputs = ops.convert_to_numpy(outputs)
    if task.calibration is None:
        return {"score": np.reshape(outputs, -1).tolist()}
    probabilities = ops.convert_to_numpy(task.probabilities(outputs))
    best, names = probabilities.argmax(axis=-1).tolist(), task.class_names
    named: dict[str, Any] = {"scores": probabilities.tolist()}
    if names is None:
        choices = as_lists(texts[task.preprocessor.fields[-1]])
        named["choice"] = best
        named["label"] = [as_str(row[index]) for row, index in zip(choices, best)]
    else:
        named["label"] = [names[index] for index in best]
    if task.task_head.is_multi_label:
        named["labels"] = [
            [name if score > 0.5 else "" for name, score in zip(names, each)]
            for each in named["scores"]
        ]
    if task.calibration.sure_threshold is not None:
        named["is_sure"] = ops.convert_to_numpy(task.calibration.is_sure(probabilities)).tolist()
    return named
