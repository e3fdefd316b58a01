"""CausalBackbone: what tasks, pre-training and zero-shot evaluation require of a backbone."""

from __future__ import annotations

import numbers
import os
import pathlib
from typing import Any

import h5py
import keras
import keras_hub
from keras import ops

from gpt1_keras.files import read_json, reading_weights, write_json, writing_weights
from gpt1_keras.models.functional_model import FunctionalModel
from gpt1_keras.models.weights_check import check_finite
from gpt1_keras.preset_files import dtype_of_preset, loading_checked_files
from gpt1_keras.recipe import FineTuningRecipe
from gpt1_keras.types import Tensor
from gpt1_keras.upstream import (
    METADATA_FILE,
    check_dataset,
    get_preset_loader,
    layers_of,
    list_subclasses,
    lora_layers,
)


class CausalBackbone(FunctionalModel, keras_hub.models.Backbone):
    """A network that reads sequences from left to right: `GPT1Backbone`, `LSTMBackbone`.

    It maps `token_inputs` to hidden states, float `[batch, length, hidden_dim]`. None of them
    depends on later tokens or on padding. It has `vocabulary_size`, `hidden_dim`,
    `max_sequence_length`, `token_embedding` (the token table, tied to the output) and
    `encode_branches`.

    Args:
        fine_tuning: how its weights are best fine-tuned, a dict of some of the attributes of
            `FineTuningRecipe`, such as `{"learning_rate": 2e-4}`; by default, as in the paper.
            Tasks and `gpt1 finetune` follow it, and presets keep it.
        num_untrained_tokens: how many of the last tokens were never trained as outputs, such as the
            special tokens that a checkpoint of `transformers` lacks. They take no part in
            generation, `score` and perplexity; L1 in the fine-tuning of a task trains them, and
            sets this to 0. Presets keep it.
        **kwargs: as in `keras_hub.models.Backbone`.

    Raises:
        ValueError: `fine_tuning` holds something else, or `num_untrained_tokens` is not a whole
            number from 0 to one less than all tokens.
    """

    optional_inputs = ("padding_mask",)

    def __init__(
        self,
        fine_tuning: dict[str, Any] | None = None,
        num_untrained_tokens: int = 0,
        **kwargs: Any,
    ) -> None:
        self.recipe = FineTuningRecipe.of(fine_tuning)
        super().__init__(**kwargs)
        self.num_untrained_tokens = num_untrained_tokens
        if self.token_embedding.quantization_mode == "int4":
            # Keras 3.15 quantizes a token table to int4 without rounding its inputs, as it does
            # other layers, but would load it with.
            self.token_embedding.inputs_quantizer = None

    @property
    def num_untrained_tokens(self) -> int:
        """How many of the last tokens were never trained as outputs."""
        return self.token_embedding.num_untrained_tokens

    @num_untrained_tokens.setter
    def num_untrained_tokens(self, number: int) -> None:
        tokens = self.token_embedding.input_dim
        is_whole = isinstance(number, numbers.Integral) and not isinstance(number, bool)
        if not is_whole or not 0 <= number < tokens:
            raise ValueError(
                f"num_untrained_tokens must be a whole number from 0 to {tokens - 1}. Received: "
                f"{number!r}."
            )
        self.token_embedding.num_untrained_tokens = int(number)

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
            OSError: see `gpt1_keras.preset_files.local_preset`.
        """
        if kwargs.get("dtype") is None:
            kwargs["dtype"] = dtype_of_preset(get_preset_loader(preset).config)
        return super().from_preset(preset, load_weights, **kwargs)

    def get_config(self) -> dict[str, Any]:
        own = {
            "fine_tuning": self.recipe.as_dict(),
            "num_untrained_tokens": self.num_untrained_tokens,
        }
        return {**super().get_config(), **{name: value for name, value in own.items() if value}}

    def save_to_preset(self, preset_dir: Any, max_shard_size: float = 10) -> None:
        """Like `keras_hub.models.Backbone.save_to_preset`; metadata.json names the tasks.

        Raises:
            ValueError: see `check_loads`.
        """
        self.check_loads()
        super().save_to_preset(preset_dir, max_shard_size)
        # KerasHub names the first base class of each task, which is ours, and the same for all.
        tasks = [
            task_cls.__name__
            for task_cls in list_subclasses(keras_hub.models.Task)
            if issubclass(task_cls.backbone_cls or object, CausalBackbone)
        ]
        path = pathlib.Path(preset_dir, METADATA_FILE)
        write_json(path, read_json(path) | {"tasks": sorted(tasks)})

    def save_lora_weights(self, filepath: str | os.PathLike[str]) -> None:
        """Like KerasHub's, with the biases, which are trained beside the LoRA kernels.

        The path ends in `.lora.h5`. KerasHub reads the file too, without the biases.

        Raises:
            ValueError: no layer is LoRA-enabled, or the path ends in something else.
            OSError: the file cannot be written. An earlier one stays.
        """
        with writing_weights(filepath) as memory:
            super().save_lora_weights(memory)
            with h5py.File(memory, "a") as file:
                for index, layer in lora_layers(self).items():
                    bias = ops.cast(layer.bias, "float32")
                    file[_lora_bias(index)] = ops.convert_to_numpy(bias)

    def load_lora_weights(self, filepath: str | os.PathLike[str]) -> None:
        """Like KerasHub's, with the biases, where the file has them.

        Raises:
            ValueError: the file is damaged, of other layers or another rank, or has weights that
                are NaN or infinite.
        """
        with reading_weights(filepath):
            super().load_lora_weights(filepath)
            with h5py.File(filepath) as file:
                for index, layer in lora_layers(self).items():
                    if _lora_bias(index) in file:
                        layer.bias.assign(check_dataset(file, _lora_bias(index))[()])
                    for weight in layer.trainable_variables:
                        check_finite(f"Its {weight.path}", ops.convert_to_numpy(weight))

    def check_loads(self) -> None:
        """Raises ValueError if a preset of this model could not be loaded, or would differ."""
        modes = {layer.quantization_mode for layer in layers_of(self)} & {"gptq", "awq"}
        if modes:
            raise ValueError(
                "Keras 3.15 cannot load layers that are quantized by 'gptq' or 'awq', so a preset "
                f"would be lost. Received: a {type(self).__name__} with {sorted(modes)}. Save the "
                "model before it is quantized, or quantize to 'int8' or 'int4'."
            )
        for layer in layers_of(self):
            mode, quantizer = layer.quantization_mode, getattr(layer, "inputs_quantizer", None)
            if isinstance(layer, keras.layers.Dense) and (
                (mode == "int4" and quantizer) or (mode == "int8" and not quantizer)
            ):
                raise ValueError(
                    "A preset does not say how inputs are quantized, and is loaded with Keras's "
                    f"default: in 8 bits for 'int8', not at all for 'int4'. Received: {layer.path} "
                    f"in {mode!r} with activation_quantizer={quantizer}."
                )

    def states_at(
        self,
        token_ids: Tensor,
        indices: Tensor,
        positions: Tensor | None = None,
        branches: Tensor | None = None,
    ) -> Tensor:
        """Returns some tokens' hidden states in inference, float `[batch, tokens, hidden_dim]`.

        Args:
            token_ids: int `[batch, length]`.
            indices: int `[batch, tokens]`, their indices. The result for an index of -1 is
                undefined.
            positions, branches: optional int `[batch, length]`, as in `encode_branches`; `indices`
                are then the branches' last tokens.
        """
        if branches is None:
            states = self({"token_ids": token_ids}, training=False)
        else:
            states = self.encode_branches(token_ids, positions, branches, indices)
        return ops.take_along_axis(states, ops.maximum(indices, 0)[:, :, None], axis=1)


def _lora_bias(index: int) -> str:
    return f"lora/{index}/vars/bias"


def check_sizes(dropout: float, **sizes: int) -> None:
    """Raises ValueError if a size is no whole number of at least 1, or dropout not from 0 to 1."""
    for name, size in sizes.items():
        if not isinstance(size, numbers.Integral) or isinstance(size, bool) or size < 1:
            raise ValueError(
                f"{name} must be a whole number of at least 1. Received: {name}={size!r}."
            )
    if not isinstance(dropout, numbers.Real) or not 0 <= dropout <= 1:
        raise ValueError(f"dropout must be a rate from 0 to 1. Received: dropout={dropout!r}.")


def token_inputs() -> dict[str, Tensor]:
    """Returns a causal model's inputs: token ids and padding mask, int32 `[batch, length]`."""
    return {
        "token_ids": keras.Input((None,), dtype="int32", name="token_ids"),
        "padding_mask": keras.Input((None,), dtype="int32", name="padding_mask", optional=True),
    }
