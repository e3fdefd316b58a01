"""The paper's zero-shot probes as data: what each asks of a language model (section 5)."""

import dataclasses
import re
from collections.abc import Callable

import numpy as np

from training.datasets.tfds_readers import read_race


@dataclasses.dataclass(frozen=True)
class Questions:
    """What a model is asked.

    Attributes:
        candidates: list of lists of `(beginning, ending)`, bytes: for each question, texts of which
            the one whose ending is likeliest is the answer; or one text, to be likely or not.
        labels: int array, the right candidates' numbers; or 1 for texts that should be likely.
    """

    candidates: list
    labels: np.ndarray

    def first(self, count):
        """The first questions; all for None."""
        return Questions(self.candidates[:count], self.labels[:count])


@dataclasses.dataclass(frozen=True)
class Probe:
    """A data set as questions.

    Attributes:
        dataset: str, its name in TensorFlow Datasets.
        split: str, to be scored.
        ask: function from the columns of a split to `Questions`.
        guess, best: floats, the metric of guessing and of the best single model before the paper.
        metric: str, a key of `training.evaluation.metrics.METRICS`.
        threshold_split: where the threshold of questions with one candidate is chosen.
    """

    dataset: str
    split: str
    ask: Callable
    guess: float
    best: float
    metric: str = "accuracy"
    threshold_split: str | None = None


def _ask_cola(columns):
    """Whether a sentence is likely."""
    return Questions([[(b"", text)] for text in columns["sentence"]], columns["label"])


def _ask_sst2(columns):
    """Which word goes on behind the sentence and "very"."""
    words = (b"negative", b"positive")
    return Questions(
        [[(text + b" very", word) for word in words] for text in columns["sentence"]],
        columns["label"],
    )


def _ask_race(columns):
    """Which answer goes on behind passage and question."""
    fields = {"context": "article", "question": "questions", "choices": "options"}
    texts, labels = read_race(columns, fields)
    rows = zip(texts["context"], texts["question"], texts["choices"])
    return Questions(
        [
            [(b"%b %b" % (context, question), choice) for choice in choices]
            for context, question, choices in rows
        ],
        labels,
    )


def _ask_dprd(columns):
    """Behind which candidate the sentence goes on, in the place of the pronoun's first use."""
    rows = zip(columns["sentence"], columns["pronoun"], columns["candidates"])
    candidates = []
    for sentence, pronoun, names in rows:
        start, end = _find_word(sentence, pronoun)
        candidates.append([(sentence[:start] + name, sentence[end:]) for name in names])
    return Questions(candidates, columns["label"])


def _ask_wsc273(columns):
    """The same, where the data set says which characters the pronoun is."""
    names = [columns["option1_normalized"], columns["option2_normalized"]]
    rows = zip(columns["text"], columns["pronoun_start"], columns["pronoun_end"], *names)
    candidates = []
    for text, start, end, *options in rows:
        text = text.decode("utf-8")
        before, behind = text[:start].encode(), text[end:].encode()
        candidates.append([(before + name, behind) for name in options])
    return Questions(candidates, columns["label"])


def _find_word(sentence, word):
    match = re.search(rb"\b" + re.escape(word) + rb"\b", sentence, re.IGNORECASE)
    if match is None:
        raise ValueError(f"The sentence {sentence!r} does not have the pronoun {word!r}.")
    return match.span()


# The best before are of the paper's tables 3 and 4; of DPRD, Peng, Khashabi & Roth (2015).
PROBES = {
    "cola": Probe(
        "glue/cola", "validation", _ask_cola, 0.0, 0.35, "matthews", threshold_split="train"
    ),
    "sst2": Probe("glue/sst2", "validation", _ask_sst2, 0.5, 0.932),
    "race_middle": Probe("race/middle", "dev", _ask_race, 0.25, 0.602),
    "race_high": Probe("race/high", "dev", _ask_race, 0.25, 0.503),
    "dprd": Probe("definite_pronoun_resolution", "test", _ask_dprd, 0.5, 0.7641),
    "wsc273": Probe("wsc273", "test", _ask_wsc273, 0.5, 0.7641),
}


def find_probe(name):
    """The probe of that name. Raises ValueError, naming those there are."""
    if name not in PROBES:
        raise ValueError(f"Unknown probe {name!r}; expected one of {list(PROBES)}.")
    return PROBES[name]
