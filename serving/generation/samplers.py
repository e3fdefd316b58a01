"""Makes KerasHub's samplers from a program's options."""

import dataclasses
import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from gpt1_keras.cli import option

if TYPE_CHECKING:
    import keras_hub

_DEFAULTS = {"temperature": 1.0, "k": 5, "p": 0.9, "beams": 5}
# Each sampler's class in KerasHub, and the options that it takes.
_SAMPLERS = {
    "greedy": ("GreedySampler", ()),
    "random": ("RandomSampler", ("temperature", "seed")),
    "top_k": ("TopKSampler", ("k", "temperature", "seed")),
    "top_p": ("TopPSampler", ("p", "temperature", "seed")),
    "beam": ("BeamSampler", ("beams",)),
}
_RANGES: dict[str, tuple[str, Callable[[float], bool]]] = {
    "temperature": ("above 0", lambda value: 0 < value < math.inf),
    "k": ("at least 1", lambda value: value >= 1),
    "p": ("above 0 and at most 1", lambda value: 0 < value <= 1),
    "beams": ("at least 1", lambda value: value >= 1),
}


@dataclasses.dataclass(frozen=True)
class SamplerOptions:
    """A sampler and its options; None for the default."""

    sampler: str = option(f"one of {', '.join(_SAMPLERS)}", "top_k")
    k: int | None = option(
        f"top_k: how many tokens to choose from (default: {_DEFAULTS['k']})", None
    )
    p: float | None = option(
        "top_p: the probability of the likeliest tokens to choose from "
        f"(default: {_DEFAULTS['p']})",
        None,
    )
    temperature: float | None = option(
        "random, top_k, top_p: below 1 for likelier texts, above for more surprising ones "
        f"(default: {_DEFAULTS['temperature']})",
        None,
    )
    beams: int | None = option(f"beam: texts to keep (default: {_DEFAULTS['beams']})", None)
    seed: int | None = option("random, top_k, top_p: for the same texts every time", None)

    def make(self) -> "keras_hub.samplers.Sampler":
        """Makes the sampler.

        Raises:
            ValueError: the sampler is unknown, or an option is out of range or not the sampler's.
        """
        if self.sampler not in _SAMPLERS:
            raise ValueError(
                f"Unknown sampler {self.sampler!r}; expected one of {list(_SAMPLERS)}."
            )
        given = {name: value for name, value in vars(self).items() if value is not None}
        class_name, names = _SAMPLERS[given.pop("sampler")]
        for name, value in given.items():
            if name not in names:
                raise ValueError(
                    f"The sampler {self.sampler!r} takes no {name}. Received: {value}."
                )
        values = {name: given.get(name, _DEFAULTS.get(name)) for name in names}
        for name, value in values.items():
            expected, fits = _RANGES.get(name, ("", lambda value: True))
            if not fits(value):
                raise ValueError(f"{name} must be {expected}. Received: {value}.")
        if "beams" in values:
            values["num_beams"] = values.pop("beams")
        import keras_hub  # here, because `--help` shows these options without it

        return getattr(keras_hub.samplers, class_name)(**values)
