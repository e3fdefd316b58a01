"""The paper's twelve data sets, and two more for small machines, as data.

`DATASETS` has 17 rows: MNLI has two (one for each validation split), RACE has three (each level,
and both together), and `snli_slice` and `dprd` are the two that the paper does not fine-tune on.
"""

import dataclasses
from typing import Any

CLASSIFICATION, SIMILARITY, MULTIPLE_CHOICE = "classification", "similarity", "multiple_choice"


@dataclasses.dataclass(frozen=True)
class TfdsDataset:
    """A labelled data set of TensorFlow Datasets, and how a model reads it.

    Attributes:
        tfds_names: names in TensorFlow Datasets; several are concatenated.
        kind: kind of model that it is for: `CLASSIFICATION`, `SIMILARITY` or `MULTIPLE_CHOICE`.
        fields: dict from the model's text fields to the data set's features.
        metrics: keys of `training.evaluation.metrics.METRICS`; the first is what the paper
            reports, and selects the best epoch.
        held_out: name in TensorFlow Datasets of a configuration that holds only the validation and
            the test split, under these names; read where `tfds_names` are not on disk.
        splits: dict from `"train"`, `"validation"` and `"test"` to the data set's splits, where
            these have other names.
        score_range: least and greatest score, where labels are scores.
        reader: key of `training.datasets.tfds.READERS`.
        glue_file: name of the file of predictions that GLUE's server takes.
        paper_score: the paper's result, in percent.
        previous_best: the best result before the paper, in percent.
    """

    tfds_names: tuple[str, ...]
    kind: str
    fields: dict[str, str]
    metrics: tuple[str, ...] = ("accuracy",)
    held_out: str | None = None
    splits: dict[str, str] = dataclasses.field(default_factory=dict)
    score_range: tuple[int, int] | None = None
    reader: str = "columns"
    glue_file: str | None = None
    paper_score: float | None = None
    previous_best: float | None = None

    def split(self, role: str) -> str:
        """Returns the data set's name of the split `"train"`, `"validation"` or `"test"`."""
        return self.splits.get(role, role)


def _single(dataset: str, **kwargs: Any) -> TfdsDataset:
    return TfdsDataset((dataset,), CLASSIFICATION, {"text": "sentence"}, **kwargs)


def _entailment(
    dataset: str, premise: str = "premise", hypothesis: str = "hypothesis", **kwargs: Any
) -> TfdsDataset:
    fields = {"premise": premise, "hypothesis": hypothesis}
    return TfdsDataset((dataset,), CLASSIFICATION, fields, **kwargs)


def _similarity(
    dataset: str, text1: str = "sentence1", text2: str = "sentence2", **kwargs: Any
) -> TfdsDataset:
    return TfdsDataset((dataset,), SIMILARITY, {"text1": text1, "text2": text2}, **kwargs)


def _race(*levels: str, **kwargs: Any) -> TfdsDataset:
    return TfdsDataset(
        tuple(f"race/{level}" for level in levels),
        MULTIPLE_CHOICE,
        {"context": "article", "question": "questions", "choices": "options"},
        splits={"validation": "dev"},
        reader="race",
        **kwargs,
    )


def _mnli(variant: str, **kwargs: Any) -> TfdsDataset:
    splits = {"validation": f"validation_{variant}", "test": f"test_{variant}"}
    return _entailment("glue/mnli", splits=splits, held_out=f"glue/mnli_{variant}", **kwargs)


DATASETS = {
    # Natural language inference: table 2.
    "mnli_matched": _mnli("matched", glue_file="MNLI-m.tsv", paper_score=82.1, previous_best=80.6),
    "mnli_mismatched": _mnli(
        "mismatched", glue_file="MNLI-mm.tsv", paper_score=81.4, previous_best=80.1
    ),
    "snli": _entailment("snli", paper_score=89.9, previous_best=89.3),
    # For small machines: models learn from the 9,824 labelled pairs of the test split, and are
    # scored on the validation split.
    "snli_slice": _entailment("snli", splits={"train": "test"}),
    "scitail": _entailment("sci_tail", paper_score=88.3, previous_best=83.3),
    "qnli": _entailment(
        "glue/qnli",
        "question",
        "sentence",
        glue_file="QNLI.tsv",
        paper_score=88.1,
        previous_best=82.3,
    ),
    "rte": _entailment(
        "glue/rte",
        "sentence1",
        "sentence2",
        glue_file="RTE.tsv",
        paper_score=56.0,
        previous_best=61.7,
    ),
    # Question answering and commonsense reasoning: table 3.
    "story_cloze": TfdsDataset(
        ("story_cloze/2016",),
        MULTIPLE_CHOICE,
        {"context": "context", "choices": "endings"},
        # Its train split has no endings to choose from. As in the paper's released code, a fifth
        # of the labelled stories is for validation.
        splits={"train": "validation[:80%]", "validation": "validation[80%:]"},
        reader="story_cloze",
        paper_score=86.5,
        previous_best=77.6,
    ),
    "race_middle": _race("middle", paper_score=62.9, previous_best=60.2),
    "race_high": _race("high", paper_score=57.4, previous_best=50.3),
    "race": _race("middle", "high", paper_score=59.0, previous_best=53.3),
    # The paper's zero-shot probe, for fine-tuning. It has two splits: train and test.
    "dprd": TfdsDataset(
        ("definite_pronoun_resolution",),
        MULTIPLE_CHOICE,
        {"context": "sentence", "choices": "candidates"},
        splits={"validation": "test"},
        reader="definite_pronouns",
    ),
    # Semantic similarity and classification: table 4.
    "cola": _single(
        "glue/cola",
        metrics=("matthews",),
        glue_file="CoLA.tsv",
        paper_score=45.4,
        previous_best=35.0,
    ),
    "sst2": _single("glue/sst2", glue_file="SST-2.tsv", paper_score=91.3, previous_best=93.2),
    "mrpc": _similarity(
        "glue/mrpc",
        metrics=("f1", "accuracy"),
        glue_file="MRPC.tsv",
        paper_score=82.3,
        previous_best=86.0,
    ),
    "stsb": _similarity(
        "glue/stsb",
        metrics=("pearson", "spearman"),
        score_range=(0, 5),
        glue_file="STS-B.tsv",
        paper_score=82.0,
        previous_best=81.0,
    ),
    "qqp": _similarity(
        "glue/qqp",
        "question1",
        "question2",
        metrics=("f1", "accuracy"),
        glue_file="QQP.tsv",
        paper_score=70.3,
        previous_best=66.1,
    ),
}


def find_dataset(name: str) -> TfdsDataset:
    """Returns the data set that `--task` names. Raises ValueError, naming the known ones."""
    if name not in DATASETS:
        raise ValueError(f"Unknown task {name!r}; expected one of {sorted(DATASETS)}.")
    return DATASETS[name]
