"""What is checked and written around a task's preset, beyond what KerasHub does."""

import json
import os
import pathlib
from collections.abc import Iterable

from gpt1_keras.tokenization.tokenizer import GPT1Tokenizer
from gpt1_keras.upstream import (
    METADATA_FILE,
    TASK_CONFIG_FILE,
    TASK_WEIGHTS_FILE,
    TOKENIZER_CONFIG_FILE,
    check_file_exists,
    load_json,
)


def check_head_is_saved(class_name: str, preset: str | os.PathLike[str]) -> None:
    """Raises ValueError if a preset of this task, which has a head, has lost the head's weights."""
    if not check_file_exists(preset, TASK_CONFIG_FILE):
        return
    saved_class = load_json(preset, TASK_CONFIG_FILE)["class_name"]
    if saved_class == class_name and not check_file_exists(preset, TASK_WEIGHTS_FILE):
        raise ValueError(
            f"{preset} is a {saved_class} without {TASK_WEIGHTS_FILE}, the weights of its head. "
            f"Restore the file, or ask for fresh weights with load_weights=False."
        )


def check_trained_with(preset: str | os.PathLike[str], tokenizer: GPT1Tokenizer) -> None:
    """Raises ValueError if the preset's weights were trained with another tokenizer."""
    if not check_file_exists(preset, TOKENIZER_CONFIG_FILE):
        return
    # `transformers` has a file of this name too.
    expected = load_json(preset, TOKENIZER_CONFIG_FILE).get("config", {})
    if expected.get("fingerprint") not in (None, tokenizer.fingerprint):
        raise ValueError(
            f"{preset} was trained with another tokenizer, whose ids mean other tokens. "
            f"Received: normalization={tokenizer.normalization!r}, fingerprint "
            f"{tokenizer.fingerprint}; expected normalization="
            f"{expected['normalization']!r}, fingerprint {expected['fingerprint']}."
        )


def name_tasks(preset_dir: str | os.PathLike[str], tasks: Iterable[str]) -> None:
    """Writes into a preset's metadata which tasks can load it."""
    path = pathlib.Path(preset_dir, METADATA_FILE)
    metadata = json.loads(path.read_text(encoding="utf-8")) | {"tasks": sorted(tasks)}
    path.write_text(json.dumps(metadata, indent=4), encoding="utf-8")
