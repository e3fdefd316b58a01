"""The options that determine a fine-tuning."""

import dataclasses
import math
import re

from gpt1_keras.cli import check_at_least_one, option
from gpt1_keras.labelled_files import (
    columns_option,
    header_row_option,
    parse_columns,
    sheet_option,
)
from gpt1_keras.presets import CONFIGURATIONS, PRESET_HELP, PRESET_NAMES, configuration
from gpt1_keras.recipe import FineTuningRecipe
from gpt1_keras.tokenization.normalization import check_normalization
from training.datasets.paper_datasets import DATASETS, find_dataset
from training.runs.pretrain_options import DTYPES

_START = "what to start from (one of --preset and --config)"  # a group in --help
VALIDATION_SHARE = 0.2  # of --train, where there is no --validation
_SCORES = re.compile(r"(-?[0-9]{1,9}),(-?[0-9]{1,9})")
_PAPER = FineTuningRecipe()


@dataclasses.dataclass(frozen=True)
class FinetuneOptions:
    """What determines a run; a run resumes only under the same options.

    `training.runs.finetuning` fills in the epochs and the learning rate where they are None.
    """

    task: str | None = option(f"one of {', '.join(sorted(DATASETS))}; or give --train", None)
    train: str | None = option(
        "your own file to learn from: .csv, .tsv, .jsonl, .parquet, .xlsx, or a folder that "
        "Hugging Face's Dataset.save_to_disk wrote",
        None,
        metavar="FILE",
    )
    validation: str | None = option(
        "your own file to choose the best epoch on (default: a share of --train, which the run "
        "keeps as validation.jsonl)",
        None,
        metavar="FILE",
    )
    validation_share: float | None = option(
        f"that share, of each class (default: {VALIDATION_SHARE})", None
    )
    columns: str | None = columns_option()
    sheet: str | None = sheet_option()
    header_row: int | None = header_row_option()
    score_range: str | None = option(
        "with --train: labels are scores, of which these are the least and the greatest (default: "
        "they are if all are numbers and some have a fraction)",
        None,
        metavar="LOW,HIGH",
    )
    preset: str | None = option(PRESET_HELP, None, name=PRESET_NAMES, group=_START)
    transfer: str = option(
        "with --preset: all; none, for fresh weights; or N, for embeddings and the first N blocks",
        "all",
        group=_START,
    )
    config: str | None = option(
        f"a fresh backbone: one of {', '.join(CONFIGURATIONS)}", None, group=_START
    )
    tokenizer: str | None = option(
        "with --config: folder of a tokenizer, or a preset", None, group=_START
    )
    num_merges: int = option(
        "with --config, without --tokenizer: merges to learn", 8000, group=_START
    )
    normalization: str | None = option(
        "how text becomes words, bert or original (default: that of the preset or --tokenizer; "
        "bert for a new tokenizer)",
        None,
        group=_START,
    )
    epochs: int | None = option(
        f"passes over the training data (default: the preset's, {_PAPER.epochs}, or as many as "
        f"make {_PAPER.min_updates} updates)",
        None,
    )
    batch_size: int = option("examples in an update", 32)
    learning_rate: float | None = option(
        "the schedule's peak (default: the preset's, 2e-4 for those that ship and for small "
        f"configurations; otherwise the paper's, {_PAPER.learning_rate:g})",
        None,
    )
    lm_coefficient: float = option("lambda, the weight of L1", 0.5)
    layer_decay: float | None = option(
        "factor of the rate for each layer from the head down to the embeddings (default: 1)", None
    )
    class_weight: str | None = option(
        "balanced: all classes weigh the same in the loss (default: all examples do)",
        None,
    )
    lora: int | None = option(
        "with --preset: train only adapters of this rank (LoRA) and the head; the saved model has "
        "the adapters merged into its weights",
        None,
        metavar="RANK",
    )
    patience: int | None = option(
        "stop after this many epochs without a better validation score (default: never)", None
    )
    dropout: float | None = option("of the backbone (default: the model's own)", None)
    dtype: str | None = option(f"to train in: one of {', '.join(DTYPES)} (default: float32)", None)
    limit_examples: int | None = option(
        "train on this many examples, chosen at random (default: all)", None
    )
    seed: int = option("of weights, order and dropout", 0)

    def __post_init__(self) -> None:
        if (self.task is None) == (self.train is None):
            raise ValueError("Give either --task or --train.")
        if self.task is not None:
            find_dataset(self.task)
        if self.train is None and (
            self.validation or parse_columns(self.columns) or self.sheet or self.header_row
        ):
            raise ValueError("validation, columns, sheet and header_row are for --train.")
        if self.score_range is not None and (self.train is None or self.scores is None):
            raise ValueError(
                "score_range is for --train, and must be two whole numbers with a comma between "
                f"them, the lower one first. Received: {self.score_range}."
            )
        if self.validation_share is not None:
            if self.train is None or self.validation is not None:
                raise ValueError("validation_share is of --train, without --validation.")
            if not 0 < self.validation_share < 1:
                raise ValueError(
                    f"validation_share must be above 0 and below 1. Received: "
                    f"{self.validation_share}."
                )
        check_at_least_one(
            self, "num_merges", "epochs", "batch_size", "limit_examples", "lora", "patience"
        )
        if self.learning_rate is not None and not 0 < self.learning_rate < math.inf:
            raise ValueError(f"learning_rate must be above 0. Received: {self.learning_rate}.")
        if not 0 <= self.lm_coefficient < math.inf:
            raise ValueError(f"lm_coefficient must be at least 0. Received: {self.lm_coefficient}.")
        if self.dropout is not None and not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must be at least 0 and below 1. Received: {self.dropout}.")
        if self.layer_decay is not None and not 0 < self.layer_decay <= 1:
            raise ValueError(
                f"layer_decay must be above 0 and at most 1. Received: {self.layer_decay}."
            )
        if self.dtype not in (None, *DTYPES):
            raise ValueError(f"Unknown dtype {self.dtype!r}; expected one of {list(DTYPES)}.")
        if self.class_weight not in (None, "balanced"):
            raise ValueError(f"class_weight must be balanced. Received: {self.class_weight}.")
        if self.lora is not None and (self.preset is None or self.transfer != "all"):
            raise ValueError(
                "lora adapts pre-trained weights: it needs --preset, and all of its blocks."
            )
        if self.normalization is not None:
            check_normalization(self.normalization)
        if self.transfer not in ("all", "none") and not self.transfer.isdecimal():
            raise ValueError(f"transfer must be all, none or a number. Received: {self.transfer}.")
        if (self.preset is None) == (self.config is None):
            raise ValueError("Give either --preset, to fine-tune, or --config, to start afresh.")
        if self.config is not None:
            configuration(self.config)

    @property
    def scores(self) -> tuple[int, int] | None:
        """The least and the greatest score that `score_range` names, if any."""
        found = _SCORES.fullmatch(self.score_range or "")
        low, high = map(int, found.groups()) if found else (0, 0)
        return (low, high) if low < high else None

    @property
    def initial_weights(self) -> str | None:
        """The preset whose weights the model starts with, if any."""
        return None if self.transfer == "none" else self.preset
