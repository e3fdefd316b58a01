"""Checks a preset's files before a model is made of them."""

import functools
import os
import pathlib
from collections.abc import Callable
from typing import Any

import keras

from gpt1_keras.files import read_json
from gpt1_keras.handles import local_preset
from gpt1_keras.upstream import (
    CONFIG_FILE,
    MODEL_WEIGHTS_FILE,
    PREPROCESSOR_CONFIG_FILE,
    TASK_CONFIG_FILE,
    TOKENIZER_CONFIG_FILE,
)

_DESCRIPTIONS = (CONFIG_FILE, TASK_CONFIG_FILE, PREPROCESSOR_CONFIG_FILE, TOKENIZER_CONFIG_FILE)
_LEAST_BITS = 4  # of a weight in a file: int4, the smallest type that models are quantized to


def loading_checked_files(from_preset: Callable[..., Any]) -> Callable[..., Any]:
    """Makes a `from_preset(cls, preset, load_weights, **kwargs)` check the preset's files first.

    It downloads the preset of a handle. Errors name the damaged file.

    Without it, Keras and KerasHub would build a model of the size that a damaged file states before
    they read its weights, and would raise any error, such as KeyError.
    """

    @functools.wraps(from_preset)
    def load(
        cls: type, preset: str | os.PathLike[str], load_weights: bool = True, **kwargs: Any
    ) -> Any:
        preset = local_preset(preset, load_weights)
        folder = pathlib.Path(preset)  # no folder if it is the name of a preset that ships
        _check_kinds(folder)
        check_not_of_openai(folder)
        configs = {
            name: read_json(folder / name) for name in _DESCRIPTIONS if (folder / name).is_file()
        }
        if load_weights:
            _check_size(folder, configs)
        try:
            return from_preset(cls, preset, load_weights, **kwargs)
        except (OSError, ImportError, MemoryError):
            raise
        except Exception as error:
            # If there are other arguments, these may be the cause.
            if not configs or kwargs or os.fspath(preset) in str(error):
                raise
            reason = str(error).partition("\n")[0]
            if not isinstance(error, ValueError):
                reason = f"{type(error).__name__}: {reason}"
            raise ValueError(f"Could not load {preset}: {reason}") from error

    return load


def check_not_of_openai(folder: pathlib.Path) -> None:
    """Raises FileNotFoundError if a folder holds the files that OpenAI released, and no preset."""
    if (folder / "params_shapes.json").is_file() and not (folder / CONFIG_FILE).is_file():
        raise FileNotFoundError(
            f"{folder} holds the files that OpenAI released. Make a preset of them in Python: "
            f"gpt1_keras.convert.load_openai({os.fspath(folder)!r}).save_to_preset('openai')."
        )


def dtype_of_preset(config: dict[str, Any]) -> Any:
    """Returns the dtype that a preset's backbone is loaded in where none is asked for.

    Models of floats load in Keras's own policy, which is None here where KerasHub 0.32 does the
    same. Quantized ones load in their own: KerasHub does so for a task of the saved class alone.
    """
    policy = config.get("config", {}).get("dtype")
    if not isinstance(policy, dict):
        return None
    if policy.get("class_name") == "DTypePolicyMap":
        return policy
    # For mixed policies, KerasHub raises "Invalid dtype".
    is_mixed = str(policy.get("config", {}).get("name")).startswith("mixed_")
    return keras.config.dtype_policy() if is_mixed else None


def _check_kinds(folder: pathlib.Path) -> None:
    """Raises ValueError for what is no file, such as a named pipe, which reading would wait for."""
    for path in (*folder.glob("*"), *folder.glob("assets/*/*")):
        if path.exists() and not path.is_file() and not path.is_dir():
            raise ValueError(f"{path} is neither a file nor a folder.")


def _check_size(folder: pathlib.Path, configs: dict[str, dict[str, Any]]) -> None:
    """Raises ValueError for a backbone with more weights than the weights file can hold."""
    weights = folder / MODEL_WEIGHTS_FILE
    if not weights.is_file():
        return
    bits = 8 * weights.stat().st_size
    for name in (CONFIG_FILE, TASK_CONFIG_FILE):
        try:
            config = configs[name]["config"]
            config = config["backbone"]["config"] if name == TASK_CONFIG_FILE else config
            count = _count_weights(config)
        except (KeyError, TypeError, AttributeError):
            continue  # another format, or a damaged preset, which loading will find
        if _LEAST_BITS * count > bits:
            raise ValueError(
                f"The weights file {weights} is damaged, or holds another model's weights: it has "
                f"{weights.stat().st_size:,} bytes, and {folder / name} describes a model of at "
                f"least {count:,} weights."
            )


def _count_weights(config: dict[str, Any]) -> int:
    """Returns the number of weights in the matrices of a `GPT1Backbone` or `LSTMBackbone`."""
    width = config["hidden_dim"]
    embedded = width * (config["vocabulary_size"] + config.get("max_sequence_length", 0))
    if "units" in config:
        return embedded + 4 * config["units"] * (width + config["units"])
    block = 4 * width * width + 2 * width * config["intermediate_dim"]
    return embedded + config["num_layers"] * block
