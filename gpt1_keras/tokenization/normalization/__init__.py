"""The two normalizations, which turn text into words: `bert` and `original`.

Programs check a normalization's name before they import NumPy, so the classes are imported where
one is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpt1_keras.tokenization.normalization.normalizer import Normalizer

NORMALIZATIONS = ("bert", "original")


def check_normalization(name: str) -> None:
    """Raises ValueError, naming the known ones, unless there is a normalization of this name."""
    if name not in NORMALIZATIONS:
        raise ValueError(
            f"normalization={name!r} is unknown; expected one of {sorted(NORMALIZATIONS)}."
        )


def find_normalizer(name: str) -> type[Normalizer]:
    """Returns the class of the normalization with this name.

    Raises:
        ValueError: there is none.
    """
    check_normalization(name)
    if name == "bert":
        from gpt1_keras.tokenization.normalization.bert import BertNormalizer

        return BertNormalizer
    from gpt1_keras.tokenization.normalization.original.original_normalizer import (
        OriginalNormalizer,
    )

    return OriginalNormalizer
