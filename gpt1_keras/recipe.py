"""FineTuningRecipe: how a backbone's weights are fine-tuned by default.

Options of programs name it, so this module imports neither Keras nor TensorFlow.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, Self


@dataclasses.dataclass(frozen=True)
class FineTuningRecipe:
    """Rate, epochs and start of fine-tuning; the defaults are the paper's (section 4.1).

    The paper's data sets make 200 updates or more in three epochs. Fewer hardly teach a model
    anything, so smaller data sets are read more often.

    Attributes:
        learning_rate: the highest rate.
        epochs: passes over the training data.
        min_updates: the least updates; small data have as many epochs as make them.
        head_first: whether on small data a fresh head is fitted alone first (`Task.fit_head`).

    Raises:
        ValueError: a value is out of its range.
    """

    learning_rate: float = 6.25e-5
    epochs: int = 3
    min_updates: int = 200
    head_first: bool = False

    def __post_init__(self) -> None:
        if not _is_number(self.learning_rate, float) or not 0 < self.learning_rate < math.inf:
            raise ValueError(
                f"learning_rate must be a number above 0. Received: {self.learning_rate!r}."
            )
        for name in ("epochs", "min_updates"):
            value = getattr(self, name)
            if not _is_number(value, int) or value < 1:
                raise ValueError(
                    f"{name} must be a whole number of at least 1. Received: {value!r}."
                )
        if not isinstance(self.head_first, bool):
            raise ValueError(f"head_first must be true or false. Received: {self.head_first!r}.")

    @classmethod
    def of(cls, values: Any) -> Self:
        """Makes a recipe of a dict of some of the attributes, or of None for the paper's.

        Raises ValueError for something else, or see the class.
        """
        names = [field.name for field in dataclasses.fields(cls)]
        if values is None:
            return cls()
        if not isinstance(values, Mapping) or not set(values) <= set(names):
            raise ValueError(
                f"fine_tuning must be a dict of some of {names}. Received: {values!r}."
            )
        return cls(**values)

    def as_dict(self) -> dict[str, Any]:
        """Returns the attributes that differ from the paper's; `of` takes them."""
        paper = dataclasses.asdict(FineTuningRecipe())
        own = dataclasses.asdict(self)
        return {name: value for name, value in own.items() if value != paper[name]}

    def epochs_for(self, updates: int) -> int:
        """Returns how many epochs to train, if one epoch has `updates` updates."""
        return max(self.epochs, -(-self.min_updates // updates))

    def fits_head_first(self, updates: int) -> bool:
        """Returns whether to fit a fresh head first, if one epoch has `updates` updates."""
        return self.head_first and self.epochs_for(updates) > self.epochs


def _is_number(value: Any, kind: type) -> bool:
    return isinstance(value, (int, kind)) and not isinstance(value, bool)
