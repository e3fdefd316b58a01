"""The options that determine a fine-tuning."""

import dataclasses
import math
import re

from gpt1_keras.cli import check_at_least_one, check_options, option
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
# What is read of texts that are longer than the model's context: arguments of its preprocessor.
LONG_TEXTS: dict[str, dict[str, float]] = {
    "cut": {"tail": 0.0},
    "head-and-tail": {"tail": 0.5},
    "windows": {"windows": 8},
}
_SCORES = re.compile(r"(-?[0-9]{1,9}),(-?[0-9]{1,9})")
_PAPER = FineTuningRecipe()


@dataclasses.dataclass(frozen=True)
class FinetuneOptions:
    """The options that determine a run; it resumes only under the same ones.

    `training.runs.finetuning` fills in the epochs and the learning rate where they are None.
    """

    task: str | None = option(f"one of {', '.join(sorted(DATASETS))}; or give --train", None)
    train: list[str] | None = option(
        "your own file to learn from, or several: .csv, .tsv, .jsonl, .parquet, .xlsx, or a folder "
        "that Hugging Face's Dataset.save_to_disk wrote",
        None,
        metavar="FILE",
        consume_multiple=True,
    )
    validation: str | None = option(
        "your own file to choose the best epoch on (default: a share of --train, which the run "
        "keeps as validation.jsonl)",
        None,
        metavar="FILE",
    )
    validation_share: float | None = option(
        f"hold back this share of each class of --train (default: {VALIDATION_SHARE})", None
    )
    columns: str | None = columns_option()
    sheet: str | None = sheet_option()
    header_row: int | None = header_row_option()
    score_range: str | None = option(
        "with --train: labels are scores from LOW to HIGH (default: labels are scores if all are "
        "numbers and some have a fraction)",
        None,
        metavar="LOW,HIGH",
    )
    long_texts: str | None = option(
        f"how texts beyond the model's context are read: {', '.join(LONG_TEXTS)}, up to "
        f"{LONG_TEXTS['windows']['windows']} of a single text, whose answers are averaged "
        "(default: as a fine-tuned preset does it; or windows of single texts, others are cut)",
        None,
    )
    preset: str | None = option(PRESET_HELP, None, name=PRESET_NAMES, group=_START)
    transfer: str = option(
        "with --preset: all; none, for fresh weights; or N, for embeddings and the first N blocks",
        "all",
        group=_START,
    )
    fresh_head: bool = option(
        "with --preset and --train: forget the preset's classes (default: if FILE has one of them, "
        "keep them, and learn again from the preset's own files)",
        False,
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
    head_first: bool | None = option(
        "fit a fresh head alone before all weights (default: as the preset says, which of those "
        "that ship gpt1_tiny_books does for up to 2,112 examples)",
        None,
        negative="--no-head-first",
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
    dropout: float | None = option("the backbone's dropout (default: the model's own)", None)
    dtype: str | None = option(
        f"train in this dtype: one of {', '.join(DTYPES)} (default: float32)", None
    )
    limit_examples: int | None = option(
        "train on this many examples, chosen at random (default: all)", None
    )
    seed: int = option("seed of the weights, the order and dropout", 0)

    def __post_init__(self) -> None:
        if isinstance(self.train, str):  # as scripts give a single file
            object.__setattr__(self, "train", [self.train])
        if (self.task is None) == (self.train is None):
            raise ValueError("Give either --task or --train.")
        if self.task is not None:
            find_dataset(self.task)
        if self.train is None and (
            self.validation or parse_columns(self.columns) or self.sheet or self.header_row
        ):
            raise ValueError("validation, columns, sheet and header_row need --train.")
        if self.validation_share is not None and (self.train is None or self.validation):
            raise ValueError(
                "validation_share needs --train without --validation: it holds back a share of it."
            )
        if self.lora is not None and (self.preset is None or self.transfer != "all"):
            raise ValueError(
                "lora adapts pre-trained weights: it needs --preset, and all of its blocks."
            )
        if self.fresh_head and (self.preset is None or self.train is None):
            raise ValueError("fresh_head needs --preset and --train.")
        if (self.preset is None) == (self.config is None):
            raise ValueError("Give either --preset, to fine-tune, or --config, to start afresh.")
        check_at_least_one(
            self, "num_merges", "epochs", "batch_size", "limit_examples", "lora", "patience"
        )
        share, rate, dropout = self.validation_share, self.learning_rate, self.dropout
        check_options(
            self,
            (
                "score_range",
                self.score_range is None or (self.train is not None and self.scores is not None),
                "two whole numbers with a comma between them, the lower one first, with --train",
            ),
            ("validation_share", share is None or 0 < share < 1, "above 0 and below 1"),
            ("learning_rate", rate is None or 0 < rate < math.inf, "above 0"),
            ("lm_coefficient", 0 <= self.lm_coefficient < math.inf, "at least 0"),
            ("dropout", dropout is None or 0 <= dropout < 1, "at least 0 and below 1"),
            (
                "layer_decay",
                self.layer_decay is None or 0 < self.layer_decay <= 1,
                "above 0 and at most 1",
            ),
            ("dtype", self.dtype in (None, *DTYPES), f"one of {list(DTYPES)}"),
            ("long_texts", self.long_texts in (None, *LONG_TEXTS), f"one of {[*LONG_TEXTS]}"),
            ("class_weight", self.class_weight in (None, "balanced"), "balanced"),
            (
                "transfer",
                self.transfer in ("all", "none") or self.transfer.isdecimal(),
                "all, none or a number",
            ),
        )
        if self.normalization is not None:
            check_normalization(self.normalization)
        if self.config is not None:
            configuration(self.config)

    @property
    def source(self) -> str:
        """The source of the examples, for messages."""
        return self.task or ", ".join(self.train or ())

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
