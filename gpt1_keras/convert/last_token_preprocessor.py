"""LastTokenPreprocessor: raw strings as `transformers`' GPT-1 classifier reads them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, ClassVar

import keras

from gpt1_keras.lazy import tensorflow as tf
from gpt1_keras.preset_files import local_preset
from gpt1_keras.tasks.text_classifier import GPT1TextClassifierPreprocessor
from gpt1_keras.tokenization.tokenizer import GPT1Tokenizer
from gpt1_keras.tokenization.vocabulary import UNKNOWN
from gpt1_keras.upstream import PREPROCESSOR_CONFIG_FILE, get_preset_loader


@keras.saving.register_keras_serializable(package="gpt1_keras")
class LastTokenPreprocessor(GPT1TextClassifierPreprocessor):
    """Tokenizes, truncates and pads texts without special tokens.

    With it, a `GPT1TextClassifier` classifies by the hidden state at a text's last token, as
    `transformers`' `OpenAIGPTForSequenceClassification` does; in the paper, the hidden state is
    that at `<extract>`. Such checkpoints load with this preprocessor, and give the same logits.

    Args:
        tokenizer, sequence_length: as in `GPT1TextClassifierPreprocessor`.
        fields: the name of the text. It takes no pairs.
        pad_token_id: the checkpoint's. As in `transformers`, these ids are padding where they end a
            text, and are dropped there; a text of nothing else is read as one of them. `None` drops
            nothing, and then a text without tokens is read as `<unk>`. (What `transformers` returns
            for a text without tokens depends on the batch.)

    Call arguments and results are those of `GPT1TextClassifierPreprocessor`.

    Raises:
        ValueError: `pad_token_id` is not an id; or see `GPT1TextClassifierPreprocessor`.
    """

    # KerasHub's classes take any preprocessor class of a preset's backbone that they find, and must
    # not find this one.
    backbone_cls = None
    field_counts: ClassVar[tuple[int, ...]] = (1,)
    field_purpose = "one text"

    def __init__(
        self,
        tokenizer: GPT1Tokenizer,
        sequence_length: int = 512,
        fields: Sequence[str] = ("text",),
        pad_token_id: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(tokenizer, sequence_length, fields, **kwargs)
        if pad_token_id is not None and pad_token_id < 0:
            raise ValueError(f"`pad_token_id` must be an id or None. Received: {pad_token_id}.")
        self.pad_token_id = pad_token_id

    @classmethod
    def from_preset(
        cls,
        preset: str | os.PathLike[str],
        config_file: str = PREPROCESSOR_CONFIG_FILE,
        **kwargs: Any,
    ) -> LastTokenPreprocessor:
        """Like `GPT1TextClassifierPreprocessor.from_preset`."""
        loader = get_preset_loader(local_preset(preset, weights=False))
        return loader.load_preprocessor(cls, config_file, **kwargs)

    def frame(self, segments: list[tf.RaggedTensor]) -> tuple[tf.RaggedTensor, tf.Tensor]:
        """Returns the text's own ids, int32 `[batch, None]`; see `FieldsPreprocessor.frame`."""
        (ids,) = segments
        kept = tf.minimum(ids.row_lengths(), self.sequence_length)
        truncated = kept < ids.row_lengths()
        filler = self.tokenizer.token_to_id(UNKNOWN)
        if self.pad_token_id is not None:
            filler = self.pad_token_id
            kept = _without_trailing(ids, kept, filler)
        return _first_of_rows(ids, kept, filler), truncated

    def frame_values(
        self, segments: list[tf.RaggedTensor], values: list[tf.RaggedTensor]
    ) -> tf.RaggedTensor:
        """Like `FieldsPreprocessor.frame_values`; -1 for a text without tokens."""
        framed, _ = self.frame(segments)
        kept = tf.minimum(framed.row_lengths(), segments[0].row_lengths())
        return _first_of_rows(values[0], kept, -1)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "pad_token_id": self.pad_token_id}


def _first_of_rows(ids: tf.RaggedTensor, kept: tf.Tensor, filler: int) -> tf.RaggedTensor:
    """Returns the first `kept`, int64 `[batch]`, ids of each row, or a filler where that is 0."""
    pool = tf.concat([[filler], ids.values], axis=0)
    starts = tf.where(kept > 0, 1 + ids.row_starts(), tf.zeros_like(kept))
    lengths = tf.maximum(kept, 1)
    indices = tf.ragged.range(starts, starts + lengths).values
    return tf.RaggedTensor.from_row_lengths(tf.gather(pool, indices), lengths, validate=False)


def _without_trailing(ids: tf.RaggedTensor, kept: tf.Tensor, pad_token_id: int) -> tf.Tensor:
    """Returns how many of the rows' first `kept` ids, int64 `[batch]`, precede final padding."""
    rows = ids.value_rowids()
    ends = 1 + tf.range(tf.size(ids.values, tf.int64)) - tf.gather(ids.row_starts(), rows)
    is_token = (ids.values != pad_token_id) & (ends <= tf.gather(kept, rows))
    last = tf.math.unsorted_segment_max(tf.where(is_token, ends, 0), rows, ids.nrows())
    return tf.maximum(last, 0)  # for rows without ids, `last` is the smallest int64
