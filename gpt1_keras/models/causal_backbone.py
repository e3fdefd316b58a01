"""CausalBackbone: what tasks, pre-training and zero-shot evaluation require of a backbone."""

from __future__ import annotations

import os
from typing import Any

import keras
import keras_hub
from keras import ops

from gpt1_keras.models.functional_model import FunctionalModel
from gpt1_keras.preset_files import loading_checked_files
from gpt1_keras.types import Tensor
from gpt1_keras.upstream import layers_of


class CausalBackbone(FunctionalModel, keras_hub.models.Backbone):
    """A network that reads sequences from left to right: `GPT1Backbone`, `LSTMBackbone`.

    It maps `token_inputs` to hidden states, float `[batch, length, hidden_dim]`. None of them
    depends on later tokens or on padding. It has `vocabulary_size`, `hidden_dim`,
    `max_sequence_length`, `token_embedding` (the token table, tied to the output) and
    `encode_branches`.
    """

    optional_inputs = ("padding_mask",)

    @classmethod
    @loading_checked_files
    def from_preset(
        cls, preset: str | os.PathLike[str], load_weights: bool = True, **kwargs: Any
    ) -> CausalBackbone:
        """Loads a preset, as `keras_hub.models.Backbone.from_preset`.

        Args:
            preset: the name of a preset that ships, a folder, or a handle such as
                `"hf://openai-community/openai-gpt"`, which is downloaded.
            load_weights: whether to load weights; otherwise they are initialized.
            **kwargs: constructor arguments to change, such as `dtype`.

        Raises:
            ValueError: the preset does not exist, holds another model, or has a damaged file.
            OSError: see `gpt1_keras.handles.local_preset`.
        """
        return super().from_preset(preset, load_weights, **kwargs)

    def save_to_preset(self, preset_dir: Any, max_shard_size: float = 10) -> None:
        """Like `keras_hub.models.Backbone.save_to_preset`. Raises ValueError as `check_loads`."""
        self.check_loads()
        super().save_to_preset(preset_dir, max_shard_size)

    def check_loads(self) -> None:
        """Raises ValueError if a preset of this model could not be loaded."""
        modes = {layer.quantization_mode for layer in layers_of(self)} & {"gptq", "awq"}
        if modes:
            raise ValueError(
                "Keras 3.15 cannot load layers that are quantized by 'gptq' or 'awq', so a preset "
                f"would be lost. Received: a {type(self).__name__} with {sorted(modes)}. Save the "
                "model before it is quantized, or quantize to 'int8' or 'int4'."
            )

    def states_at(
        self,
        token_ids: Tensor,
        indices: Tensor,
        positions: Tensor | None = None,
        branches: Tensor | None = None,
    ) -> Tensor:
        """Returns the hidden states of some tokens, in inference.

        Args:
            token_ids: int `[batch, length]`.
            indices: int `[batch, tokens]`, their indices. The result for an index of -1 is
                undefined.
            positions: optional int `[batch, length]`, as in `encode_branches`.
            branches: optional int `[batch, length]`, as in `encode_branches`; `indices` are then
                the branches' last tokens.

        Returns:
            float `[batch, tokens, hidden_dim]`.
        """
        if branches is None:
            states = self({"token_ids": token_ids}, training=False)
        else:
            states = self.encode_branches(token_ids, positions, branches, indices)
        return ops.take_along_axis(states, ops.maximum(indices, 0)[:, :, None], axis=1)


def token_inputs() -> dict[str, Tensor]:
    """Returns a causal model's inputs: token ids and padding mask, int32 `[batch, length]`."""
    return {
        "token_ids": keras.Input((None,), dtype="int32", name="token_ids"),
        "padding_mask": keras.Input((None,), dtype="int32", name="padding_mask", optional=True),
    }
