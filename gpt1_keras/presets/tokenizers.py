"""Tokenizers from a folder, and what tells them apart."""

import json
import pathlib

import keras

from gpt1_keras.presets.pretrained import PRETRAINED, find_preset
from gpt1_keras.tokenization.normalization import find_normalizer
from gpt1_keras.tokenization.tokenizer import MERGES_FILE, VOCABULARY_FILE, GPT1Tokenizer

_PRESET_FILE = "tokenizer.json"
_PRESET_ASSETS = pathlib.Path("assets", "tokenizer")
_ORIGINAL_FILES = ("encoder_bpe_40000.json", "vocab_40000.bpe")


def load_tokenizer(folder, normalization=None):
    """Loads the tokenizer that a folder holds.

    Args:
        folder: name of a preset that ships; or path of a preset or of what
            `GPT1Tokenizer.save_to_preset` wrote (`tokenizer.json`); or of `vocabulary.json` and
            `merges.txt`; or of the published vocabulary, `encoder_bpe_40000.json` and
            `vocab_40000.bpe`.
        normalization: how text becomes words, `"bert"` or `"original"`. By default, as a preset
            says, and `"bert"` with files that say nothing.

    Returns:
        `GPT1Tokenizer`.

    Raises:
        FileNotFoundError: the folder holds none of these, or one file of two.
        ValueError: a file is damaged, or the tokenizer is of another kind or normalization.
    """
    folder = find_preset(folder) if folder in PRETRAINED else pathlib.Path(folder)
    if (folder / _PRESET_FILE).is_file():
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
        f"folder holds {_PRESET_FILE}, or {VOCABULARY_FILE} and {MERGES_FILE}, or "
        f"{' and '.join(_ORIGINAL_FILES)}."
    )


def check_normalization(name):
    """Raises ValueError unless there is a normalization of that name, or the name is None."""
    if name is not None:
        find_normalizer(name)


def describe_tokenizer(tokenizer):
    """What the ids that a tokenizer gives depend on.

    Returns:
        dict: its `fingerprint`; `normalization`; `vocabulary_size`, special tokens included.
    """
    return {
        "fingerprint": tokenizer.fingerprint,
        "normalization": tokenizer.normalization,
        "vocabulary_size": tokenizer.vocabulary_size(),
    }


def _load_preset(folder):
    path = folder / _PRESET_FILE
    try:
        # KerasHub's own loader wants a backbone beside the tokenizer.
        config = json.loads(path.read_text(encoding="utf-8"))
        tokenizer = keras.saving.deserialize_keras_object(config)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"{path} does not describe a tokenizer: {error}.") from None
    if not isinstance(tokenizer, GPT1Tokenizer):
        raise ValueError(f"{path} must describe a GPT1Tokenizer. Received: {type(tokenizer)}.")
    tokenizer.load_assets(folder / _PRESET_ASSETS)
    return tokenizer
