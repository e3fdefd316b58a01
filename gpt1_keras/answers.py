"""Answers to examples, by any engine, and their columns in tables.

This file imports neither Keras nor TensorFlow nor NumPy, as clients of servers need none of them.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gpt1_keras.labelled_files.rows import blank_field, is_blank, shown_names

if TYPE_CHECKING:
    from gpt1_keras.examples import Examples

Answer = dict[str, Any]
Outputs = Mapping[str, Sequence[Any]]  # a value for each example, by the names of an export's

# Beside the answer itself: whether it is sure; of the texts, whether one has no token, whether they
# were cut, and their tokens.
_TOLD = ("is_sure", "blank", "truncated", "num_tokens")
# Of `explain`, with a value for each word.
_OF_WORDS = ("words", "word_fields", "word_choices", "word_shares")
_PLACES = ("word_starts", "word_ends")  # of words in their texts, in bytes
NAMES = ("label", "labels", "choice", "score", "scores", *_TOLD, "num_words", *_OF_WORDS, *_PLACES)


@dataclasses.dataclass(frozen=True)
class Engine:
    """What computes answers: a task in Keras, an export in the C++ runtime, or a .tflite file.

    `gpt1_keras.tasks.classify.task_engine` and `serving.engines.open_engine` make one.

    Attributes:
        fields: the names of the texts that it reads.
        class_names: in the order of `scores`; None for choices and scores.
        outputs: the names of its outputs, some of `NAMES`, and others.
        run: from examples to lists of these, with a value for each example. It raises ValueError if
            it refuses one of them. Several threads may call it at once.

    Raises:
        ValueError: the outputs are not those of classes, choices or scores.
    """

    fields: Sequence[str]
    class_names: Sequence[str] | None
    outputs: Collection[str]
    run: Callable[[Examples], Outputs]

    def __post_init__(self) -> None:
        is_known = self.class_names is not None or "choice" in self.outputs
        if not (is_known if "scores" in self.outputs else "score" in self.outputs):
            raise ValueError(
                "Tables need a model that answers with classes, choices or scores. Received: one "
                f"that returns {', '.join(sorted(self.outputs))}."
            )

    @property
    def columns(self) -> list[str]:
        """The names of the values that `in_columns` returns, without what is only told."""
        outputs = self.outputs
        if self.class_names is not None:
            names = ["labels"] if "labels" in outputs else ["label", "score"]
            names += [f"score_{name}" for name in self.class_names]
        else:
            names = ["label", "choice", "score", "scores"] if "choice" in outputs else ["score"]
        names += ["is_sure"] if "is_sure" in outputs else []
        left_out = () if len(self.fields) > 1 else ("word_fields",)
        return names + [name for name in _OF_WORDS if name in outputs and name not in left_out]


def answer(engine: Engine, examples: Examples) -> list[Answer]:
    """Answers examples, by any engine.

    ```python
    from gpt1_keras.answers import answer
    from gpt1_keras.examples import Examples
    from serving.engines import open_engine

    engine = open_engine("runs/mine")  # or an export, or a .tflite file
    answer(engine, Examples({"text": ["a joy to watch"]}))
    ```

    Returns:
        A dict for each example, as `Task.classify` describes it; with `truncated` and `num_tokens`
        where the engine tells them, and the words of an engine that explains.

    Raises:
        ValueError: the engine refuses an example, or its answers are of other classes.
        OSError: the engine has failed.
    """
    if not len(examples):
        return []
    counts = None
    if "choice" in engine.outputs:
        counts = [len(choices) for choices in examples.texts[engine.fields[-1]]]
    return answers_of(engine.run(examples), engine.class_names, counts)


def answer_each(engine: Engine, examples: Examples) -> list[Answer]:
    """Answers examples as `answer` does; where there is no answer, `problem` says why.

    That is where a text is blank, or the engine refuses an example. A batch with such an example is
    halved, to find out which it is.

    Args:
        examples: with str in their texts.
    """
    rows = list(examples.rows())
    problems = [_problem_of(engine, row) for row in rows]
    answers: list[Answer] = [{"problem": problem} for problem in problems]
    asked = [number for number, problem in enumerate(problems) if not problem]
    for number, found in zip(asked, _halved(engine, examples.take(asked)), strict=True):
        answers[number] = found
        if "problem" in found:
            continue
        texts = {field: rows[number][field] for field in engine.fields}
        # An export of an earlier version does not say what is blank.
        if found["blank"] if "blank" in found else blank_field(texts, is_blank):
            found["problem"] = f"{blank_field(texts, is_blank) or ' or '.join(texts)} is blank"
        elif not math.isfinite(found.get("score", 0.0)):
            # The text of a language model has no token to predict.
            found["problem"] = f"its score is {found['score']}"
    return answers


def _problem_of(engine: Engine, row: Mapping[str, Any]) -> str:
    """Returns why an example cannot be answered, or an empty str."""
    choices = engine.fields[-1] if "choice" in engine.outputs else None
    texts = {field: row[field] for field in engine.fields}
    for field, text in texts.items():
        if isinstance(text, str) == (field == choices):
            return f"{field} is {'not ' if field == choices else ''}a list"
    if choices is not None and not len(texts[choices]):
        return f"{choices} is blank"
    # Of other texts without anything to read, the engine knows its normalization.
    blank = blank_field(texts, lambda text: not text)
    return f"{blank} is blank" if blank else ""


def _halved(engine: Engine, examples: Examples) -> list[Answer]:
    try:
        return answer(engine, examples)
    except RefusedAnswers:
        raise
    except ValueError as error:
        if len(examples) == 1:
            return [{"problem": str(error).partition("\n")[0].strip(" .")}]
        half = len(examples) // 2
        return [
            found
            for part in (range(half), range(half, len(examples)))
            for found in _halved(engine, examples.take(part))
        ]


class RefusedAnswers(ValueError):
    """An engine's answers are not those of its classes."""


