"""Readers that turn the columns of a data set into what a probe asks a language model."""

import dataclasses
from collections.abc import Callable
from typing import Any, Self

import numpy as np

from training.datasets.tfds import read_race, resolve_pronoun

Columns = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class ProbeExamples:
    """What a language model chooses from.

    Attributes:
        choices: for each example a list of `(prefix, continuation)`, bytes. The text with the
            likeliest continuation is predicted; or there is one text, which is likely or not.
        labels: int array `[examples]`: indices of the right choices; for single texts, 1 if the
            text should be likely, or 0.
    """

    choices: list[list[tuple[bytes, bytes]]]
    labels: np.ndarray

    def first(self, count: int | None) -> Self:
        """Returns the first examples, or all for None."""
        return dataclasses.replace(self, choices=self.choices[:count], labels=self.labels[:count])


def read_cola(columns: Columns) -> ProbeExamples:
    """Asks: is a sentence likely?"""
    return ProbeExamples([[(b"", text)] for text in columns["sentence"]], columns["label"])


def read_sst2(columns: Columns) -> ProbeExamples:
    """Asks: which word follows the sentence and "very"?"""
    words = (b"negative", b"positive")
    return ProbeExamples(
        [[(text + b" very", word) for word in words] for text in columns["sentence"]],
        columns["label"],
    )


def read_race_choices(columns: Columns) -> ProbeExamples:
    """Asks: which choice follows passage and question?"""
    fields = {"context": "article", "question": "questions", "choices": "options"}
    texts, labels = read_race(columns, fields)
    rows = zip(texts["context"], texts["question"], texts["choices"])
    return ProbeExamples(
        [
            [(b"%b %b" % (context, question), choice) for choice in choices]
            for context, question, choices in rows
        ],
        labels,
    )


def read_dprd(columns: Columns) -> ProbeExamples:
    """Asks: with which name, in place of the pronoun's first use, is the rest likelier?"""
    rows = zip(columns["sentence"], columns["pronoun"], columns["candidates"])
    choices = [
        [(before + name, after) for before, name, after in resolve_pronoun(*row)] for row in rows
    ]
    return ProbeExamples(choices, columns["label"])


def read_wsc273(columns: Columns) -> ProbeExamples:
    """Asks what `read_dprd` asks; this data set says where the pronoun is, in code points."""
    names = [columns["option1_normalized"], columns["option2_normalized"]]
    rows = zip(columns["text"], columns["pronoun_start"], columns["pronoun_end"], *names)
    choices = []
    for text_bytes, start, end, *options in rows:
        text = text_bytes.decode("utf-8")
        before, after = text[:start].encode(), text[end:].encode()
        choices.append([(before + name, after) for name in options])
    return ProbeExamples(choices, columns["label"])


# By the names that `Probe.reader` may have.
READERS: dict[str, Callable[[Columns], ProbeExamples]] = {
    "cola": read_cola,
    "sst2": read_sst2,
    "race": read_race_choices,
    "dprd": read_dprd,
    "wsc273": read_wsc273,
}
