"""What both published formats share: the order of weights, and how text becomes words."""

import functools
import sys
from collections.abc import Sequence

import keras
import numpy as np

from gpt1_keras.models.gpt1_backbone import GPT1Backbone
from gpt1_keras.models.layers import INITIALIZER_STDDEV
from gpt1_keras.models.weights_check import check_finite

# `<start>`, `<delimiter>` and `<extract>`, which follow the vocabulary's tokens.
NUM_SPECIAL_TOKENS = 3

_LINES = {
    "bert": (
        "The checkpoint of transformers is read with normalization='bert', as transformers does; "
        "OpenAI's weights were trained with 'original'."
    ),
    "original": (
        "OpenAI's files are read with normalization='original', which the weights were trained "
        "with; transformers has 'bert'."
    ),
}


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


def assign_embeddings(
    backbone: GPT1Backbone,
    tokens: np.ndarray,
    positions: np.ndarray,
    pad_token_id: int | None = None,
) -> None:
    """Assigns the published embeddings to a backbone, which has its tokenizer's vocabulary size.

    Args:
        backbone: the backbone.
        tokens: float array `[vocabulary, hidden_dim]`. If it has no rows for the special tokens,
            they are sampled from N(0, 0.02), and the backbone has these `num_untrained_tokens`.
        positions: float array `[max_sequence_length, hidden_dim]`.
        pad_token_id: a padding token, if any. If it follows the vocabulary's tokens, a special
            token takes its row, as no text holds it.

    Raises ValueError if the shapes do not fit each other or the tokenizer, or see `assign`.
    """
    size = backbone.vocabulary_size
    allowed = [size - NUM_SPECIAL_TOKENS, size]
    if pad_token_id == size - NUM_SPECIAL_TOKENS:
        allowed.append(pad_token_id + 1)
    if len(tokens) not in allowed:
        raise ValueError(
            f"The checkpoint has {len(tokens)} token embeddings, but the tokenizer has {size} "
            f"tokens, {NUM_SPECIAL_TOKENS} special ones among them."
        )
    if untrained := size - len(tokens):
        random = np.random.default_rng(0)
        special = random.normal(0.0, INITIALIZER_STDDEV, (untrained, tokens.shape[1]))
        tokens = np.concatenate([tokens, special])
        backbone.num_untrained_tokens = untrained
    assign(backbone.token_embedding.embeddings, tokens)
    assign(backbone.embedding.positions.embeddings, positions)


def assign_block(block: keras.layers.Layer, arrays: Sequence[np.ndarray]) -> None:
    """Assigns twelve arrays to a block, in the order of `block_variables`; see `assign`."""
    for variable, array in zip(block_variables(block), arrays, strict=True):
        assign(variable, array)


def assign(variable: keras.Variable, array: np.ndarray) -> None:
    """Assigns an array to a variable.

    Raises ValueError if it has another shape, or values that are NaN or infinite.
    """
    if tuple(variable.shape) != array.shape:
        raise ValueError(
            f"The checkpoint's array for {variable.path} has shape {array.shape}; "
            f"expected {tuple(variable.shape)}."
        )
    check_finite(f"The checkpoint's array for {variable.path}", array)
    variable.assign(array)


def take_normalization(asked: str | None, default: str) -> str:
    """Returns the normalization that was asked for; or the default one, and says so in one line."""
    if asked is None:
        _say(default)
    return asked or default


@functools.cache  # once in a process
def _say(default: str) -> None:
    line = f"{_LINES[default]} Give `normalization` to choose (docs/tokenization.md)."
    print(line, file=sys.stderr, flush=True)
