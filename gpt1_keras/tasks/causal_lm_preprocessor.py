"""GPT1CausalLMPreprocessor: raw strings to the language model's inputs, and back."""

from __future__ import annotations

import os
from typing import Any

import keras
import keras_hub
import numpy as np

from gpt1_keras.handles import FromHandle
from gpt1_keras.models.gpt1_backbone import GPT1Backbone
from gpt1_keras.tokenization.backend import batch_of_one, is_single, text_backend
from gpt1_keras.tokenization.tokenizer import GPT1Tokenizer
from gpt1_keras.upstream import to_backend_tensors


@keras.saving.register_keras_serializable(package="gpt1_keras")
class GPT1CausalLMPreprocessor(FromHandle, keras_hub.models.CausalLMPreprocessor):
    """Tokenizes texts for `GPT1CausalLM`.

    GPT-1 was pre-trained on contiguous text without start or end tokens (section 4.1), so none
    are added.

    Args:
        tokenizer: `GPT1Tokenizer`.
        sequence_length: the length that texts are truncated or padded to.

    Raises:
        ValueError: `add_start_token` or `add_end_token`, which KerasHub's preprocessors take; or in
            a call, `y` or `sample_weight`.

    Call arguments:
        x: strings `[batch]`, a list, tuple, array, tensor or pandas column; or one string.
        y, sample_weight: must be None, as targets and their weights come from `x`.
        sequence_length: replaces the preprocessor's.

    Returns:
        `(x, y, sample_weight)`: `{"token_ids", "padding_mask"}`, int32 `[batch, sequence_length]`;
        the next token after each position, int32 of the same shape; and 1 where there is a next
        token, int32 of the same shape. For one string, there is no axis `batch`.
    """

    backbone_cls = GPT1Backbone
    tokenizer_cls = GPT1Tokenizer

    def __init__(self, tokenizer: GPT1Tokenizer, sequence_length: int = 512, **kwargs: Any) -> None:
        for name in ("add_start_token", "add_end_token"):
            if kwargs.get(name):
                raise ValueError(
                    f"GPT-1 was pre-trained without start and end tokens. Received: {name}="
                    f"{kwargs[name]}; expected False."
                )
        kwargs |= {"add_start_token": False, "add_end_token": False}
        super().__init__(tokenizer, sequence_length, **kwargs)
        self.built = True

    def call(
        self, x: Any, y: Any = None, sample_weight: Any = None, sequence_length: int | None = None
    ) -> tuple[dict[str, Any], Any, Any]:
        for name, given in (("y", y), ("sample_weight", sample_weight)):
            if given is not None:
                raise ValueError(
                    "A language model's targets are the next tokens of `x`, each of weight 1. "
                    f"Received also `{name}`; expected texts alone."
                )
        # One more than the inputs: the last token is only a target.
        packed = self._pack(x, sequence_length, extra=1)
        token_ids, mask = packed["token_ids"], packed["padding_mask"]
        inputs = {"token_ids": token_ids[..., :-1], "padding_mask": mask[..., :-1]}
        return to_backend_tensors((inputs, token_ids[..., 1:], mask[..., 1:]))

    def generate_preprocess(self, x: Any, sequence_length: int | None = None) -> dict[str, Any]:
        """Turns prompts into what `generate` continues.

        Args:
            x: strings `[batch]`, or one string.
            sequence_length: the length of prompt and continuation together, in tokens.

        Returns:
            dict of `token_ids` and `padding_mask`, int32 `[batch, sequence_length]`, or
            `[sequence_length]` for one string.

        Raises:
            ValueError: there is no prompt; or one has no token, and GPT-1 has no token to start a
                text with.
        """
        packed = self._pack(x, sequence_length)
        if not len(packed["padding_mask"]):
            raise ValueError("Expected one prompt or more. Received: none.")
        empty = np.flatnonzero(~np.any(packed["padding_mask"], axis=-1))
        if len(empty):
            raise ValueError(
                "A prompt needs at least one token to continue from. Received a prompt without "
                f"any at index {empty[0]}."
            )
        return to_backend_tensors(packed)

    def generate_postprocess(self, x: dict[str, Any]) -> Any:
        """Turns generated ids, a dict like that of `generate_preprocess`, into texts or one text.

        Special tokens are left out.
        """
        token_ids = keras.ops.convert_to_numpy(x["token_ids"])
        mask = keras.ops.convert_to_numpy(x["padding_mask"])
        # A model may embed more ids than its tokenizer has tokens; those have no text.
        kept = mask.astype(bool) & (token_ids < self.tokenizer.vocabulary_size())
        kept &= ~np.isin(token_ids, self.tokenizer.special_token_ids)
        if token_ids.ndim == 1:
            return self.tokenizer.detokenize(token_ids[kept].tolist())
        return self.tokenizer.detokenize([ids[row].tolist() for ids, row in zip(token_ids, kept)])

    def export_to_transformers(self, path: str | os.PathLike[str]) -> None:
        """Like `GPT1Tokenizer.export_to_transformers`."""
        self.tokenizer.export_to_transformers(path)

    def read(self, x: Any) -> tuple[Any, bool]:
        """Returns a user's texts as a batch of strings, `[batch]`, and whether it was one text.

        Raises ValueError if they are not strings.
        """
        is_one = is_single(x)
        return text_backend().as_texts(batch_of_one(x) if is_one else x), is_one

    def _pack(self, x: Any, length: int | None, extra: int = 0) -> dict[str, Any]:
        """Returns `token_ids` and `padding_mask`, int32 `[batch, length + extra]`."""
        length = self.sequence_length if length is None else length
        if length < 1:
            raise ValueError(f"Expected sequence_length of at least 1. Received: {length}.")
        backend, (texts, is_one) = text_backend(), self.read(x)
        if backend.rank(texts) != 1:
            raise ValueError(
                "Expected strings of shape [batch], or one string. Received rank: "
                f"{backend.rank(texts)}."
            )
        ids = self.tokenizer.tokenize(texts)
        packed = backend.pad(ids, self.tokenizer, length + extra, "sequence_length")
        return {name: batch[0] for name, batch in packed.items()} if is_one else packed

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        del config["add_start_token"], config["add_end_token"]
        return config
