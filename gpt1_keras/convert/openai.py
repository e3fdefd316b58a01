"""The checkpoint that the paper's authors released (openai/finetune-transformer-lm, `model/`)."""

import os
import pathlib

import numpy as np

from gpt1_keras.convert.weights import build_causal_lm, read_json, require_files
from gpt1_keras.tasks.causal_lm import GPT1CausalLM
from gpt1_keras.tokenization.tokenizer import GPT1Tokenizer

_VOCABULARY, _MERGES, _SHAPES = "encoder_bpe_40000.json", "vocab_40000.bpe", "params_shapes.json"
_PARTS = [f"params_{part}.npy" for part in range(10)]
_ARRAYS_PER_BLOCK = 12
_HEAD_DIM = 64  # the paper's; the files do not say


def load_openai(directory: str | os.PathLike[str], normalization: str = "original") -> GPT1CausalLM:
    """Loads the released weights.

    Args:
        directory: a folder with `params_0.npy` to `params_9.npy`, `params_shapes.json`,
            `encoder_bpe_40000.json` and `vocab_40000.bpe`.
        normalization: how text becomes words. The weights were trained with `"original"`; Hugging
            Face uses them with `"bert"`.

    Returns:
        The language model, with its preprocessor.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: a file is damaged, the files do not fit each other, or the normalization is
            unknown.
    """
    directory = pathlib.Path(directory)
    require_files(directory, [*_PARTS, _SHAPES, _VOCABULARY, _MERGES])
    tokenizer = GPT1Tokenizer(
        str(directory / _VOCABULARY), str(directory / _MERGES), normalization=normalization
    )
    shapes = read_json(directory / _SHAPES)
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
    return build_causal_lm(tokens, positions, blocks, tokens.shape[1] // _HEAD_DIM, tokenizer)


def _read_array(path: pathlib.Path) -> np.ndarray:
    """Reads an array, flattened. Raises ValueError, naming the file, if it is damaged."""
    try:
        return np.load(path, allow_pickle=False).reshape(-1)
    except (EOFError, ValueError) as error:
        raise ValueError(f"{path} is damaged: {error}.") from None
