"""GPT1TextClassifierPreprocessor: raw strings to the classifier's inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import keras
import keras_hub

from gpt1_keras.tasks.fields_preprocessor import FieldsPreprocessor
from gpt1_keras.tokenization.input_transformations import ROUND_ROBIN
from gpt1_keras.tokenization.tokenizer import GPT1Tokenizer


@keras.saving.register_keras_serializable(package="gpt1_keras")
class GPT1TextClassifierPreprocessor(
    FieldsPreprocessor, keras_hub.models.TextClassifierPreprocessor
):
    """Tokenizes, frames, truncates and pads one text or a pair of texts.

    Args:
        tokenizer: `GPT1Tokenizer`.
        sequence_length: the most tokens of a sequence, special tokens included; the length that
            `pad_to="sequence_length"` pads to.
        fields: names of the texts: `("text",)`, or two, such as `("premise", "hypothesis")`.
            Exports use these names for their inputs.
        truncate: how a pair that is too long is truncated: `"round_robin"`, token by token in turn,
            so that one text gets what the other leaves, as in KerasHub; or `"halves"`, each text to
            half, as in the paper's released code. Presets of earlier versions, which do not name
            it, load with `"halves"`.

    Call arguments:
        x: strings `[batch]`, a list, tuple, array, tensor or pandas column; or one string. For a
            pair, a tuple of two of them, or a dict by field.
        y, sample_weight: passed through.
        pad_to: `"sequence_length"`; `"bucket"`, the smallest of the lengths 16, 24, 32, 48, ...
            that holds the batch; or `"longest"`, the length of its longest sequence. Tasks and
            exports pad by the last two.

    Returns:
        `{"token_ids": int32 [batch, length], "padding_mask": int32 [batch, length]}`, without
        `batch` for one string; with `y`, a tuple for Keras's `fit`.

    Raises:
        ValueError: the texts do not match the fields, or are not strings; or an unknown `truncate`.
    """

    field_counts: ClassVar[tuple[int, ...]] = (1, 2)
    field_purpose = "one text or for a pair"

    def __init__(
        self,
        tokenizer: GPT1Tokenizer,
        sequence_length: int = 512,
        fields: Sequence[str] = ("text",),
        truncate: str = ROUND_ROBIN,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            fields, truncate, tokenizer=tokenizer, sequence_length=sequence_length, **kwargs
        )
