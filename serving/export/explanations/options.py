"""How an export explains its answers."""

import dataclasses

INTEGRATED_GRADIENTS = "integrated-gradients"
LEAVE_ONE_OUT = "leave-one-out"
METHODS = (INTEGRATED_GRADIENTS, LEAVE_ONE_OUT)


@dataclasses.dataclass(frozen=True)
class Explanation:
    """How the signature `explain` finds the words' shares in an answer.

    Args:
        method: `"integrated-gradients"`, which costs as much for a text of many words as for one of
            few words and is as long; or `"leave-one-out"`, which is exact and answers each text
            once more for each of its words.
        steps: of integrated gradients: points between no words and all words at which gradients are
            computed. More make their sum more exact, and take as much longer.
        max_words: of leaving one out: the most words of an example; one of more is refused.

    Raises:
        ValueError: an unknown method, or a number below 1.
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
