"""Loads tokenizers from folders, and describes them for comparison."""

import os
import pathlib
from typing import Any

import keras

from gpt1_keras.convert.loader import OpenAIGPTLoader
from gpt1_keras.files import read_json
from gpt1_keras.handles import is_handle, is_transformers_config
from gpt1_keras.presets.pretrained import PRETRAINED, find_preset, preset_in
from gpt1_keras.tokenization.tokenizer import MERGES_FILE, VOCABULARY_FILE, GPT1Tokenizer
from gpt1_keras.upstream import CONFIG_FILE, TOKENIZER_CONFIG_FILE

_PRESET_ASSETS = pathlib.Path("assets", "tokenizer")
_ORIGINAL_FILES = ("encoder_bpe_40000.json", "vocab_40000.bpe")


def load_tokenizer(
    folder: str | os.PathLike[str], normalization: str | None = None
) -> GPT1Tokenizer:
    """Loads the tokenizer that a folder holds.

    Args:
        folder: the name of a preset that ships, or a handle, as in `find_preset`; or the path of a
            folder. The folder is a run's, or a checkpoint of `transformers`, or holds
            `tokenizer.json`, as presets have it and `GPT1Tokenizer.save_to_preset` writes it; or
            `vocabulary.json` and `merges.txt`; or the published vocabulary,
            `encoder_bpe_40000.json` and `vocab_40000.bpe`.
        normalization: how text becomes words, `"bert"` or `"original"`. By default, the preset's
            own, or `"bert"` for a vocabulary alone and for `transformers`.

    Raises:
        FileNotFoundError: the folder holds none of these, or only one of two files.
        ValueError: a file is damaged, or the tokenizer is of another class or normalization.
    """
    is_named = is_handle(folder) or (isinstance(folder, str) and folder in PRETRAINED)
    folder = find_preset(folder, weights=False) if is_named else preset_in(pathlib.Path(folder))
    config = read_json(folder / CONFIG_FILE) if (folder / CONFIG_FILE).is_file() else None
    if is_transformers_config(config):
        # Its tokenizer.json is of another format.
        loader = OpenAIGPTLoader(os.path.abspath(folder), config)
        return loader.load_tokenizer(GPT1Tokenizer, normalization=normalization)
    if (folder / TOKENIZER_CONFIG_FILE).is_file():
        tokenizer = _load_preset(folder)
        if normalization not in (None, tokenizer.normalization):
            raise ValueError(
                f"{folder} was made with normalization={tokenizer.normalization!r}, and ids of "
                f"another mean nothing to it. Received: {normalization!r}."
            )
        return tokenizer
    for names in ((VOCABULARY_FILE, MERGES_FILE), _ORIGINAL_FILES):
        vocabulary, merges = (str(folder / name) for name in names)
        if pathlib.Path(vocabulary).is_file():
            return GPT1Tokenizer(vocabulary, merges, normalization=normalization or "bert")
    raise FileNotFoundError(
        f"The vocabulary file {str(folder / VOCABULARY_FILE)!r} does not exist. A tokenizer's "
        f"folder holds {TOKENIZER_CONFIG_FILE}, or {VOCABULARY_FILE} and {MERGES_FILE}, or "
        f"{' and '.join(_ORIGINAL_FILES)}."
    )


def describe_tokenizer(tokenizer: GPT1Tokenizer) -> dict[str, Any]:
    """Returns what ids depend on: `fingerprint`, `normalization` and `vocabulary_size`."""
    return {
        "fingerprint": tokenizer.fingerprint,
        "normalization": tokenizer.normalization,
        "vocabulary_size": tokenizer.vocabulary_size(),
    }


def _load_preset(folder: pathlib.Path) -> GPT1Tokenizer:
    """Loads the tokenizer of a preset."""
    path = folder / TOKENIZER_CONFIG_FILE
    try:
        # KerasHub's own loader requires a backbone beside the tokenizer.
        tokenizer = keras.saving.deserialize_keras_object(read_json(path))
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise ValueError(f"{path} does not describe a tokenizer: {error}.") from None
    if not isinstance(tokenizer, GPT1Tokenizer):
        raise ValueError(f"{path} must describe a GPT1Tokenizer. Received: {type(tokenizer)}.")
    tokenizer.load_assets(folder / _PRESET_ASSETS)
    return tokenizer
