"""The paper's twelve data sets as data: where each lies, and how it becomes a task."""

import dataclasses
from collections.abc import Callable

from training.datasets import tfds_readers

CLASSIFICATION, SIMILARITY, MULTIPLE_CHOICE = "classification", "similarity", "multiple_choice"


@dataclasses.dataclass(frozen=True)
class Task:
    """A data set as a task.

    Attributes:
        datasets: tuple of str, names in TensorFlow Datasets; several are put one behind the other.
        kind: str, the model that it takes.
        fields: dict from the model's text fields to the data set's features.
        metrics: tuple of str, keys of `training.evaluation.metrics.METRICS`; the first is what the paper
            reports, and selects the best epoch.
        splits: dict from `"train"`, `"validation"` and `"test"` to the data set's splits, where
            they have other names.
        score_range: of a task whose labels are scores, the least and the greatest.
        read: function from the columns of a split to its texts by field and its labels.
        glue_file: the file that GLUE's server takes predictions in.
        published, before: floats, the paper's result and the best before it, in hundredths.
    """

    datasets: tuple[str, ...]
    kind: str
    fields: dict[str, str]
    metrics: tuple[str, ...] = ("accuracy",)
    splits: dict[str, str] = dataclasses.field(default_factory=dict)
    score_range: tuple[int, int] | None = None
    read: Callable = tfds_readers.read_columns
    glue_file: str | None = None
    published: float | None = None
    before: float | None = None

    def split(self, role):
        """The data set's name for `"train"`, `"validation"` or `"test"`."""
        return self.splits.get(role, role)


def _single(dataset, **kwargs):
    return Task((dataset,), CLASSIFICATION, {"text": "sentence"}, **kwargs)


def _entailment(dataset, premise="premise", hypothesis="hypothesis", **kwargs):
    fields = {"premise": premise, "hypothesis": hypothesis}
    return Task((dataset,), CLASSIFICATION, fields, **kwargs)


def _similarity(dataset, text1="sentence1", text2="sentence2", **kwargs):
    return Task((dataset,), SIMILARITY, {"text1": text1, "text2": text2}, **kwargs)


def _race(*levels, **kwargs):
    return Task(
        tuple(f"race/{level}" for level in levels),
        MULTIPLE_CHOICE,
        {"context": "article", "question": "questions", "choices": "options"},
        splits={"validation": "dev"},
        read=tfds_readers.read_race,
        **kwargs,
    )


def _mnli(variant, **kwargs):
    splits = {"validation": f"validation_{variant}", "test": f"test_{variant}"}
    return _entailment("glue/mnli", splits=splits, **kwargs)


TASKS = {
    # Natural language inference: table 2.
    "mnli_matched": _mnli("matched", glue_file="MNLI-m.tsv", published=82.1, before=80.6),
    "mnli_mismatched": _mnli("mismatched", glue_file="MNLI-mm.tsv", published=81.4, before=80.1),
    "snli": _entailment("snli", published=89.9, before=89.3),
    "scitail": _entailment("sci_tail", published=88.3, before=83.3),
    "qnli": _entailment(
        "glue/qnli", "question", "sentence", glue_file="QNLI.tsv", published=88.1, before=82.3
    ),
    "rte": _entailment(
        "glue/rte", "sentence1", "sentence2", glue_file="RTE.tsv", published=56.0, before=61.7
    ),
    # Question answering and commonsense reasoning: table 3.
    "story_cloze": Task(
        ("story_cloze/2016",),
        MULTIPLE_CHOICE,
        {"context": "context", "choices": "endings"},
        # Its stories without endings are of no use here. As in the released code, a fifth of the
        # labelled ones is for validation.
        splits={"train": "validation[:80%]", "validation": "validation[80%:]"},
        read=tfds_readers.read_story_cloze,
        published=86.5,
        before=77.6,
    ),
    "race_middle": _race("middle", published=62.9, before=60.2),
    "race_high": _race("high", published=57.4, before=50.3),
    "race": _race("middle", "high", published=59.0, before=53.3),
    # Semantic similarity and classification: table 4.
    "cola": _single(
        "glue/cola", metrics=("matthews",), glue_file="CoLA.tsv", published=45.4, before=35.0
    ),
    "sst2": _single("glue/sst2", glue_file="SST-2.tsv", published=91.3, before=93.2),
    "mrpc": _similarity(
        "glue/mrpc", metrics=("f1", "accuracy"), glue_file="MRPC.tsv", published=82.3, before=86.0
    ),
    "stsb": _similarity(
        "glue/stsb",
        metrics=("pearson", "spearman"),
        score_range=(0, 5),
        glue_file="STS-B.tsv",
        published=82.0,
        before=81.0,
    ),
    "qqp": _similarity(
        "glue/qqp",
        "question1",
        "question2",
        metrics=("f1", "accuracy"),
        glue_file="QQP.tsv",
        published=70.3,
        before=66.1,
    ),
}


def find_task(name):
    """The task of that name. Raises ValueError, naming those there are."""
    if name not in TASKS:
        raise ValueError(f"Unknown task {name!r}; expected one of {sorted(TASKS)}.")
    return TASKS[name]
