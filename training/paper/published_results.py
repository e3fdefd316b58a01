"""The paper's tables of fine-tuned results as data."""

import dataclasses
import statistics

from training.datasets.paper_datasets import DATASETS

BEFORE, PAPER, OURS = "best before the paper", "the paper", "ours"
FULL = "full"

# Table 5 by row: CoLA, SST-2, MRPC, STS-B, QQP, MNLI, QNLI, RTE.
_ABLATION_COLUMNS = {
    "CoLA": ("cola",),
    "SST-2": ("sst2",),
    "MRPC": ("mrpc",),
    "STS-B": ("stsb",),
    "QQP": ("qqp",),
    "MNLI": ("mnli_matched", "mnli_mismatched"),
    "QNLI": ("qnli",),
    "RTE": ("rte",),
}
# Further columns of ours, where there are results: data sets that suit small machines.
_BESIDE_COLUMNS = (
    ("MRPC", "mrpc", "accuracy"),
    ("SNLI, slice", "snli_slice", "accuracy"),
    ("RACE-m", "race_middle", "accuracy"),
    ("DPRD", "dprd", "accuracy"),
)
_ABLATION = {
    FULL: (45.4, 91.3, 82.3, 82.0, 70.3, 81.8, 88.1, 56.0),
    "no pre-training": (18.9, 84.0, 79.4, 30.9, 65.5, 75.7, 71.2, 53.8),
    "no auxiliary loss": (47.9, 92.0, 84.9, 83.2, 69.8, 81.1, 86.9, 54.4),
    "LSTM": (30.3, 90.5, 83.2, 71.8, 68.1, 73.7, 81.1, 54.6),
}
# Small models of others: Turc et al. (2019), of 4 and 11 million parameters. GLUE's server scored
# them, each data set at its best learning rate; github.com/google-research/bert has the scores.
_SMALL_MODEL_SCORES = (
    *(("cola", "matthews"), ("sst2", "accuracy"), ("mrpc", "f1"), ("mrpc", "accuracy")),
    *(("stsb", "pearson"), ("qqp", "f1")),
    *((name, "accuracy") for name in ("mnli_matched", "mnli_mismatched", "qnli", "rte")),
)
_SMALL_MODELS: dict[str, dict[tuple[str, str], float]] = {
    name: dict(zip(_SMALL_MODEL_SCORES, scores, strict=True))
    for name, scores in {
        "BERT-Tiny": (0.0, 83.2, 81.1, 71.1, 74.3, 62.2, 70.2, 70.3, 81.5, 57.2),
        "BERT-Mini": (0.0, 85.9, 81.1, 71.8, 75.4, 66.4, 74.8, 74.3, 84.1, 57.9),
    }.items()
}


@dataclasses.dataclass(frozen=True)
class Column:
    """A data set in a table.

    Attributes:
        name: the paper's name of the data set.
        datasets: keys of `training.datasets.paper_datasets.DATASETS`; the column is their mean.
        metric: key of `training.evaluation.metrics.METRICS`.
        published: dict from row to score in percent.
    """

    name: str
    datasets: tuple[str, ...]
    metric: str
    published: dict[str, float | None]


@dataclasses.dataclass(frozen=True)
class Table:
    """A table of the paper.

    Attributes:
        published: names of its published rows.
        variants: names of ours, as `training.paper.gathered_results.variant_of` returns them, in
            the order of the last published rows.
        beside: further columns, which the paper's table does not have.
    """

    title: str
    columns: tuple[Column, ...]
    published: tuple[str, ...] = (BEFORE, PAPER)
    variants: tuple[str, ...] = (FULL,)
    beside: tuple[Column, ...] = ()


def small_models(column: Column) -> dict[str, float | None]:
    """Returns the published scores of others' small models, by name; None where there is none."""
    keys = [(dataset, column.metric) for dataset in column.datasets]
    return {
        name: statistics.mean(scores[key] for key in keys) if scores.keys() >= set(keys) else None
        for name, scores in _SMALL_MODELS.items()
    }


def _columns(**datasets: str) -> tuple[Column, ...]:
    return tuple(
        Column(
            label, (name,), DATASETS[name].metrics[0],
            {BEFORE: DATASETS[name].previous_best, PAPER: DATASETS[name].paper_score},
        )
        for name, label in datasets.items()
    )  # fmt: skip


TABLES = {
    "table2": Table(
        "Table 2: natural language inference",
        _columns(
            mnli_matched="MNLI-m",
            mnli_mismatched="MNLI-mm",
            snli="SNLI",
            scitail="SciTail",
            qnli="QNLI",
            rte="RTE",
        ),
    ),
    "table3": Table(
        "Table 3: question answering and commonsense reasoning",
        _columns(
            story_cloze="Story Cloze", race_middle="RACE-m", race_high="RACE-h", race="RACE"
        ),
    ),
    "table4": Table(
        "Table 4: similarity and classification",
        _columns(cola="CoLA", sst2="SST-2", mrpc="MRPC", stsb="STS-B", qqp="QQP"),
    ),
    "table5": Table(
        "Table 5: ablations",
        tuple(
            Column(
                name, datasets, DATASETS[datasets[0]].metrics[0],
                {f"{PAPER}, {row}": scores[index] for row, scores in _ABLATION.items()},
            )
            for index, (name, datasets) in enumerate(_ABLATION_COLUMNS.items())
        ),
        published=tuple(f"{PAPER}, {row}" for row in _ABLATION),
        variants=tuple(_ABLATION),
        beside=tuple(
            Column(name, (dataset,), metric, {}) for name, dataset, metric in _BESIDE_COLUMNS
        ),
    ),
}  # fmt: skip
