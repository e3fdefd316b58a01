"""The two normalizations, which turn text into words: `bert` and `original`.

Programs check a normalization's name before they import NumPy, so the classes are imported where
one is asked for.
"""

from __future__ import annotations

from typing import ClassVar, Protocol

from gpt1_keras.lazy import tensorflow as tf

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
    from gpt1_keras.tokenization.normalization.original import OriginalNormalizer

    return OriginalNormalizer


class Normalizer(Protocol):
    """Splits texts into words, in core TensorFlow ops. Its constructor takes no arguments.

    Attributes:
        name: what a tokenizer's `normalization` calls it.
        line_end: the word for a line's end; None where line ends are dropped.
    """

    name: ClassVar[str]
    line_end: ClassVar[str | None]

    def split(self, texts: tf.Tensor) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
        """Splits texts, string `[batch]`, possibly invalid UTF-8, into chunks, and each into words.

        Texts repeat their chunks, so later steps look at each distinct chunk only once.

        Returns:
            `(words, chunks)`: string `[chunks, None]`, the words of each distinct chunk, which are
            valid UTF-8 and not empty; and int32 `[batch, None]`, the indices of each text's chunks.
        """
        ...

    def split_with_ranges(
        self, texts: tf.Tensor
    ) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.Tensor, tf.Tensor]:
        """Splits texts, and finds the bytes that the characters of their words came from.

        Returns:
            `(words, chunks, starts, ends)`: the first two as `split` returns them; and int64
            `[characters]` twice, for each character of all texts' words, the smallest range of
            bytes that it came from in the concatenation of all texts.
        """
        ...
