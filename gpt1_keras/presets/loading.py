"""Presets by name or path: their folders, tasks and tokenizers."""

import os
import pathlib
from typing import Any, TypeVar

import keras

from gpt1_keras.convert.from_transformers import OpenAIGPTLoader
from gpt1_keras.files import contents_of, read_json
from gpt1_keras.models.gpt1_backbone import GPT1Backbone
from gpt1_keras.preset_files import (
    HANDLES,
    check_not_of_openai,
    is_handle,
    is_transformers_config,
    local_preset,
)
from gpt1_keras.presets.configurations import PRETRAINED
from gpt1_keras.tasks.task import Task
from gpt1_keras.tokenization.tokenizer import MERGES_FILE, VOCABULARY_FILE, GPT1Tokenizer
from gpt1_keras.upstream import (
    CONFIG_FILE,
    TASK_CONFIG_FILE,
    TOKENIZER_CONFIG_FILE,
    get_preset_loader,
    register_presets,
)

# Where the folder of a run has its preset: of a fine-tuning, and of a pre-training.
_OF_A_RUN = ("best", "preset")

_PRESET_ASSETS = pathlib.Path("assets", "tokenizer")
_ORIGINAL_FILES = ("encoder_bpe_40000.json", "vocab_40000.bpe")


def find_preset(preset: str | os.PathLike[str], weights: bool = True) -> pathlib.Path:
    """Finds the folder of a preset.

    Args:
        preset: the name of a preset that ships; the path of a preset's folder, of a run's, or of a
            checkpoint of `transformers`; or a handle, `hf://`, `kaggle://` or `modelscope://`,
            whose files are downloaded.
        weights: whether to download a handle's weights too.

    Returns:
        The absolute path.

    Raises:
        FileNotFoundError: it is none of these.
        ValueError, OSError, ImportError: see `gpt1_keras.preset_files.local_preset`.
    """
    if is_handle(preset):
        return pathlib.Path(local_preset(preset, weights))
    # Absolute: pathlib turns ./NAME into NAME, which KerasHub would take for a preset that ships.
    ships = isinstance(preset, str) and preset in PRETRAINED
    folder = _folder(preset) if ships else preset_in(pathlib.Path(preset).absolute())
    if not (folder / CONFIG_FILE).is_file():
        check_not_of_openai(folder)
        raise FileNotFoundError(
            f"{preset} is not a preset: neither one that ships ({', '.join(PRETRAINED)}) nor a "
            f"folder that has a config.json, nor a run that has one in best/ or preset/, nor a "
            f"handle ({', '.join(HANDLES)}). {contents_of(preset)}"
        )
    return folder


def preset_in(folder: pathlib.Path) -> pathlib.Path:
    """Returns the folder of a run's preset; any other folder as it is."""
    if not (folder / CONFIG_FILE).is_file():
        for name in _OF_A_RUN:
            if (folder / name / CONFIG_FILE).is_file():
                return folder / name
    return folder


def _folder(name: str | os.PathLike[str]) -> pathlib.Path:
    return pathlib.Path(__file__).parent / name


# `from_preset` then finds presets by name. KerasHub accepts a path instead of a handle.
register_presets(
    {
        name: {"metadata": {"description": description}, "kaggle_handle": os.fspath(_folder(name))}
        for name, description in PRETRAINED.items()
    },
    GPT1Backbone,
)


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


_Task = TypeVar("_Task", bound=Task)


def load_task(preset: str | os.PathLike[str], *classes: type[_Task]) -> _Task:
    """Loads the task that a preset holds.

    Args:
        preset: a name, a folder or a handle, as in `find_preset`.
        *classes: the accepted classes of tasks. By default all are accepted, also your own
            subclasses that `keras.saving.register_keras_serializable` registers.

    Raises:
        FileNotFoundError: there is no such preset, or it holds no task.
        ValueError: the task is not of one of the classes, is damaged, or its class is not
            registered.
        OSError, ImportError: see `find_preset`.
    """
    folder = find_preset(preset)
    task_cls = _task_class(preset, folder)
    if classes and not issubclass(task_cls, classes):
        expected = " or ".join(each.__name__ for each in classes)
        raise ValueError(f"{preset} is a {task_cls.__name__}; expected a {expected}.")
    return task_cls.from_preset(os.fspath(folder))


def _task_class(preset: str | os.PathLike[str], folder: pathlib.Path) -> Any:
    """Returns the class of the task; see `load_task` for the errors."""
    path = folder / TASK_CONFIG_FILE
    if not path.is_file():
        loader = get_preset_loader(os.fspath(folder))
        if isinstance(loader, OpenAIGPTLoader):
            return loader.task_class()
        raise FileNotFoundError(f"{preset} is not a preset of a task: it has no task.json.")
    try:
        description = read_json(path)
        name, found = str(description["registered_name"]), description["class_name"]
    except (ValueError, KeyError) as error:
        raise ValueError(f"{path} does not describe a task: {error!r}.") from None
    task_cls = keras.saving.get_registered_object(name)
    if not (isinstance(task_cls, type) and issubclass(task_cls, Task)):
        raise ValueError(f"{preset} is a {found}, which is not a registered task of raw texts.")
    return task_cls
