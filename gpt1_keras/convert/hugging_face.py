"""Hugging Face's `openai-gpt` format: config.json, model.safetensors and the tokenizer's files."""

import json
import pathlib

import keras
import safetensors.numpy
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from gpt1_keras.convert.weights import (
    block_variables,
    build_causal_lm,
    read_json,
    require_files,
)
from gpt1_keras.files import atomic_path
from gpt1_keras.models.layers import LAYER_NORM_EPSILON
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


def load_hugging_face(directory, normalization="bert"):
    """Loads a checkpoint of `transformers`' OpenAIGPT models.

    Args:
        directory: path of a folder with `config.json`, `model.safetensors`, `vocab.json` and
            `merges.txt`.
        normalization: how text becomes words: `"bert"` as `transformers` does it; for OpenAI's
            weights, `"original"` is what they were trained with.

    Returns:
        `GPT1CausalLM`, with its tokenizer.

    Raises:
        FileNotFoundError: a file is missing. Pickled weights (`pytorch_model.bin`) are not read.
        ValueError: the files do not fit each other.
    """
    directory = pathlib.Path(directory)
    require_files(directory, [_CONFIG, _WEIGHTS, _VOCABULARY, _MERGES])
    config = _read_config(directory / _CONFIG)
    try:
        weights = safetensors.numpy.load_file(directory / _WEIGHTS)
    except safetensors.SafetensorError as error:
        raise ValueError(f"{directory / _WEIGHTS} is damaged: {error}.") from None
    weights = {name.removeprefix("transformer."): array for name, array in weights.items()}

    def take(name):
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


def _read_config(path):
    config = read_json(path)
    if not isinstance(config, dict) or not {"n_layer", "n_head"} <= set(config):
        raise ValueError(f"{path} must be an object with n_layer and n_head.")
    # Settings of the format that would be another architecture than the paper's.
    for name, expected in (("afn", "gelu"), ("layer_norm_epsilon", LAYER_NORM_EPSILON)):
        if config.get(name, expected) != expected:
            raise ValueError(f"{path} has {name}={config[name]!r}; GPT-1 has {expected!r}.")
    return config


def save_hugging_face(model, directory):
    """Writes a model as `transformers` opens it (`OpenAIGPTLMHeadModel`, `OpenAIGPTTokenizer`).

    Args:
        model: a task of this package, such as `GPT1CausalLM`, with a preprocessor.
        directory: path of the folder to write, whole or not at all. An existing one is replaced.

    Raises:
        ValueError: the model has no preprocessor, and so no tokenizer; or its normalization is not
            `"bert"`, or its feed-forward layers are not four times its width, which the format
            takes for granted.
    """
    if model.preprocessor is None:
        raise ValueError("Only a model with a preprocessor can be saved: its tokenizer is needed.")
    backbone, tokenizer = model.backbone, model.preprocessor.tokenizer
    if tokenizer.normalization != "bert":
        raise ValueError(
            "The format needs a tokenizer with normalization='bert', as transformers would split "
            f"text. Received: {tokenizer.normalization!r}."
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


def _config(backbone):
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


def _fast_tokenizer(folder, tokenizer):
    """The tokenizer as `tokenizers` has it, special tokens included."""
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
