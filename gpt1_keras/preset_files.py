"""A preset's files: downloaded from a handle, and checked before a model is made of them.

Handles are such as `hf://openai-community/openai-gpt`. KerasHub's own clients download
(huggingface_hub, kagglehub, modelscope), into their caches.
"""

import functools
import hashlib
import operator
import os
import pathlib
from collections.abc import Callable, Mapping
from typing import Any, TypeGuard, TypeVar

import huggingface_hub
import keras
from huggingface_hub.errors import LocalEntryNotFoundError

from gpt1_keras.files import read_json
from gpt1_keras.upstream import (
    CONFIG_FILE,
    METADATA_FILE,
    MODEL_WEIGHTS_FILE,
    PREPROCESSOR_CONFIG_FILE,
    TASK_CONFIG_FILE,
    TASK_WEIGHTS_FILE,
    TOKENIZER_CONFIG_FILE,
    get_file,
)

CARD_FILE = "README.md"
HANDLES = ("hf://", "kaggle://", "modelscope://")

# Files that a preset may hold besides its configuration. The loader reports missing ones.
_KERAS_FILES = (
    *(CARD_FILE, METADATA_FILE, TASK_CONFIG_FILE, PREPROCESSOR_CONFIG_FILE, TOKENIZER_CONFIG_FILE),
    *("assets/tokenizer/vocabulary.json", "assets/tokenizer/merges.txt"),
)
_TRANSFORMERS_FILES = (CARD_FILE, "vocab.json", "merges.txt", "tokenizer.json")
# One file of weights, or the index of several.
_KERAS_WEIGHTS = (MODEL_WEIGHTS_FILE, "model.weights.json")
TRANSFORMERS_WEIGHTS = ("model.safetensors", "model.safetensors.index.json")

_Class = TypeVar("_Class")

_DESCRIPTIONS = (CONFIG_FILE, TASK_CONFIG_FILE, PREPROCESSOR_CONFIG_FILE, TOKENIZER_CONFIG_FILE)
_LEAST_BITS = 4  # of a weight in a file: int4, the smallest type that models are quantized to
# The largest model that a configuration may describe if no file of weights confirms it: eighty
# times the paper's layers, and eighteen times its weights, 8 GB of float32.
_MOST_LAYERS = 1000
_MOST_WEIGHTS = 2 * 10**9


def is_handle(preset: str | os.PathLike[str]) -> bool:
    """Returns whether a preset is named by a handle, which is downloaded."""
    return isinstance(preset, str) and preset.startswith(HANDLES)


def is_transformers_config(config: Any) -> TypeGuard[dict[str, Any]]:
    """Returns whether the content of a config.json was written by `transformers`, not by Keras."""
    return isinstance(config, dict) and "model_type" in config and "registered_name" not in config


def local_preset(preset: str | os.PathLike[str], weights: bool = True) -> str:
    """Downloads the preset of a handle, unless it is in the cache, and returns its folder there.

    A preset's name or folder is returned as it is. Weights are downloaded only where needed.

    Raises:
        FileNotFoundError: there is no preset at the handle.
        ValueError: the handle is malformed, or a file is damaged, which is removed from the cache.
        OSError: a file cannot be downloaded. The cache holds only whole files.
        ImportError: the handle's client is not installed.
    """
    if not is_handle(preset):
        # Absolute: pathlib turns ./NAME into NAME, which may name a preset that ships.
        return preset if isinstance(preset, str) else os.path.abspath(preset)
    assert isinstance(preset, str)
    folder = _fetch(preset, CONFIG_FILE).parent
    is_transformers = is_transformers_config(read_json(folder / CONFIG_FILE))

    def fetch(name: str) -> bool:
        """Downloads a file. Returns whether the handle has it."""
        try:
            path = _fetch(preset, name)
        except FileNotFoundError:
            return False
        if path != folder / name:
            raise OSError(f"{preset} was changed while it was downloaded. Try again.")
        return True

    for name in _TRANSFORMERS_FILES if is_transformers else _KERAS_FILES:
        fetch(name)
    if weights:
        single, index = TRANSFORMERS_WEIGHTS if is_transformers else _KERAS_WEIGHTS
        if not fetch(single) and fetch(index):
            for name in shards(folder / index):
                fetch(name)
        if not is_transformers:
            fetch(TASK_WEIGHTS_FILE)
    return os.fspath(folder)


def shards(index: pathlib.Path) -> list[str]:
    """Returns the weights files that an index lists. Raises ValueError if it is damaged."""
    files = read_json(index).get("weight_map")
    if not isinstance(files, dict):
        raise ValueError(f"{index} is damaged: it has no weight_map.")
    # Keras lists several files for weights that are spread over them.
    names = {
        name for each in files.values() for name in ([each] if isinstance(each, str) else each)
    }
    if strange := [name for name in names if name != pathlib.PurePath(name).name]:
        raise ValueError(f"{index} is damaged: it lists {strange[0]!r}, outside its folder.")
    return sorted(names)