def answers_of(
    outputs: Outputs,
    class_names: Sequence[str] | None = None,
    choice_counts: Sequence[int] | None = None,
) -> list[Answer]:
    """Returns the answer to each example, in words.

    Args:
        outputs: of an engine, or of a server.
        class_names: in the order of `scores`; None for choices and scores, or if they are unknown:
            then `scores` of an answer are a list.
        choice_counts: how many choices each example has; None if that is unknown.

    Raises:
        RefusedAnswers: a label is not the name of its example's greatest score.
    """
    if class_names is not None and "label" in outputs:
        _check_names(class_names, outputs["label"], outputs["scores"])
    found: list[Answer] = []
    for number, scores in enumerate(outputs["scores" if "scores" in outputs else "score"]):
        each = {name: outputs[name][number] for name in ("label", "choice") if name in outputs}
        if "scores" not in outputs:
            found.append({"score": scores})
            continue
        if choice_counts is not None:
            scores = scores[: choice_counts[number]]
        each["score"] = max(scores)
        if "labels" in outputs:
            each = {"labels": list(filter(None, outputs["labels"][number]))}
        each["scores"] = scores if class_names is None else dict(zip(class_names, scores))
        found.append(each)
    for name in _TOLD:
        for each, value in zip(found, outputs.get(name, ())):
            each[name] = value
    for name in (*_OF_WORDS, *_PLACES):
        for each, words, count in zip(found, outputs.get(name, ()), outputs.get("num_words", ())):
            each[name] = words[:count]
    return found


def in_columns(answer: Mapping[str, Any]) -> Answer:
    """Returns an answer with a column for each class, `score_NAME`, in place of named scores."""
    scores = answer.get("scores")
    if not isinstance(scores, Mapping):
        return dict(answer)
    others = {name: value for name, value in answer.items() if name != "scores"}
    return {**others, **{f"score_{name}": score for name, score in scores.items()}}


def _check_names(
    names: Sequence[str], labels: Sequence[str], scores: Sequence[Sequence[float]]
) -> None:
    numbers = {name: number for number, name in enumerate(names)}
    for label, of_example in zip(labels, scores):
        number = numbers.get(label)
        if len(of_example) != len(names) or number is None or of_example[number] < max(of_example):
            raise RefusedAnswers(
                f"The model answers with the label {label!r} and the scores {list(of_example)}, "
                f"which are not of its class names {shown_names(names)}."
            )
