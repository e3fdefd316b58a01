"""The checkpoint that the paper's authors released (openai/finetune-transformer-lm, `model/`)."""

import math
import os
import pathlib
import tokenize

import numpy as np

from gpt1_keras.convert.published_weights import assign_block, assign_embeddings, take_normalization
from gpt1_keras.files import read_json
from gpt1_keras.models.gpt1_backbone import GPT1Backbone
from gpt1_keras.tasks.causal_lm import GPT1CausalLM, GPT1CausalLMPreprocessor
from gpt1_keras.tokenization.tokenizer import GPT1Tokenizer

_VOCABULARY, _MERGES, _SHAPES = "encoder_bpe_40000.json", "vocab_40000.bpe", "params_shapes.json"
_PARTS = [f"params_{part}.npy" for part in range(10)]
_ARRAYS_PER_BLOCK = 12
_EXPAND = 6  # the index in a block of the feed-forward layer's first kernel
_HEAD_DIM = 64  # the paper's
# What NumPy raises for a damaged file; its header is a Python literal.
_FAULTS = (EOFError, ValueError, SyntaxError, tokenize.TokenError, MemoryError, RecursionError)


def load_openai(
    directory: str | os.PathLike[str],
    normalization: str | None = None,
    num_heads: int | None = None,
) -> GPT1CausalLM:
    """Loads the released weights.

    Args:
        directory: a folder with `params_0.npy` to `params_9.npy`, `params_shapes.json`,
            `encoder_bpe_40000.json` and `vocab_40000.bpe`.
        normalization: how text becomes words: by default `"original"`, which the weights were
            trained with; Hugging Face uses them with `"bert"`.
        num_heads: attention heads of a block; the files do not say how many. By default one for
            every 64 dimensions, as in the paper; required if the width is no multiple of 64.

    Returns:
        The language model, with its preprocessor.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: a file is damaged, the files do not fit each other, the normalization is
            unknown, or the heads do not divide the hidden dimensions.
    """
    directory = pathlib.Path(directory)
    names = [*_PARTS, _SHAPES, _VOCABULARY, _MERGES]
    if missing := [name for name in names if not (directory / name).is_file()]:
        raise FileNotFoundError(f"{directory} has no {', '.join(missing)}.")
    tokenizer = GPT1Tokenizer(
        str(directory / _VOCABULARY),
        str(directory / _MERGES),
        normalization=take_normalization(normalization, "original"),
    )
    shapes = _read_shapes(directory / _SHAPES)
    flat = np.concatenate([_read_array(directory / part) for part in _PARTS])
    sizes = [math.prod(shape) for shape in shapes]
    is_whole = len(shapes) > 2 and len(shapes) % _ARRAYS_PER_BLOCK == 2
    if sum(sizes) != len(flat) or not is_whole:
        raise ValueError(
            f"The checkpoint in {directory} is damaged: {_SHAPES} lists {len(shapes)} arrays with "
            f"{sum(sizes):,} numbers, and the params files hold {len(flat):,}."
        )
    arrays = [
        # Convolution kernels of width 1 have a leading 1.
        array.reshape(shape[1:] if len(shape) == 3 else shape)
        for array, shape in zip(np.split(flat, np.cumsum(sizes)[:-1]), shapes)
    ]
    positions, tokens, *rest = arrays
    blocks = [
        rest[start : start + _ARRAYS_PER_BLOCK] for start in range(0, len(rest), _ARRAYS_PER_BLOCK)
    ]
    matrices = (positions, tokens, blocks[0][_EXPAND])
    if any(array.ndim != 2 for array in matrices):
        raise ValueError(
            f"{directory / _SHAPES} must have matrices as its first two arrays and as array "
            f"{2 + _EXPAND}. Received: {[array.shape for array in matrices]}."
        )
    backbone = GPT1Backbone(
        vocabulary_size=tokenizer.vocabulary_size(),
        num_layers=len(blocks),
        num_heads=_num_heads(tokens.shape[1], num_heads),
        hidden_dim=tokens.shape[1],
        intermediate_dim=blocks[0][_EXPAND].shape[1],
        max_sequence_length=len(positions),
    )
    assign_embeddings(backbone, tokens, positions)
    for block, block_arrays in zip(backbone.blocks, blocks):
        assign_block(block, block_arrays)
    return GPT1CausalLM(backbone, GPT1CausalLMPreprocessor(tokenizer, len(positions)))


def _num_heads(hidden_dim: int, num_heads: int | None) -> int:
    if num_heads is None and hidden_dim % _HEAD_DIM:
        raise ValueError(
            "The files do not say how many heads a block has, and the paper's heads have "
            f"{_HEAD_DIM} dimensions each. Received: a width of {hidden_dim}; expected a multiple "
            f"of {_HEAD_DIM}, or `num_heads`."
        )
    received = f"num_heads={num_heads}"
    if num_heads is None:
        num_heads = hidden_dim // _HEAD_DIM
    if num_heads < 1 or hidden_dim % num_heads:
        raise ValueError(f"The heads must divide {hidden_dim} dimensions. Received: {received}.")
    return num_heads


def _read_shapes(path: pathlib.Path) -> list[list[int]]:
    """Reads the arrays' shapes. Raises ValueError, naming the file, if it is damaged."""
    shapes = read_json(path, list)
    for shape in shapes:
        is_shape = isinstance(shape, list) and 1 <= len(shape) <= 3
        if not is_shape or any(type(size) is not int or size < 1 for size in shape):
            raise ValueError(
                f"{path} must list shapes of 1 to 3 whole numbers. Received: {str(shape)[:80]}."
            )
    return shapes


def _read_array(path: pathlib.Path) -> np.ndarray:
    """Reads an array, flattened. Raises ValueError, naming the file, if it is damaged."""
    try:
        # Mapped, so that a file cannot make NumPy allocate more than the file holds.
        array = np.load(path, allow_pickle=False, mmap_mode="r")
    except _FAULTS as error:
        raise ValueError(f"{path} is damaged: {str(error)[:200]}.") from None
    if not isinstance(array, np.ndarray) or array.dtype.kind != "f":
        received = getattr(array, "dtype", type(array).__name__)
        raise ValueError(f"{path} is damaged: expected an array of floats. Received: {received}.")
    return array.reshape(-1)
