"""Writes `openai-gpt` checkpoints for `transformers`: configuration, weights and tokenizer."""

import os
import pathlib
import shutil
import tempfile
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import safetensors.numpy
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from gpt1_keras.convert.from_transformers import (
    BLOCK_ARRAYS,
    CLASSIFIER,
    CONFIG,
    HEAD_ARRAY,
    MERGES,
    MODEL_TYPE,
    TOKENIZER,
    UNTRAINED,
    VOCABULARY,
    WEIGHTS,
)
from gpt1_keras.convert.last_token_preprocessor import LastTokenPreprocessor
from gpt1_keras.convert.published_weights import NUM_SPECIAL_TOKENS, block_variables
from gpt1_keras.files import atomic_path, write_json, write_text
from gpt1_keras.models.gpt1_backbone import GPT1Backbone, check_no_variant
from gpt1_keras.models.layers import LAYER_NORM_EPSILON
from gpt1_keras.tasks.causal_lm import GPT1CausalLM
from gpt1_keras.tasks.task import Task
from gpt1_keras.tasks.text_classifier import GPT1TextClassifier
from gpt1_keras.tokenization.tokenizer import GPT1Tokenizer
from gpt1_keras.tokenization.vocabulary import END_OF_WORD, UNKNOWN
from gpt1_keras.transformers_writers import register_writer


def save_hugging_face(model: Task, directory: str | os.PathLike[str]) -> None:
    """Writes a model for `transformers`; `model.export_to_transformers` is the same.

    A language model becomes an `OpenAIGPTLMHeadModel` with its `OpenAIGPTTokenizer`. A classifier
    with a `LastTokenPreprocessor` becomes an `OpenAIGPTForSequenceClassification`. Both read no
    special tokens, and are written without those that were never trained, which would take part in
    transformers' softmax. Of other tasks, only the backbone is written, as a language model:
    `transformers` has no class that frames texts as the paper does.

    Args:
        model: a task of this package, such as `GPT1CausalLM`, with a preprocessor.
        directory: the folder to write, whole or not at all. An existing one is replaced.

    Raises:
        ValueError: the model has no preprocessor, and so no tokenizer; its backbone is a variant of
            GPT1Backbone; or the format cannot hold it. The format needs the normalization `"bert"`,
            an `intermediate_dim` of four times `hidden_dim`, and, in an
            `OpenAIGPTForSequenceClassification`, a head without bias and activation.
        OSError: the folder cannot be written, for example because the disk is full.
    """
    if model.tokenizer is None:
        raise ValueError(
            "The format needs the tokenizer of one of gpt1_keras's preprocessors. "
            f"Received: preprocessor={model.preprocessor!r}."
        )
    weights, config = _arrays(model.backbone), _config(model.backbone)
    is_classifier = isinstance(model, GPT1TextClassifier) and isinstance(
        model.preprocessor, LastTokenPreprocessor
    )
    if is_classifier or isinstance(model, GPT1CausalLM):
        _leave_out_untrained(weights, config)
    if is_classifier:
        weights[HEAD_ARRAY] = _head(model)
        config |= _head_config(model)
    _check_tokenizer(model.preprocessor.tokenizer)
    with atomic_path(directory) as temporary:
        folder = pathlib.Path(temporary)
        folder.mkdir()
        _write_backbone(folder, weights, config)
        _write_tokenizer(folder, model.preprocessor.tokenizer, config)


def save_backbone(backbone: GPT1Backbone, directory: str | os.PathLike[str]) -> None:
    """Adds a backbone's config.json and weights to a folder; see `save_hugging_face`."""
    weights, config = _arrays(backbone), _config(backbone)
    _write_into(directory, lambda folder: _write_backbone(folder, weights, config))


def save_tokenizer(tokenizer: GPT1Tokenizer, directory: str | os.PathLike[str]) -> None:
    """Adds a tokenizer's files to a folder; see `save_hugging_face`."""
    _check_tokenizer(tokenizer)
    _write_into(directory, lambda folder: _write_tokenizer(folder, tokenizer))


def _write_into(directory: str | os.PathLike[str], write: Callable[[pathlib.Path], None]) -> None:
    """Adds to a folder the files that a function writes into another, each whole or not at all."""
    with tempfile.TemporaryDirectory() as made:
        write(pathlib.Path(made))
        for path in pathlib.Path(made).iterdir():
            with atomic_path(pathlib.Path(directory, path.name)) as temporary:
                shutil.copyfile(path, temporary)


