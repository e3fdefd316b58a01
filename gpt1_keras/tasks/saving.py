"""Saves and loads tasks: presets, weights of the head, arguments of `compile`, exports of ids."""

from __future__ import annotations

import inspect
import os
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import keras

from gpt1_keras.files import reading_weights, writing_weights
from gpt1_keras.models.causal_backbone import CausalBackbone
from gpt1_keras.preset_files import dtype_of_preset
from gpt1_keras.tokenization.tokenizer import GPT1Tokenizer
from gpt1_keras.upstream import (
    TASK_CONFIG_FILE,
    TASK_WEIGHTS_FILE,
    TOKENIZER_CONFIG_FILE,
    check_file_exists,
    get_preset_loader,
    layers_of,
    load_json,
)


def load_task_preset(
    task_cls: Any,
    preset: str | os.PathLike[str],
    load_weights: bool,
    normalization: str | None,
    arguments: dict[str, Any],
) -> Any:
    """Loads a preset, a folder or the name of one that ships, as a task; see `Task.from_preset`."""
    loader = get_preset_loader(preset)
    backbone_cls = loader.check_backbone_class()
    if not issubclass(backbone_cls, CausalBackbone):
        raise ValueError(
            f"{task_cls.__name__} needs a backbone of gpt1_keras. Received: {preset}, which holds "
            f"a {backbone_cls.__name__}."
        )
    is_fresh = any(arguments.get(name) is not None for name in task_cls.label_arguments)
    if is_fresh:
        # Labels that are not given must not come from the preset.
        labels = {name: arguments.get(name) for name in task_cls.label_arguments}
        arguments = {**task_cls.fresh_arguments, **arguments, **labels}
    if normalization is not None:
        if "preprocessor" in arguments:
            raise ValueError("Give `normalization` or a preprocessor. Received both.")
        tokenizer = GPT1Tokenizer.from_preset(preset, normalization=normalization)
        preprocessor = task_cls.preprocessor_cls.from_preset(preset, tokenizer=tokenizer)
        arguments["preprocessor"] = preprocessor
    if arguments.get("dtype") is None:
        arguments["dtype"] = dtype_of_preset(loader.config)
    # KerasHub's own `from_preset` requires another task for each class of backbone.
    task = loader.load_task(task_cls, load_weights, not is_fresh, **arguments)
    if load_weights and not is_fresh and task.has_task_weights():
        _check_head_is_saved(task_cls.__name__, preset)
    task.check_tokenizer()
    if load_weights and task.tokenizer is not None:
        _check_trained_with(preset, task.tokenizer)
    return task


def save_head(task: Any, path: str | os.PathLike[str]) -> None:
    """Saves the weights outside the backbone, without the optimizer's state.

    A preset could not load that state.

    Raises:
        OSError: it cannot be written, for example because the disk is full. An earlier file stays.
    """
    with writing_weights(path) as memory:
        keras.saving.save_weights(task, memory, objects_to_skip=_not_the_head(task))


def load_head(task: Any, path: str | os.PathLike[str]) -> None:
    """Loads what `save_head` saved. Raises ValueError if it is damaged or does not fit."""
    with reading_weights(path):
        keras.saving.load_weights(task, path, objects_to_skip=_not_the_head(task))


def _not_the_head(task: Any) -> list[Any]:
    return [*layers_of(task.backbone), task.optimizer]


def _check_head_is_saved(class_name: str, preset: str | os.PathLike[str]) -> None:
    """Raises ValueError if a preset of this class, which has a head, lacks the head's weights."""
    if not check_file_exists(preset, TASK_CONFIG_FILE):
        return
    saved_class = load_json(preset, TASK_CONFIG_FILE)["class_name"]
    if saved_class == class_name and not check_file_exists(preset, TASK_WEIGHTS_FILE):
        raise ValueError(
            f"{preset} is a {saved_class} without {TASK_WEIGHTS_FILE}, the weights of its head. "
            f"Restore the file, or ask for fresh weights with load_weights=False."
        )


