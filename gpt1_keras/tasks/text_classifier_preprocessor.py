"""GPT1TextClassifierPreprocessor: raw strings to the classifier's inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import keras
import keras_hub

from gpt1_keras.tasks.fields_preprocessor import FieldsPreprocessor
from gpt1_keras.tokenization.backend import text_backend
from gpt1_keras.tokenization.padding import PadTo
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

    Call arguments:
        x: strings `[batch]`, a list, tuple, array, tensor or pandas column; or one string. For a
            pair, a tuple of two of them, or a dict by field.
        y: labels, passed through.
        sample_weight: passed through.
        pad_to: `"sequence_length"`; `"bucket"`, the smallest of the lengths 16, 24, 32, 48, ...
            that holds the batch; or `"longest"`, the length of its longest sequence. Tasks and
            exports pad by the last two.

    Returns:
        `{"token_ids": int32 [batch, length], "padding_mask": int32 [batch, length]}`, without
        `batch` for one string; with `y`, a tuple for Keras's `fit`.

    Raises:
        ValueError: the texts do not match the fields, or are not strings; or `truncate` is given,
            which KerasHub's preprocessors take.
    """

    field_counts: ClassVar[tuple[int, ...]] = (1, 2)
    field_purpose = "one text or for a pair"

    def __init__(
        self,
        tokenizer: GPT1Tokenizer,
        sequence_length: int = 512,
        fields: Sequence[str] = ("text",),
        **kwargs: Any,
    ) -> None:
        if "truncate" in kwargs:
            raise ValueError(
                "Of two texts that are too long, each is cut to half. Received: truncate="
                f"{kwargs['truncate']!r}; expected none."
            )
        super().__init__(fields, tokenizer=tokenizer, sequence_length=sequence_length, **kwargs)

    def frame(self, segments: list[Any]) -> tuple[Any, Any]:
        """Returns ids, int32 `[batch, None]`, as in section 3.3; see `FieldsPreprocessor.frame`."""
        return text_backend().frame(segments, self.tokenizer, self.sequence_length)

    def pad(self, framed: Any, pad_to: PadTo = "bucket") -> dict[str, Any]:
        """Returns int32 `[batch, length]`; see `FieldsPreprocessor.pad`."""
        return text_backend().pad(framed, self.tokenizer, self.sequence_length, pad_to)

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        del config["truncate"]  # KerasHub's, which `frame` does not follow
        return config
