"""Options of exports: batching, embeddings and explanations.

`gpt1 export --help` reads this file, so it imports no TensorFlow.
"""

import dataclasses
import math

from gpt1_keras.cli import option

GROUP = "batching inside the graph"  # a heading in --help

MEAN, LAST, TOKENS = "mean", "last", "tokens"
POOLINGS = (MEAN, LAST, TOKENS)

INTEGRATED_GRADIENTS = "integrated-gradients"
LEAVE_ONE_OUT = "leave-one-out"
METHODS = (INTEGRATED_GRADIENTS, LEAVE_ONE_OUT)


@dataclasses.dataclass(frozen=True)
class Batching:
    """How requests that arrive at the same time are merged.

    Args:
        max_batch_size: the most examples that are computed at once. Larger requests are split.
        timeout_ms: milliseconds that the first example waits for others while a batch has room.
            With 0, an idle server answers at once, and a busy one takes together all examples that
            have arrived meanwhile.
        max_queue: the number of batches that may wait. Further requests fail at once with
            UNAVAILABLE. A request with more examples than a whole queue holds fails with
            INVALID_ARGUMENT.

    Raises:
        ValueError: a number is below 1, or a time is negative or infinite.
    """

    max_batch_size: int = option("examples to answer at once", 32, group=GROUP)
    timeout_ms: float = option(
        "milliseconds that an example waits for others", 0.0, name="--batch-timeout-ms", group=GROUP
    )
    max_queue: int = option(
        "batches that may wait; further requests fail with UNAVAILABLE", 16, group=GROUP
    )

    def __post_init__(self) -> None:
        for name in ("max_batch_size", "max_queue"):
            if getattr(self, name) < 1:
                raise ValueError(f"`{name}` must be at least 1. Received: {getattr(self, name)}.")
        if not 0.0 <= self.timeout_ms < math.inf:
            raise ValueError(f"`timeout_ms` must be at least 0. Received: {self.timeout_ms}.")


@dataclasses.dataclass(frozen=True)
class Embedding:
    """What the signature `embed` returns for a text.

    Args:
        pooling: `"mean"` for the mean of all tokens' hidden states, `"last"` for the last token's,
            `"tokens"` for each token's.
        normalize: whether vectors are scaled to length 1, so that their products are cosines.

    Raises:
        ValueError: another pooling.
    """

    pooling: str
    normalize: bool = False

    def __post_init__(self) -> None:
        if self.pooling not in POOLINGS:
            raise ValueError(
                f"`pooling` must be one of {list(POOLINGS)}. Received: {self.pooling!r}."
            )


@dataclasses.dataclass(frozen=True)
class Explanation:
    """How the signature `explain` finds the words' shares in an answer.

    Args:
        method: `"integrated-gradients"`, whose cost depends on the length of a text and not on its
            number of words; or `"leave-one-out"`, which is exact, and runs the model once more for
            each word.
        steps: for integrated gradients, the number of points at which gradients are computed. Twice
            as many make the shares' sum more exact, and take twice as long.
        max_words: for leave-one-out, the most words of an example; longer examples are refused.

    Raises:
        ValueError: the method is unknown, or a number is below 1.
    """

    method: str = INTEGRATED_GRADIENTS
    steps: int = 16
    max_words: int = 128

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise ValueError(f"`method` must be one of {METHODS}. Received: {self.method!r}.")
        for name in ("steps", "max_words"):
            if getattr(self, name) < 1:
                raise ValueError(f"`{name}` must be at least 1. Received: {getattr(self, name)}.")