def _check_trained_with(preset: str | os.PathLike[str], tokenizer: GPT1Tokenizer) -> None:
    """Raises ValueError if the preset's weights were trained with another tokenizer."""
    if not check_file_exists(preset, TOKENIZER_CONFIG_FILE):
        return
    # `transformers` writes a file of this name too.
    expected = load_json(preset, TOKENIZER_CONFIG_FILE).get("config", {})
    if expected.get("fingerprint") not in (None, tokenizer.fingerprint):
        raise ValueError(
            f"{preset} was trained with another tokenizer, whose ids mean other tokens. "
            f"Received: normalization={tokenizer.normalization!r}, fingerprint "
            f"{tokenizer.fingerprint}; expected normalization="
            f"{expected['normalization']!r}, fingerprint {expected['fingerprint']}."
        )


@keras.saving.register_keras_serializable(package="gpt1_keras")
class CompileArguments(Mapping[str, Any]):
    """The arguments of a task's `compile`.

    As a mapping, it has only what `keras.Model.compile` takes: Keras clones a task to a plain
    model, which it compiles with them.

    Args:
        of_keras: what the task passed on to `keras.Model.compile`.
        is_built: whether the optimizer has a state.
        **given: all arguments, with the optimizer and metrics that `"auto"` stood for.
    """

    def __init__(self, of_keras: Mapping[str, Any], is_built: bool = False, **given: Any) -> None:
        known = inspect.signature(keras.Model.compile).parameters  # without KerasHub's
        self._of_keras = {name: each for name, each in of_keras.items() if name in known}
        self.is_built, self.given = is_built, given

    def __getitem__(self, name: str) -> Any:
        return self._of_keras[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._of_keras)

    def __len__(self) -> int:
        return len(self._of_keras)

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments, serialized."""
        config = {"of_keras": self._of_keras, "is_built": self.is_built, **self.given}
        return keras.saving.serialize_keras_object(config)

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> CompileArguments:
        """Makes the arguments of what `get_config` returned."""
        return cls(**keras.saving.deserialize_keras_object(config))


def serialized_compile_arguments(task: Any) -> dict[str, Any]:
    """Returns what `compile_from` takes; see `Task.get_compile_config`."""
    if not task.compiled:
        return {}
    task.compiled_with.is_built = task.optimizer is not None and task.optimizer.built
    return keras.saving.serialize_keras_object(task.compiled_with)


def compile_from(task: Any, config: dict[str, Any]) -> None:
    """Compiles a task as one that was saved; see `Task.compile_from_config`."""
    arguments = keras.saving.deserialize_keras_object(config)
    if not isinstance(arguments, CompileArguments):
        warnings.warn(
            f"An earlier version saved this {type(task).__name__} without the arguments of "
            "`compile`, so it has the default ones. Call `compile` to train it with others.",
            stacklevel=3,
        )
        return
    task.compile(**arguments.given)
    if arguments.is_built:  # so that Keras reads its state
        task.optimizer.build(task.trainable_variables)


# What a user of `Model.export` may look for.
OF_TEXTS = (
    "`Model.export` writes the model of ids. For texts in and names out, call "
    "serving.export.export(model, folder) or serving.tflite.convert(model, file)."
)
_SAVED_MODEL_ARGUMENTS = {"verbose", "input_signature", "is_static", "jax2tf_kwargs"}


def check_export(task: Any, format: str, arguments: Mapping[str, Any]) -> None:
    """Raises ValueError for models that Keras exports wrongly, and arguments that it ignores."""
    if format == "openvino" and task.head is not None:
        raise ValueError(
            f"OpenVINO converts the head of a {type(task).__name__} to something else, with other "
            "outputs. Received: format='openvino'; expected 'tf_saved_model', 'onnx', 'litert' or "
            "'torch'."
        )
    unknown = sorted(arguments.keys() - _SAVED_MODEL_ARGUMENTS)
    if format == "tf_saved_model" and unknown:
        raise ValueError(
            f"Expected arguments of Keras's `Model.export`. Received: {unknown}. {OF_TEXTS}"
        )
