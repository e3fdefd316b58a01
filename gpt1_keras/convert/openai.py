"""The checkpoint that the paper's authors released (openai/finetune-transformer-lm, `model/`)."""

import os
import pathlib

import numpy as np

from gpt1_keras.convert.weights import assign_block, assign_embeddings
from gpt1_keras.files import read_json
from gpt1_keras.models.gpt1_backbone import GPT1Backbone
from gpt1_keras.tasks.causal_lm import GPT1CausalLM
from gpt1_keras.tasks.causal_lm_preprocessor import GPT1CausalLMPreprocessor
from gpt1_keras.tokenization.tokenizer import GPT1Tokenizer

_VOCABULARY, _MERGES, _SHAPES = "encoder_bpe_40000.json", "vocab_40000.bpe", "params_shapes.json"
_PARTS = [f"params_{part}.npy" for part in range(10)]
_ARRAYS_PER_BLOCK = 12
_HEAD_DIM = 64  # the paper's


def load_openai(
    directory: str | os.PathLike[str],
    normalization: str = "original",
    num_heads: int | None = None,
) -> GPT1CausalLM:
    """Loads the released weights.

    Args:
        directory: a folder with `params_0.npy` to `params_9.npy`, `params_shapes.json`,
            `encoder_bpe_40000.json` and `vocab_40000.bpe`.
        normalization: how text becomes words. The weights were trained with `"original"`; Hugging
            Face uses them with `"bert"`.
        num_heads: attention heads of a block; the files do not say how many. By default one for
            every 64 dimensions, as in the paper.

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
        str(directory / _VOCABULARY), str(directory / _MERGES), normalization=normalization
    )
    shapes = read_json(directory / _SHAPES, list)
    flat = np.concatenate([_read_array(directory / part) for part in _PARTS])
    sizes = [int(np.prod(shape)) for shape in shapes]
    if sum(sizes) != len(flat) or len(shapes) % _ARRAYS_PER_BLOCK != 2:
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
    backbone = GPT1Backbone(
        vocabulary_size=tokenizer.vocabulary_size(),
        num_layers=len(blocks),
        num_heads=_num_heads(tokens.shape[1], num_heads),
        hidden_dim=tokens.shape[1],
        intermediate_dim=blocks[0][6].shape[1],
        max_sequence_length=len(positions),
    )
    assign_embeddings(backbone, tokens, positions)
    for block, block_arrays in zip(backbone.blocks, blocks):
        assign_block(block, block_arrays)
    return GPT1CausalLM(backbone, GPT1CausalLMPreprocessor(tokenizer, len(positions)))


def _num_heads(hidden_dim: int, num_heads: int | None) -> int:
    """Returns the number of heads. Raises ValueError if it does not divide the dimensions."""
    received = f"num_heads={num_heads}"
    if num_heads is None:
        num_heads, received = hidden_dim // _HEAD_DIM, f"no num_heads, and {_HEAD_DIM} a head"
    if num_heads < 1 or hidden_dim % num_heads:
        raise ValueError(f"The heads must divide {hidden_dim} dimensions. Received: {received}.")
    return num_heads


def _read_array(path: pathlib.Path) -> np.ndarray:
    """Reads an array, flattened. Raises ValueError, naming the file, if it is damaged."""
    try:
        return np.load(path, allow_pickle=False).reshape(-1)
    except (EOFError, ValueError) as error:
        raise ValueError(f"{path} is damaged: {error}.") from None