def _arrays(backbone: GPT1Backbone) -> dict[str, np.ndarray]:
    """Returns the content of model.safetensors. Raises ValueError if the format cannot hold it."""
    check_no_variant(backbone, "Hugging Face's format")
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
        arrays |= {f"h.{i}.{name}": v for name, v in zip(BLOCK_ARRAYS, block_variables(block))}
    return {
        f"transformer.{name}": keras.ops.convert_to_numpy(variable)
        for name, variable in arrays.items()
    }


def _leave_out_untrained(weights: dict[str, np.ndarray], config: dict[str, Any]) -> None:
    """Takes the rows of untrained tokens, and what says so, from the files' content."""
    untrained = config.pop(UNTRAINED, 0)
    config["vocab_size"] -= untrained
    table = weights["transformer.tokens_embed.weight"]
    weights["transformer.tokens_embed.weight"] = table[: config["vocab_size"]]
    if untrained == NUM_SPECIAL_TOKENS - 1:  # `<start>` has the row of the checkpoint's padding
        config["pad_token_id"] = config["vocab_size"] - 1


def _check_tokenizer(tokenizer: GPT1Tokenizer) -> None:
    """Raises ValueError if transformers would split text in another way."""
    if tokenizer.normalization != "bert":
        raise ValueError(
            "The format needs a tokenizer with normalization='bert', which is how transformers "
            f"splits text. Received: {tokenizer.normalization!r}."
        )


def _write_backbone(
    folder: pathlib.Path, weights: dict[str, np.ndarray], config: dict[str, Any]
) -> None:
    # Not by `save_file`: where the disk is full, it raises an error that is not an OSError.
    content = safetensors.numpy.save(weights, metadata={"format": "pt"})
    (folder / WEIGHTS).write_bytes(content)
    write_json(folder / CONFIG, config)


def _write_tokenizer(
    folder: pathlib.Path, tokenizer: GPT1Tokenizer, config: dict[str, Any] | None = None
) -> None:
    tokenizer.save_files(folder / VOCABULARY, folder / MERGES)
    config = {"vocab_size": tokenizer.vocabulary_size(), **(config or {})}
    fast = _fast_tokenizer(folder, tokenizer, config["vocab_size"])
    write_text(folder / TOKENIZER, fast.to_str(pretty=True))
    settings = {"tokenizer_class": "OpenAIGPTTokenizer", "unk_token": UNKNOWN}
    if "pad_token_id" in config:
        settings["pad_token"] = tokenizer.id_to_token(config["pad_token_id"])
    write_json(folder / "tokenizer_config.json", settings)


def _config(backbone: GPT1Backbone) -> dict[str, Any]:
    config = {
        "model_type": MODEL_TYPE,
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
    untrained = backbone.num_untrained_tokens
    return {**config, UNTRAINED: untrained} if untrained else config


def _head(model: GPT1TextClassifier) -> np.ndarray:
    """Returns the head's weights, float `[classes, hidden_dim]`, as torch has them."""
    bias = keras.ops.convert_to_numpy(model.head.bias)
    is_linear = model.activation is keras.activations.linear
    if np.any(bias) or not is_linear or model.class_names is None:
        raise ValueError(
            f"The head of an {CLASSIFIER} gives logits of classes, without a bias. Received: a "
            f"bias of up to {np.abs(bias).max():.3g}, activation={model.activation}, "
            f"class_names={model.class_names}."
        )
    return np.ascontiguousarray(keras.ops.convert_to_numpy(model.head.kernel).T)


def _head_config(model: GPT1TextClassifier) -> dict[str, Any]:
    names = {str(number): name for number, name in enumerate(model.class_names or ())}
    config: dict[str, Any] = {
        "architectures": [CLASSIFIER],
        "id2label": names,
        "label2id": {name: int(number) for number, name in names.items()},
        "problem_type": "single_label_classification",
    }
    pad_token_id = model.preprocessor.pad_token_id
    return config if pad_token_id is None else {**config, "pad_token_id": pad_token_id}


def _fast_tokenizer(
    folder: pathlib.Path, tokenizer: GPT1Tokenizer, vocabulary_size: int
) -> Tokenizer:
    fast = Tokenizer(
        models.BPE.from_file(
            str(folder / VOCABULARY),
            str(folder / MERGES),
            unk_token=UNKNOWN,
            end_of_word_suffix=END_OF_WORD,
        )
    )
    fast.normalizer = normalizers.BertNormalizer(lowercase=True)
    fast.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    # Not zipped with KerasHub's `special_token_ids`, which have no order.
    fast.add_special_tokens(tokenizer.get_vocabulary()[-NUM_SPECIAL_TOKENS:vocabulary_size])
    return fast


register_writer(Task, save_hugging_face)
register_writer(GPT1Backbone, save_backbone)
register_writer(GPT1Tokenizer, save_tokenizer)
