"""RawTextTask, what all tasks share: backbone, preprocessor and head."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any, ClassVar

import keras

from gpt1_keras.files import reading_weights, writing_weights
from gpt1_keras.models.causal_backbone import CausalBackbone
from gpt1_keras.models.named_inputs import NamedInputs
from gpt1_keras.models.weight_files import WeightFiles
from gpt1_keras.optimization.objective import AuxiliaryLanguageModeling, sequence_weights
from gpt1_keras.preset_files import loading_checked_files
from gpt1_keras.tasks.calibration import Calibration
from gpt1_keras.tasks.data import check_sequences
from gpt1_keras.tasks.heads import ExtractHead
from gpt1_keras.tasks.preset_checks import check_head_is_saved, check_trained_with, name_tasks
from gpt1_keras.tasks.trainer import RawTextTrainer
from gpt1_keras.tokenization.tokenizer import GPT1Tokenizer
from gpt1_keras.types import Tensor
from gpt1_keras.upstream import (
    get_preset_loader,
    is_selected,
    layers_of,
    list_subclasses,
)


class RawTextTask(WeightFiles, NamedInputs, RawTextTrainer):
    """A model that trains on strings and predicts from them.

    A task inherits from it and from one of KerasHub's tasks, in this order:
    `class MyTask(RawTextTask, keras_hub.models.Task)`. It is a functional model of ids, built in
    its constructor, with a `backbone`; a `preprocessor`, which turns strings into the model's
    inputs; and a `task_head`, which has the layers on the hidden states and says what labels are.

    Method resolution order, and what each class does when `fit` is called on strings:

    1. The task, such as `GPT1TextClassifier`: its functional model, and `texts_as_tensors`.
    2. `RawTextTask`: its parts, presets and quantization.
    3. `RawTextTrainer`: `fit` batches and shuffles, and stretches the learning-rate schedule;
       `preprocess_samples` checks the tokenizer and has the head encode the labels.
    4. `TrainingStep`: `train_step` computes the model's loss and gradients, compiled in each
       replica.
    5. KerasHub's `Task`, by way of `CausalLM` or `TextClassifier`: its `fit` maps
       `preprocess_samples` over the batches, and its `preprocess_samples` calls the preprocessor.
    6. `keras.Model`: `fit` loops over epochs and batches, and calls `train_step`.
    """

    # Constructor arguments that say what labels are. `from_preset` with one of them asks for a
    # fresh head.
    label_arguments: ClassVar[tuple[str, ...]] = ()

    # And what such a head starts with, whatever the preset's own has learned.
    fresh_arguments: ClassVar[Mapping[str, Any]] = {}

    head: Any = None  # the linear layer on the hidden states; None without one

    class_names = property(attrgetter("task_head.class_names"), doc="The classes, or None.")
    num_classes = property(attrgetter("task_head.num_classes"), doc="How many, or None.")
    score_range = property(attrgetter("task_head.score_range"), doc="Of regression, or None.")
    activation = property(attrgetter("task_head.activation"), doc="The function on the logits.")

    @property
    def tokenizer(self) -> Any:
        """The preprocessor's tokenizer; None without one."""
        return getattr(self.preprocessor, "tokenizer", None)

    def activate(self, logits: Tensor) -> Tensor:
        """As `LabelHead.activate`, of a task with such a head."""
        return self.task_head.activate(logits)

    def score_of(self, logits: Tensor) -> Tensor:
        """As `ScoreHead.score_of`, of a task with such a head."""
        return self.task_head.score_of(logits)

    @property
    def calibration(self) -> Calibration | None:
        """How logits become probabilities; None for a task whose answers have none."""
        return self.task_head.calibration

    @calibration.setter
    def calibration(self, calibration: Calibration) -> None:
        if self.calibration is None:
            raise ValueError(
                f"A {type(self.task_head).__name__} has no probabilities to calibrate. Received: "
                f"{calibration}."
            )
        self.task_head.calibration = calibration

    def probabilities(self, outputs: Tensor) -> Tensor:
        """Returns calibrated probabilities of classes or choices.

        Logits, losses and labels are the same whatever the temperature, so `predict`, `evaluate`
        and `fit` do without it.

        Args:
            outputs: what `predict` returns, float `[batch, classes or choices]`.

        Returns:
            float of the same shape. After an activation that is no softmax, the outputs themselves.

        Raises:
            ValueError: the task's answers have no probabilities, as scores have not.
        """
        return self.task_head.probabilities(outputs)

    def attach(
        self,
        backbone: CausalBackbone,
        preprocessor: Any,
        head: ExtractHead | None = None,
        weigh: Any = sequence_weights,
    ) -> None:
        """Sets the task's parts; a constructor calls it before it builds the functional model.

        Args:
            backbone: the backbone.
            preprocessor: texts are truncated to the backbone's context. Any layer or function that
                returns the model's inputs, or `None` for a model whose inputs are ids.
            head: the head, for a task that is fine-tuned.
            weigh: as in `AuxiliaryLanguageModeling`.
        """
        if preprocessor is not None and not callable(preprocessor):
            raise ValueError(
                f"The preprocessor of a {type(self).__name__} must be a layer or a function. "
                f"Received: {preprocessor!r}."
            )
        self.backbone = backbone
        length = getattr(preprocessor, "sequence_length", 0)  # a function or plain layer has none
        if length > backbone.max_sequence_length:
            # Not changed in place, as the caller's may serve other models.
            config = {**preprocessor.get_config(), "tokenizer": preprocessor.tokenizer}
            config["sequence_length"] = backbone.max_sequence_length
            preprocessor = type(preprocessor).from_config(config)
        self.preprocessor = preprocessor
        if head is None:
            return
        self.task_head = head
        self.auxiliary = AuxiliaryLanguageModeling(
            backbone.token_embedding, weigh, dtype=backbone.dtype_policy, name="auxiliary"
        )
        self.extract_dropout, self.head = head.dropout, head.linear
        self.dropout = head.dropout.rate

    def predict_outputs(
        self, inputs: dict[str, Tensor], states_at: Callable[..., Tensor] | None = None
    ) -> Tensor:
        """Returns the model's outputs in inference, computing only the hidden states they need.

        A task may leave out `states_at`; its exports then compute the backbone as it is.

        Args:
            inputs: the model's inputs by name, as the preprocessor returns them.
            states_at: computes hidden states in the place of the backbone's `states_at`, with the
                same arguments.
        """
        raise NotImplementedError

    def check_inputs(self, inputs: Any) -> None:
        super().check_inputs(inputs)
        if self.auxiliary is not None and "padding_mask" in inputs:
            check_sequences(inputs["padding_mask"])

    # === Presets ===

    @classmethod
    @loading_checked_files
    def from_preset(
        cls,
        preset: str | os.PathLike[str],
        load_weights: bool = True,
        *,
        normalization: str | None = None,
        **kwargs: Any,
    ) -> RawTextTask:
        """Loads a preset, as `keras_hub.models.Task.from_preset`.

        Args:
            preset: the name of a preset that ships (`cls.presets` lists them), a folder that
                `save_to_preset` or `transformers` wrote, or a handle such as
                `"hf://openai-community/openai-gpt"`, which is downloaded.
            load_weights: whether to load weights; otherwise they are initialized.
            normalization: how text becomes words, `"bert"` or `"original"`. By default the
                preset's, and `"bert"` for `transformers`, whose files do not say.
            **kwargs: constructor arguments to change, such as `dtype`. What says what labels are,
                such as `class_names`, asks for a fresh head on the preset's backbone.

        Raises:
            OSError: see `gpt1_keras.handles.local_preset`.
            ValueError: the preset does not exist, or holds another model or damaged weights; or it
                lost the weights of its head; or the tokenizer does not fit the weights, be it the
                preset's or that of a preprocessor in `kwargs`; or the preset has another
                normalization.
        """
        loader = get_preset_loader(preset)
        backbone_cls = loader.check_backbone_class()
        if not issubclass(backbone_cls, CausalBackbone):
            raise ValueError(
                f"{cls.__name__} needs a backbone of gpt1_keras. Received: {preset}, which holds a "
                f"{backbone_cls.__name__}."
            )
        is_fresh = any(kwargs.get(name) is not None for name in cls.label_arguments)
        if is_fresh:
            # Those that are not given must not stay as the preset has them.
            labels = {name: kwargs.get(name) for name in cls.label_arguments}
            kwargs = {**cls.fresh_arguments, **kwargs, **labels}
        if normalization is not None:
            if "preprocessor" in kwargs:
                raise ValueError("Give `normalization` or a preprocessor. Received both.")
            tokenizer = GPT1Tokenizer.from_preset(preset, normalization=normalization)
            kwargs["preprocessor"] = cls.preprocessor_cls.from_preset(preset, tokenizer=tokenizer)
        if kwargs.get("dtype") is None and _has_mixed_policy(loader.config):
            # As of every other float policy; KerasHub 0.32 means to, and raises "Invalid dtype".
            kwargs["dtype"] = keras.config.dtype_policy()
        # KerasHub's own `from_preset` requires another task for each class of backbone.
        task = loader.load_task(cls, load_weights, not is_fresh, **kwargs)
        if load_weights and not is_fresh and task.has_task_weights():
            check_head_is_saved(cls.__name__, preset)
        task.check_tokenizer()
        if load_weights and task.tokenizer is not None:
            check_trained_with(preset, task.tokenizer)
        return task

    def save_to_preset(
        self, preset_dir: str | os.PathLike[str], max_shard_size: float = 10
    ) -> None:
        """As `keras_hub.models.Task.save_to_preset`; metadata.json names the package's tasks.

        Raises:
            ValueError: the preset could not be loaded, see `CausalBackbone.check_loads`.
        """
        self.backbone.check_loads()
        super().save_to_preset(preset_dir, max_shard_size)
        # KerasHub names the class that each registered task inherits from first: this one.
        name_tasks(preset_dir, [task_cls.__name__ for task_cls in list_subclasses(RawTextTask)])

    def save_task_weights(self, filepath: str) -> None:
        """Saves the head's weights, without the optimizer's state, which no preset can load.

        Raises:
            OSError: as `save_weights`.
        """
        skipped = [*layers_of(self.backbone), self.optimizer]
        with writing_weights(filepath) as memory:
            keras.saving.save_weights(self, memory, objects_to_skip=skipped)

    def export_to_transformers(self, path: str | os.PathLike[str]) -> None:
        """KerasHub's name for `gpt1_keras.convert.save_hugging_face`."""
        from gpt1_keras.convert import save_hugging_face  # which imports this module

        save_hugging_face(self, path)

    def load_task_weights(self, filepath: str) -> None:
        """Loads the head's weights. Raises ValueError if they are damaged or do not fit."""
        skipped = [*layers_of(self.backbone), self.optimizer]
        with reading_weights(filepath):
            keras.saving.load_weights(self, filepath, objects_to_skip=skipped)

    def check_tokenizer(self) -> None:
        """Raises ValueError if the tokenizer has tokens that the backbone does not embed."""
        if self.tokenizer is None:
            return
        tokens = self.tokenizer.vocabulary_size()
        if tokens > self.backbone.vocabulary_size:
            raise ValueError(
                f"The tokenizer does not fit the model: it has {tokens} tokens, and the model "
                f"embeds {self.backbone.vocabulary_size}."
            )

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), **self.task_head.get_config()}

    # === Export and quantization ===

    def export(
        self, filepath: str | os.PathLike[str], format: str = "tf_saved_model", **kwargs: Any
    ) -> None:
        """As `keras.Model.export`: the model of ids, without the preprocessor.

        Raises:
            ValueError: `format="openvino"` for a task with a head.
        """
        if format == "openvino" and self.head is not None:
            raise ValueError(
                f"OpenVINO converts the head of a {type(self).__name__} to something else, with "
                "other outputs. Received: format='openvino'; expected 'tf_saved_model', 'onnx', "
                "'litert' or 'torch'."
            )
        super().export(filepath, format, **kwargs)

    def quantize(
        self, mode: str | None = None, config: Any = None, filters: Any = None, **kwargs: Any
    ) -> None:
        """As `keras.Model.quantize`; the head, some thousand weights, stays as it is.

        A preset keeps the data types of the backbone's layers alone, and could not load the weights
        of a quantized head.
        """
        super().quantize(
            mode,
            config,
            lambda layer: layer is not self.head and is_selected(layer, filters),
            **kwargs,
        )

    def get_quantization_layer_structure(self, mode: str) -> dict[str, list] | None:
        """As `GPT1Backbone.get_quantization_layer_structure`."""
        return self.backbone.get_quantization_layer_structure(mode)


def _has_mixed_policy(config: dict[str, Any]) -> bool:
    """Whether a preset's config.json is of a backbone in mixed precision."""
    policy = config.get("config", {}).get("dtype") or {}
    return str(policy.get("config", {}).get("name")).startswith("mixed_")
