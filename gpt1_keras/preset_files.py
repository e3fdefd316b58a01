"""Checks a preset's files before a model is made of them."""

import functools
import operator
import os
import pathlib
from collections.abc import Callable
from typing import Any

import keras

from gpt1_keras.files import read_json
from gpt1_keras.handles import local_preset
from gpt1_keras.upstream import (
    CONFIG_FILE,
    PREPROCESSOR_CONFIG_FILE,
    TASK_CONFIG_FILE,
    TOKENIZER_CONFIG_FILE,
)

_DESCRIPTIONS = (CONFIG_FILE, TASK_CONFIG_FILE, PREPROCESSOR_CONFIG_FILE, TOKENIZER_CONFIG_FILE)
_LEAST_BITS = 4  # of a weight in a file: int4, the smallest type that models are quantized to
# What a configuration may describe where no weights say that it is true: eighty times the paper's
# layers, and eighteen times its weights, 8 GB of float32.
_MOST_LAYERS = 1000
_MOST_WEIGHTS = 2 * 10**9


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
    """Raises ValueError for a model with more weights than the folder's weights files can hold.

    Or with more weights or layers than any GPT-1 has, as there may be no such files.
    """
    found = sorted([*folder.glob("*.weights.h5"), *folder.glob("*.safetensors")])
    files = [path for path in found if path.is_file()]
    size = sum(path.stat().st_size for path in files)
    for name in (CONFIG_FILE, TASK_CONFIG_FILE):
        try:
            layers, count = _count_layers_and_weights(configs[name])
        except (KeyError, TypeError, ValueError, AttributeError):
            continue  # another format, or a damaged preset, which loading will find
        described = f"{folder / name} describes a model of at least {count:,} weights"
        if files and _LEAST_BITS * count > 8 * size:
            raise ValueError(
                f"The weights file {' or '.join(map(str, files))} is damaged, or holds another "
                f"model's weights: there are {size:,} bytes, and {described}."
            )
        if layers > _MOST_LAYERS or count > _MOST_WEIGHTS:
            raise ValueError(
                f"{described} in {layers:,} layers. Expected at most {_MOST_WEIGHTS:,} in "
                f"{_MOST_LAYERS:,}."
            )


def _count_layers_and_weights(description: dict[str, Any]) -> tuple[int, int]:
    """Returns the number of layers, and of weights in the matrices, of a backbone or a task.

    `description` is what a file of Keras's or of `transformers` holds.
    """
    if "n_layer" in description:  # of `transformers`, without the vocabulary
        width, length, layers = _sizes(description, "n_embd", "n_positions", "n_layer")
        return layers, width * length + layers * 12 * width**2
    config = description["config"]
    classes = 0
    if "backbone" in config:
        low, high = config.get("score_range") or (0, 0)
        classes = max(operator.index(config.get("num_classes") or 0), high - low)
        config = config["backbone"]["config"]
    width, vocabulary_size = _sizes(config, "hidden_dim", "vocabulary_size")
    outer = width * (vocabulary_size + classes)
    if "units" in config:
        [units] = _sizes(config, "units")
        return 1, outer + 4 * units * (width + units)
    length, layers, inner = _sizes(config, "max_sequence_length", "num_layers", "intermediate_dim")
    return layers, outer + width * length + layers * (4 * width**2 + 2 * width * inner)


def _sizes(config: dict[str, Any], *names: str) -> list[int]:
    """Returns some of a configuration's sizes. Raises TypeError unless they are whole numbers."""
    return [operator.index(config[name]) for name in names]
