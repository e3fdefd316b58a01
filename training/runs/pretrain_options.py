"""The options that determine a pre-training, and when it saves and validates."""

import dataclasses
import math

from gpt1_keras.cli import check_at_least_one, check_options, option
from gpt1_keras.presets import CONFIGURATIONS, configuration

DTYPES = ("float32", "mixed_bfloat16", "mixed_float16")
PAPER_WARMUP = 2000  # updates
MULTI_WORKER = "multi_worker"
STRATEGIES = ("none", "mirrored", MULTI_WORKER)
MEASURED = "measured"
JIT_COMPILE: dict[str, str | bool] = {"auto": MEASURED, "on": True, "off": False}
_SCHEDULE = "when to save and validate (the model does not depend on it)"  # a group in --help


@dataclasses.dataclass(frozen=True)
class PretrainOptions:
    """The options that determine a run; it resumes only under the same ones."""

    config: str = option(f"the backbone: one of {', '.join(CONFIGURATIONS)}")
    steps: int = option("updates of the whole run")
    batch_size: int = option("windows in an update, on all replicas", 64)
    sequence_length: int | None = option("tokens in a window (default: the model's context)", None)
    learning_rate: float = option("the schedule's peak", 2.5e-4)
    warmup_steps: int | None = option(
        f"updates to warm up over (default: the paper's {PAPER_WARMUP:,}, or a tenth of --steps if "
        "that is less)",
        None,
    )
    decay_steps: int | None = option(
        "keep the rate constant after the warm-up, and decay it linearly to 0 over this many "
        "updates at the end (default: the paper's cosine over all)",
        None,
    )
    clip_norm: float | None = option("global norm to clip gradients to (default: none)", None)
    dropout: float | None = option(
        "rate while pre-training (default: that of the initial weights or the configuration)",
        None,
    )
    initial_weights: str | None = option(
        "go on from the weights of a preset with this configuration and the corpus's tokenizer "
        "(default: random weights)",
        None,
        metavar="PRESET",
    )
    repeat_share: float = option(
        "share of the windows that repeat a passage further on, so that a model that already "
        "predicts words learns to copy (docs/evidence/versions_1_to_3)",
        0.0,
    )
    pair_share: float = option(
        "share of the windows that hold pairs of passages, framed as tasks are, and after each a "
        "word that says what the second is to the first (docs/pretraining.md)",
        0.0,
    )
    dtype: str = option(f"train in this dtype: one of {', '.join(DTYPES)}", "float32")
    accumulation_steps: int = option("slices of a batch whose gradients are added", 1)
    seed: int = option("seed of the weights, the windows and dropout", 0)

    def __post_init__(self) -> None:
        arguments = configuration(self.config)
        context = arguments.get("max_sequence_length", 512)
        length = context if self.sequence_length is None else self.sequence_length
        object.__setattr__(self, "sequence_length", length)
        check_at_least_one(
            self, "steps", "decay_steps", "batch_size", "sequence_length", "accumulation_steps"
        )
        check_options(
            self,
            ("learning_rate", 0 < self.learning_rate < math.inf, "above 0"),
            ("clip_norm", self.clip_norm is None or self.clip_norm > 0, "above 0"),
            ("warmup_steps", (self.warmup_steps or 0) >= 0, "at least 0"),
            (
                "decay_steps",
                self.decay_steps is None or self.decay_steps <= self.steps,
                f"at most steps={self.steps}",
            ),
            ("repeat_share", 0 <= self.repeat_share <= 1, "from 0 to 1"),
            (
                "pair_share",
                0 <= self.pair_share and self.repeat_share + self.pair_share <= 1 + 1e-9,
                f"from 0 to 1 - repeat_share={1 - self.repeat_share:g}",
            ),
            (
                "dropout",
                self.dropout is None or 0 <= self.dropout < 1,
                "at least 0 and below 1",
            ),
            ("dtype", self.dtype in DTYPES, f"one of {list(DTYPES)}"),
        )
        if length > context:
            raise ValueError(
                f"sequence_length must be at most {context}, the context of {self.config}. "
                f"Received: {length}."
            )

    @property
    def warmup(self) -> int:
        """The updates to warm up over, as given or by default."""
        default = min(PAPER_WARMUP, self.steps // 10)
        return default if self.warmup_steps is None else self.warmup_steps

    @property
    def decay_start(self) -> int | None:
        """The update from which the rate decays, if it is constant before; or None."""
        return None if self.decay_steps is None else self.steps - self.decay_steps


@dataclasses.dataclass(frozen=True)
class CheckpointSchedule:
    """When to save and to validate; the model does not depend on it."""

    checkpoint_every: int = option(
        "updates between validations, each with a line, an entry of the history and a checkpoint; "
        "there are other checkpoints at least every two minutes",
        500,
        group=_SCHEDULE,
    )
    keep: int = option("checkpoints to keep", 3, group=_SCHEDULE)
    snapshot_every: int | None = option(
        "updates between weights that are kept for good (default: none)", None, group=_SCHEDULE
    )
    validation_batches: int | None = option(
        "batches to validate on at each checkpoint (default: all)", None, group=_SCHEDULE
    )

    def __post_init__(self) -> None:
        check_at_least_one(self, "checkpoint_every", "keep", "snapshot_every", "validation_batches")
        if (self.snapshot_every or 0) % self.checkpoint_every:
            raise ValueError(
                f"snapshot_every must be a multiple of checkpoint_every={self.checkpoint_every}. "
                f"Received: {self.snapshot_every}."
            )
