"""The options that determine a fine-tuning."""

import dataclasses
import math
from typing import Any

from gpt1_keras.cli import check_at_least_one, option
from gpt1_keras.presets import (
    CONFIGURATIONS,
    PRESET_HELP,
    configuration,
    find_preset,
)
from gpt1_keras.presets.tokenizers import check_normalization
from training.datasets.tasks import TASKS, find_task
from training.runs.preset_fingerprint import preset_fingerprint
from training.runs.pretrain_options import DTYPES
from training.runs.run_folder import preset_folders

_START = "what to start from (one of --preset and --config)"  # a group in --help
_DROPOUT_HELP = "of the backbone (default: the model's own)"
_DTYPE_HELP = f"to train in: one of {', '.join(DTYPES)} (default: float32)"


@dataclasses.dataclass(frozen=True)
class FinetuneOptions:
    """What determines a run; a run resumes only under the same options.

    Raises:
        FileNotFoundError: the preset does not exist.
        ValueError: an unknown task or configuration, not exactly one of `task` and files or of
            `preset` and `config`, or a number out of its range.
    """

    task: str | None = option(f"one of {', '.join(sorted(TASKS))}; or else", None)
    train: str | None = option("your own .csv, .tsv or .jsonl, and", None, metavar="FILE")
    validation: str | None = option("another, to choose the best epoch by", None, metavar="FILE")
    preset: str | None = option(PRESET_HELP, None, group=_START)
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
        "how text becomes words, bert or original (default: as the preset or --tokenizer says, "
        "else bert)",
        None,
        group=_START,
    )
    epochs: int = option("passes over the training data", 3)
    batch_size: int = option("examples in an update", 32)
    learning_rate: float = option("the schedule's peak", 6.25e-5)
    lm_coefficient: float = option("lambda, the weight of L1", 0.5)
    layer_decay: float | None = option(
        "factor of the rate for each step from the head down to the embeddings (default: 1)", None
    )
    class_weight: str | None = option(
        "of the loss; balanced: classes weigh the same, however frequent (default: examples do)",
        None,
    )
    lora: int | None = option(
        "with --preset: train adapters of this rank (LoRA) and the head alone; the saved model has "
        "them merged into its weights",
        None,
        metavar="RANK",
    )
    patience: int | None = option(
        "stop after this many epochs without a better validation score (default: never)", None
    )
    dropout: float | None = option(_DROPOUT_HELP, None)
    dtype: str | None = option(_DTYPE_HELP, None)
    limit_examples: int | None = option(
        "train on this many examples, chosen at random (default: all)", None
    )
    seed: int = option("of weights, order and dropout", 0)

    def __post_init__(self) -> None:
        if (self.task is None) == (self.train is None) or (self.train is None) != (
            self.validation is None
        ):
            raise ValueError("Give either --task, or both --train and --validation.")
        if self.task is not None:
            find_task(self.task)
        check_at_least_one(
            self, "num_merges", "epochs", "batch_size", "limit_examples", "lora", "patience"
        )
        if not 0 < self.learning_rate < math.inf:
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
        check_normalization(self.normalization)
        if self.transfer not in ("all", "none") and not self.transfer.isdecimal():
            raise ValueError(f"transfer must be all, none or a number. Received: {self.transfer}.")
        if self.preset is not None and self.config is None:
            find_preset(self.preset)
        elif self.config is not None and self.preset is None:
            configuration(self.config)
        else:
            raise ValueError("Give either --preset, to fine-tune, or --config, to start afresh.")

    def as_facts(self) -> dict[str, Any]:
        """What a run's folder keeps: the options, and which weights the preset had, if any.

        So no run goes on from other weights of the same name, and no table mixes the two.
        """
        preset = None if self.transfer == "none" else self.preset
        fingerprint = None if preset is None else preset_fingerprint(preset)
        return {**dataclasses.asdict(self), "preset_fingerprint": fingerprint}

    @property
    def sources(self) -> list[str]:
        """The folders that a run reads."""
        return preset_folders(self.preset, self.tokenizer)


@dataclasses.dataclass(frozen=True)
class SharedOptions:
    """The options that all runs of a table or a learning curve share."""

    epochs: int = option("passes over the training data", FinetuneOptions.epochs)
    batch_size: int = option("examples in an update", FinetuneOptions.batch_size)
    learning_rate: float = option("the schedule's peak", FinetuneOptions.learning_rate)
    dropout: float | None = option(_DROPOUT_HELP, FinetuneOptions.dropout)
    dtype: str | None = option(_DTYPE_HELP, FinetuneOptions.dtype)
