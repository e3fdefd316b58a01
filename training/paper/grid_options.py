"""The options of grids: many fine-tuning runs that differ in what the paper compares."""

import dataclasses
from typing import Any

from gpt1_keras.cli import check_at_least_one, option
from gpt1_keras.presets import PRESET_HELP, PRESET_NAMES
from gpt1_keras.recipe import FineTuningRecipe
from training.datasets.paper_datasets import DATASETS, find_dataset
from training.runs.finetune_options import FinetuneOptions

# The paper's ablations, and the options of `FinetuneOptions` that they change.
VARIANTS: dict[str, dict[str, Any]] = {
    "full": {},
    "no_auxiliary_loss": {"lm_coefficient": 0.0},
    "no_pretraining": {"transfer": "none"},
}
ALL_LABELS = "all"
_PAPER = FineTuningRecipe()  # of any preset: the paper's tables are made in the paper's way


@dataclasses.dataclass(frozen=True)
class GridOptions:
    """The options that all runs of a grid share."""

    tasks: str = option("some of " + ",".join(sorted(DATASETS)))
    preset: str = option(PRESET_HELP, name=PRESET_NAMES)
    output: str = option("folder for runs/, baselines/, the tables and the plot")
    seeds: int = option("how many seeds", 3)
    epochs: int = option("passes over the training data", _PAPER.epochs)
    batch_size: int = option("examples in an update", FinetuneOptions.batch_size)
    learning_rate: float = option("the schedule's peak", _PAPER.learning_rate)
    dropout: float | None = option("the backbone's dropout (default: the model's own)", None)
    dtype: str | None = option("train in this dtype (default: float32)", None)

    def __post_init__(self) -> None:
        check_at_least_one(self, "seeds")
        for name in self.dataset_names:
            find_dataset(name)

    @property
    def dataset_names(self) -> list[str]:
        """Keys of `training.datasets.paper_datasets.DATASETS`."""
        return self.tasks.split(",")


@dataclasses.dataclass(frozen=True)
class AblationOptions:
    """The ablations of a grid."""

    variants: str = option("some of " + ",".join(VARIANTS), ",".join(VARIANTS))
    lstm: str | None = option(
        "folder of an LSTM's preset, pre-trained in the same way", None, metavar="PRESET"
    )
    layers: bool = option("transfer the first 0, 1, ... blocks too", False)
    limit_examples: int | None = option(
        "train on this many examples, chosen at random (default: all)", None
    )

    def __post_init__(self) -> None:
        check_at_least_one(self, "limit_examples")
        for name in self.variant_names:
            if name not in VARIANTS:
                raise ValueError(f"Unknown variant {name!r}; expected one of {list(VARIANTS)}.")

    @property
    def variant_names(self) -> list[str]:
        """Keys of `VARIANTS`."""
        return self.variants.split(",")


@dataclasses.dataclass(frozen=True)
class CurveOptions:
    """The points of a learning curve."""

    labels: str = option(
        "numbers of labels, sampled by each seed, or all", f"100,300,1000,3000,10000,{ALL_LABELS}"
    )
    min_updates: int = option("least updates of each run: with few labels, it has more epochs", 200)

    def __post_init__(self) -> None:
        check_at_least_one(self, "min_updates")
        for count in self.counts:
            if count != ALL_LABELS and (not count.isdecimal() or not int(count)):
                raise ValueError(
                    f"labels must be numbers above 0, or {ALL_LABELS}. Received: {count!r}."
                )

    @property
    def counts(self) -> list[str]:
        """Numbers of labels, or `ALL_LABELS`."""
        return self.labels.split(",")
