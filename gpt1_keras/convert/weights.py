"""A model's weights in the order of both published formats, and files that both formats share."""

import json
import pathlib
from collections.abc import Iterable, Sequence
from typing import Any

import keras
import numpy as np

from gpt1_keras.models.gpt1_backbone import GPT1Backbone
from gpt1_keras.models.layers import INITIALIZER_STDDEV
from gpt1_keras.tasks.causal_lm import GPT1CausalLM
from gpt1_keras.tasks.causal_lm_preprocessor import GPT1CausalLMPreprocessor
from gpt1_keras.tokenization.tokenizer import GPT1Tokenizer


def block_variables(block: keras.layers.Layer) -> list[keras.Variable]:
    """Returns a block's twelve variables, in the order of the published checkpoints."""
    attention = block.attention
    return [
        attention.qkv.kernel,
        attention.qkv.bias,
        attention.output_projection.kernel,
        attention.output_projection.bias,
        block.attention_norm.gamma,
        block.attention_norm.beta,
        block.expand.kernel,
        block.expand.bias,
        block.contract.kernel,
        block.contract.bias,
        block.feedforward_norm.gamma,
        block.feedforward_norm.beta,
    ]


def build_causal_lm(
    tokens: np.ndarray,
    positions: np.ndarray,
    blocks: Sequence[Sequence[np.ndarray]],
    num_heads: int,
    tokenizer: GPT1Tokenizer,
) -> GPT1CausalLM:
    """Builds a language model from published weights.

    Args:
        tokens: float array `[vocabulary, hidden_dim]`. If it has no rows for the special tokens,
            these are sampled from N(0, 0.02).
        positions: float array `[max_sequence_length, hidden_dim]`.
        blocks: each block's twelve arrays, in the order of `block_variables`.
        num_heads: attention heads in a block.
        tokenizer: the tokenizer of the weights.

    Raises:
        ValueError: the arrays' shapes do not fit each other or the tokenizer.
    """
    missing = tokenizer.vocabulary_size() - len(tokens)
    if missing not in (0, len(tokenizer.special_tokens)):
        raise ValueError(
            f"The checkpoint has {len(tokens)} token embeddings, but the tokenizer has "
            f"{tokenizer.vocabulary_size()} tokens, {len(tokenizer.special_tokens)} special ones "
            "among them."
        )
    backbone = GPT1Backbone(
        vocabulary_size=tokenizer.vocabulary_size(),
        num_layers=len(blocks),
        num_heads=num_heads,
        hidden_dim=tokens.shape[1],
        intermediate_dim=blocks[0][6].shape[1],
        max_sequence_length=len(positions),
    )
    random = np.random.default_rng(0)
    special = random.normal(0.0, INITIALIZER_STDDEV, (missing, tokens.shape[1]))
    backbone.token_embedding.embeddings.assign(np.concatenate([tokens, special]))
    backbone.embedding.positions.embeddings.assign(positions)
    for block, arrays in zip(backbone.blocks, blocks):
        for variable, array in zip(block_variables(block), arrays, strict=True):
            if tuple(variable.shape) != array.shape:
                raise ValueError(
                    f"The checkpoint's array for {variable.path} has shape {array.shape}; "
                    f"expected {tuple(variable.shape)}."
                )
            variable.assign(array)
    preprocessor = GPT1CausalLMPreprocessor(tokenizer, sequence_length=len(positions))
    return GPT1CausalLM(backbone, preprocessor)


def require_files(directory: pathlib.Path, names: Iterable[str]) -> None:
    """Raises FileNotFoundError, naming the files that are missing in a folder."""
    missing = [name for name in names if not (directory / name).is_file()]
    if missing:
        raise FileNotFoundError(f"{directory} has no {', '.join(missing)}.")


def read_json(path: pathlib.Path) -> Any:
    """Reads a JSON file. Raises ValueError, naming the file, if it is damaged."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is damaged: {error}.") from None
