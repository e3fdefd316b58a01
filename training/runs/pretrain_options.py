"""What determines a pre-training, and when it looks up."""

import dataclasses

from gpt1_keras.cli import check_at_least_one
from gpt1_keras.presets import configuration

DTYPES = ("float32", "mixed_bfloat16", "mixed_float16")


@dataclasses.dataclass(frozen=True)
class PretrainOptions:
    """What determines a run; a run goes on only under the same options.

    Raises:
        ValueError: an unknown configuration or dtype, or a number out of its range.
    """

    config: str
    steps: int
    batch_size: int = 64
    sequence_length: int | None = None
    learning_rate: float = 2.5e-4
    warmup_steps: int = 2000
    clip_norm: float | None = None
    dropout: float | None = None
    dtype: str = "float32"
    accumulation_steps: int = 1
    seed: int = 0

    def __post_init__(self):
        context = configuration(self.config).get("max_sequence_length", 512)
        if self.sequence_length is None:
            object.__setattr__(self, "sequence_length", context)
        check_at_least_one(self, "steps", "batch_size", "sequence_length", "accumulation_steps")
        for name, is_right, expected in (
            ("learning_rate", lambda value: value > 0, "above 0"),
            ("clip_norm", lambda value: value is None or value > 0, "above 0"),
            ("warmup_steps", lambda value: value >= 0, "at least 0"),
            ("dropout", lambda value: value is None or 0 <= value < 1, "at least 0 and below 1"),
        ):
            if not is_right(getattr(self, name)):
                raise ValueError(f"{name} must be {expected}. Received: {getattr(self, name)}.")
        if self.sequence_length > context:
            raise ValueError(
                f"sequence_length must be at most {context}, the context of {self.config}. "
                f"Received: {self.sequence_length}."
            )
        if self.dtype not in DTYPES:
            raise ValueError(f"Unknown dtype {self.dtype!r}; expected one of {list(DTYPES)}.")


@dataclasses.dataclass(frozen=True)
class CheckpointSchedule:
    """When to keep and to look: changes nothing in the model that comes out.

    Raises:
        ValueError: a number below 1, or snapshots where there is no checkpoint.
    """

    checkpoint_every: int = 500
    keep: int = 3
    snapshot_every: int | None = None
    validation_batches: int | None = None

    def __post_init__(self):
        check_at_least_one(self, "checkpoint_every", "keep", "snapshot_every", "validation_batches")
        if (self.snapshot_every or 0) % self.checkpoint_every:
            raise ValueError(
                f"snapshot_every must be a multiple of checkpoint_every={self.checkpoint_every}. "
                f"Received: {self.snapshot_every}."
            )