class FromHandle:
    """A mixin before KerasHub's classes without weights: loads their presets from handles."""

    @classmethod
    def from_preset(
        cls: type[_Class], preset: str | os.PathLike[str], *args: Any, **kwargs: Any
    ) -> _Class:
        """KerasHub's, from a name, a folder or a handle; see `local_preset` for the errors."""
        folder = local_preset(preset, weights=False)
        return super().from_preset(folder, *args, **kwargs)  # type: ignore[misc]


def _fetch(handle: str, name: str) -> pathlib.Path:
    """Downloads a file, and returns its path in the cache; see `local_preset` for other errors.

    Raises FileNotFoundError if the handle has no such file.
    """
    try:
        path = pathlib.Path(get_file(handle, name))
    except FileNotFoundError as error:
        # KerasHub raises this error both for a missing file and for one that it cannot reach.
        unreached = isinstance(error.__cause__, LocalEntryNotFoundError)
        if not unreached or _is_known_to_be_missing(handle, name):
            raise FileNotFoundError(f"{handle} has no {name}.") from None
        raise OSError(_describe(handle, name, error.__cause__)) from error
    except (ValueError, ImportError):
        raise
    except Exception as error:  # each client has its own classes
        raise OSError(_describe(handle, name, error)) from error
    if handle.startswith("hf://"):
        _check_hash(handle, path)
    return path


def _is_known_to_be_missing(handle: str, name: str) -> bool:
    """Returns whether the cache records that the repository has no such file, also offline."""
    repository = handle.removeprefix("hf://")
    found = huggingface_hub.try_to_load_from_cache(repository, name)
    return found is huggingface_hub._CACHED_NO_EXIST


def one_line(error: BaseException | None) -> str:
    """Returns an error's message on one line; the clients' messages have several."""
    return " ".join(str(error).split())


def _describe(handle: str, name: str, error: BaseException | None) -> str:
    return f"Could not download {name} of {handle}: {one_line(error)}"


def _check_hash(handle: str, path: pathlib.Path) -> None:
    """Compares a file with the hash that the hub lists; huggingface_hub compares only sizes.

    The hash is the name of the cache's blob: SHA-256 for large files, git's SHA-1 for others.
    Without symbolic links in the cache, it is not known. Raises ValueError if the hashes differ;
    the file is removed.
    """
    if not path.is_symlink():
        return
    blob = path.parent / path.readlink()
    if len(blob.name) == 64:
        with open(path, "rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
    elif len(blob.name) == 40:
        content = path.read_bytes()
        found = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
    else:
        return
    if found != blob.name:
        for each in (blob.resolve(), blob, path):
            each.unlink(missing_ok=True)
        raise ValueError(
            f"{path.name} of {handle} is damaged, and was removed from the cache: its hash is "
            f"{found}; expected {blob.name}. Try again."
        )


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
    """Raises ValueError for a named pipe or the like, which reading would wait for."""
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
        sizes = {"hidden_dim": width, "num_layers": layers, "intermediate_dim": 4 * width}
        return layers, width * length + count_matrix_weights(sizes)
    config = description["config"]
    classes = 0
    if "backbone" in config:
        low, high = config.get("score_range") or (0, 0)
        classes = max(operator.index(config.get("num_classes") or 0), high - low)
        config = config["backbone"]["config"]
    width, vocabulary_size = _sizes(config, "hidden_dim", "vocabulary_size")
    count = width * (vocabulary_size + classes) + count_matrix_weights(config)
    if "units" in config:
        return 1, count
    length, layers = _sizes(config, "max_sequence_length", "num_layers")
    return layers, count + width * length


def count_matrix_weights(config: Mapping[str, Any]) -> int:
    """Returns the number of weights in the matrices between a backbone's embeddings and its output.

    They are those of the blocks, or of the LSTM and its projection; biases and gammas are left out.

    Args:
        config: constructor arguments of `GPT1Backbone` or `LSTMBackbone`.

    Raises:
        KeyError, TypeError: a size is missing, or is not a whole number.
    """
    if "units" in config:
        width, units = _sizes(config, "hidden_dim", "units")
        return 4 * units * (width + units) + units * width
    width, layers, inner = _sizes(config, "hidden_dim", "num_layers", "intermediate_dim")
    return layers * (4 * width**2 + 2 * width * inner)


def _sizes(config: Mapping[str, Any], *names: str) -> list[int]:
    """Returns some of a configuration's sizes. Raises TypeError unless they are whole numbers."""
    return [operator.index(config[name]) for name in names]
