"""Hugging Face's `openai-gpt` format: config.json, model.safetensors and the tokenizer's files."""

import json
import os
import pathlib
from typing import Any

import keras
import numpy as np
import safetensors.numpy
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from gpt1_keras.convert.weights import (
    block_variables,
    build_causal_lm,
    read_json,
    require_files,
)
from gpt1_keras.files import atomic_path
from gpt1_keras.models.gpt1_backbone import GPT1Backbone
from gpt1_keras.models.layers import LAYER_NORM_EPSILON
from gpt1_keras.tasks.base import RawTextTask
from gpt1_keras.tasks.causal_lm import GPT1CausalLM
from gpt1_keras.tokenization.tokenizer import GPT1Tokenizer
from gpt1_keras.tokenization.vocabulary import END_OF_WORD, UNKNOWN

_CONFIG, _WEIGHTS, _VOCABULARY, _MERGES = (
    "config.json",
    "model.safetensors",
    "vocab.json",
    "merges.txt",
)
# A block's arrays, in the order of `block_variables`.
_NAMES = [
    f"{layer}.{array}"
    for layer in ("attn.c_attn", "attn.c_proj", "ln_1", "mlp.c_fc", "mlp.c_proj", "ln_2")
    for array in ("weight", "bias")
]


def load_hugging_face(
    directory: str | os.PathLike[str], normalization: str = "bert"
) -> GPT1CausalLM:
    """Loads a checkpoint of `transformers`' OpenAIGPT models.

    Args:
        directory: a folder with `config.json`, `model.safetensors`, `vocab.json` and `merges.txt`.
        normalization: how text becomes words: `"bert"`, as in `transformers`; or `"original"`, with
            which OpenAI's weights were trained.

    Returns:
        The language model, with its preprocessor.

    Raises:
        FileNotFoundError: a file is missing. Pickled weights (`pytorch_model.bin`) are not read.
        ValueError: a file is damaged, or the files do not fit each other.
    """
    directory = pathlib.Path(directory)
    require_files(directory, [_CONFIG, _WEIGHTS, _VOCABULARY, _MERGES])
    config = _read_config(directory / _CONFIG)
    try:
        weights = safetensors.numpy.load_file(directory / _WEIGHTS)
    except safetensors.SafetensorError as error:
        raise ValueError(f"{directory / _WEIGHTS} is damaged: {error}.") from None
    weights = {name.removeprefix("transformer."): array for name, array in weights.items()}

    def take(name: str) -> np.ndarray:
        if name not in weights:
            raise ValueError(f"{directory / _WEIGHTS} has no array {name}.")
        return weights[name]

    tokenizer = GPT1Tokenizer(
        str(directory / _VOCABULARY), str(directory / _MERGES), normalization=normalization
    )
    blocks = [[take(f"h.{i}.{name}") for name in _NAMES] for i in range(config["n_layer"])]
    return build_causal_lm(
        take("tokens_embed.weight"),
        take("positions_embed.weight"),
        blocks,
        config["n_head"],
        tokenizer,
    )


def _read_config(path: pathlib.Path) -> dict[str, Any]:
    """Reads a model's configuration, which must be GPT-1's."""
    config = read_json(path)
    if not isinstance(config, dict) or not {"n_layer", "n_head"} <= set(config):
        raise ValueError(f"{path} must be an object with n_layer and n_head.")
    # Other values of these would make another architecture than the paper's.
    for name, expected in (("afn", "gelu"), ("layer_norm_epsilon", LAYER_NORM_EPSILON)):
        if config.get(name, expected) != expected:
            raise ValueError(f"{path} has {name}={config[name]!r}; GPT-1 has {expected!r}.")
    return config


def save_hugging_face(model: RawTextTask, directory: str | os.PathLike[str]) -> None:
    """Writes a model for `transformers` (`OpenAIGPTLMHeadModel`, `OpenAIGPTTokenizer`).

    Args:
        model: a task of this package, such as `GPT1CausalLM`, with a preprocessor.
        directory: the folder to write, whole or not at all. It replaces an existing one.

    Raises:
        ValueError: the model has no preprocessor, and so no tokenizer; or its normalization is not
            `"bert"`, or its `intermediate_dim` is not four times its `hidden_dim`, as the format
            assumes.
    """
    if model.preprocessor is None:
        raise ValueError("Only a model with a preprocessor can be saved: its tokenizer is needed.")
    backbone, tokenizer = model.backbone, model.preprocessor.tokenizer
    if tokenizer.normalization != "bert":
        raise ValueError(
            "The format needs a tokenizer with normalization='bert', which is how transformers "
            f"splits text. Received: {tokenizer.normalization!r}."
        )
    if backbone.intermediate_dim != 4 * backbone.hidden_dim:
        raise ValueError(
            "The format needs an intermediate_dim of 4 * hidden_dim. Received: "
            f"intermediate_dim={backbone.intermediate_dim}, hidden_dim={backbone.hidden_dim}."
        )
    arrays = {
        "tokens_embed.weight": backbone.token_embedding.embeddings,
        "positions_embed.weight": backbone.embedding.positions.embeddings,
    }
    for i, block in enumerate(backbone.blocks):
        arrays |= {f"h.{i}.{name}": v for name, v in zip(_NAMES, block_variables(block))}
    weights = {
        f"transformer.{name}": keras.ops.convert_to_numpy(variable)
        for name, variable in arrays.items()
    }
    with atomic_path(directory) as temporary:
        folder = pathlib.Path(temporary)
        folder.mkdir()
        safetensors.numpy.save_file(weights, folder / _WEIGHTS, metadata={"format": "pt"})
        (folder / _CONFIG).write_text(json.dumps(_config(backbone), indent=2) + "\n")
        tokenizer.save_files(folder / _VOCABULARY, folder / _MERGES)
        _fast_tokenizer(folder, tokenizer).save(str(folder / "tokenizer.json"))
        settings = {"tokenizer_class": "OpenAIGPTTokenizer", "unk_token": UNKNOWN}
        (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=2) + "\n")


def _config(backbone: GPT1Backbone) -> dict[str, Any]:
    """The content of config.json."""
    return {
        "model_type": "openai-gpt",
        "architectures": ["OpenAIGPTLMHeadModel"],
        "vocab_size": backbone.vocabulary_size,
        "n_positions": backbone.max_sequence_length,
        "n_embd": backbone.hidden_dim,
        "n_layer": backbone.num_layers,
        "n_head": backbone.num_heads,
        "afn": "gelu",
        "embd_pdrop": backbone.dropout,
        "attn_pdrop": backbone.dropout,
        "resid_pdrop": backbone.dropout,
        "layer_norm_epsilon": LAYER_NORM_EPSILON,
        "tie_word_embeddings": True,
    }


def _fast_tokenizer(folder: pathlib.Path, tokenizer: GPT1Tokenizer) -> Tokenizer:
    """Makes the same tokenizer for `tokenizers`, special tokens included."""
    fast = Tokenizer(
        models.BPE.from_file(
            str(folder / _VOCABULARY),
            str(folder / _MERGES),
            unk_token=UNKNOWN,
            end_of_word_suffix=END_OF_WORD,
        )
    )
    fast.normalizer = normalizers.BertNormalizer(lowercase=True)
    fast.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    fast.add_special_tokens(
        [tokenizer.start_token, tokenizer.delimiter_token, tokenizer.extract_token]
    )
    return fast
