"""How a language model continues a text: the options of programs and of the signature `generate`.

This file imports neither Keras nor TensorFlow, so that `--help` shows the options without them.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from gpt1_keras.cli import option


@dataclasses.dataclass(frozen=True)
class GenerationOptions:
    """The options by the names of the signature's inputs, with their defaults."""

    length: int = option("number of tokens to add", 40)
    temperature: float = option(
        "below 1 for likelier texts, above for more surprising ones; 0 for the likeliest token "
        "each time",
        0.8,
    )
    top_k: int = option("number of likeliest tokens to choose from; 0 for all", 40)
    top_p: float = option(
        "choose from the likeliest tokens that together have this probability; 1 for all", 1.0
    )
    seed: int = option("other texts for another seed", 0)
    stop: tuple[str, ...] = option(
        "end the text before this one; may be given several times", (), consume_multiple=False
    )


def bounds(options: Mapping[str, Any], context: int) -> Iterator[tuple[str, Any, str]]:
    """Yields the bounds of options, which may be numbers or tensors.

    Args:
        options: the options by name.
        context: the most tokens that the model reads.

    Yields:
        An option's name, whether it fits, and what is expected.
    """
    length, temperature, top_p = options["length"], options["temperature"], options["top_p"]
    yield "length", (length >= 1) & (length < context), f"from 1 to {context - 1}"
    yield "temperature", (temperature >= 0) & (temperature < float("inf")), "at least 0"
    yield "top_k", options["top_k"] >= 0, "at least 0"
    yield "top_p", (top_p > 0) & (top_p <= 1), "above 0 and at most 1"
