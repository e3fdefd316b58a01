"""All private names of Keras 3.15 and KerasHub 0.32 that this package depends on.

Any release may rename them. So only this file uses them, and test_upstream.py fails if one is gone,
or if Keras no longer calls what is overridden here.
"""

# ruff: noqa: F401, other modules import private names from here

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import h5py
import keras
import keras_hub
import numpy as np
from keras import tree
from keras.src.quantizers.utils import should_quantize_layer as is_selected
from keras.src.saving.keras_saveable import KerasSaveable
from keras.src.saving.saving_lib import (
    H5IOStore,
    ShardedH5IOStore,
    _get_unique_name,
    _walk_saveable,
)
from keras.src.saving.saving_lib import safe_get_h5_dataset as check_dataset
from keras.src.saving.serialization_lib import in_safe_mode
from keras.src.utils.backend_utils import in_grain_data_pipeline
from keras.src.utils.naming import to_snake_case
from keras_hub.src.utils.pipeline_model import PipelineModel
from keras_hub.src.utils.preset_utils import (
    CONFIG_FILE,
    METADATA_FILE,
    MODEL_WEIGHTS_FILE,
    PREPROCESSOR_CONFIG_FILE,
    TASK_CONFIG_FILE,
    TASK_WEIGHTS_FILE,
    TOKENIZER_CONFIG_FILE,
    PresetLoader,
    check_file_exists,
    get_file,
    get_preset_loader,
    list_subclasses,
    load_json,
    register_presets,
)
from keras_hub.src.utils.tensor_utils import (
    convert_preprocessing_outputs,
    convert_preprocessing_outputs_grain,
    convert_preprocessing_outputs_python,
)
from keras_hub.src.utils.transformers import preset_loader as transformers_preset_loader

from gpt1_keras.lazy import has_tensorflow
from gpt1_keras.lazy import tensorflow as tf
from gpt1_keras.types import Tensor

# Type checkers see what a mixin is mixed into.
if TYPE_CHECKING:
    from keras import Model
    from keras.optimizers import Adam
else:
    Adam = Model = object


def schedule_of(optimizer: keras.optimizers.Optimizer) -> Any:
    """Returns the optimizer's learning-rate schedule, or the variable of its constant rate.

    `optimizer.learning_rate` is the rate of the current update.
    """
    return optimizer._learning_rate


def schedule_step(optimizer: keras.optimizers.Optimizer) -> int:
    """Returns the step at which the optimizer asks its schedule for the rate next.

    With `gradient_accumulation_steps`, it counts batches, and `optimizer.iterations` updates.
    """
    return int(optimizer._iterations.numpy())  # also of several replicas


def layers_of(layer: keras.layers.Layer) -> list[keras.layers.Layer]:
    """Returns a layer and all layers inside it."""
    return list(layer._flatten_layers())


def lora_layers(backbone: keras_hub.models.Backbone) -> dict[int, keras.layers.Layer]:
    """Returns the layers that have LoRA kernels, by their number in a file of LoRA weights."""
    layers = [layer for layer in layers_of(backbone)[1:] if layer.weights]
    return {index: layers[index] for index in backbone._lora_enabled_layers}


def saved_layers(model: keras.Model) -> set[str]:
    """Returns where Keras stores the layers of a functional model in a file of weights."""
    paths: set[str] = set()
    visited: set[int] = set()

    def visit(path: str, value: Any) -> None:
        if id(value) in visited:
            return
        visited.add(id(value))
        if isinstance(value, KerasSaveable):
            paths.add(path)
            for name, child in _walk_saveable(value):
                visit(f"{path}/{name}", child)
        elif isinstance(value, (list, tuple, dict)):
            used: dict[str, int] = {}
            for child in value.values() if isinstance(value, dict) else value:
                if isinstance(child, (KerasSaveable, list, tuple, dict)):
                    is_layer = isinstance(child, KerasSaveable)
                    name = to_snake_case(type(child).__name__) if is_layer else "container"
                    visit(f"{path}/{_get_unique_name(name, used)}", child)

    visit("layers", model.layers)
    return paths


def weights_files(store: Any) -> Iterator[h5py.File]:
    """Yields the files that Keras loads a whole model's weights from, one or several shards.

    There is none for a model inside another one, whose files are the outer model's. `store` is what
    Keras passes to `load_own_variables`.
    """
    if not isinstance(store, H5IOStore) or store._h5_entry_path:
        return
    if not isinstance(store, ShardedH5IOStore):
        yield store.h5_file
        return
    for name in sorted(set(tree.flatten(store.sharding_config["weight_map"]))):
        with h5py.File(store.path.with_name(name)) as file:
            yield file


def take_tuples_for_texts(preprocessor: keras_hub.models.Preprocessor) -> None:
    """Keeps KerasHub from reading a pair of texts, a tuple, as texts and labels."""
    preprocessor._call_accepts_labels = False


def add_special_token(tokenizer: keras_hub.tokenizers.Tokenizer, token: str, name: str) -> None:
    """Adds a token, which KerasHub then reads as the tokenizer's attribute of that name."""
    tokenizer._add_special_token(token, name)


def update_special_token_ids(tokenizer: keras_hub.tokenizers.Tokenizer) -> None:
    """Looks up the ids of special tokens again, after the vocabulary has changed."""
    tokenizer._update_special_token_ids()


def register_transformers_loader(model_type: str, loader_cls: type[PresetLoader]) -> None:
    """Makes KerasHub use our loader for checkpoints of `transformers` with that `model_type`.

    KerasHub's loader has a fixed list of converters, and loads no head of a text classifier.
    """
    theirs = transformers_preset_loader.TransformersPresetLoader

    class Loader(theirs):  # type: ignore[misc, valid-type]
        def __new__(cls, preset: str, config: dict[str, Any]) -> Any:
            if config["model_type"] == model_type:
                return loader_cls(preset, config)
            return super().__new__(cls)

    transformers_preset_loader.TransformersPresetLoader = Loader


def to_grain_types(x: Any) -> Any:
    """Converts tensors to arrays or lists in a Grain pipeline, whose workers exchange them."""
    return convert_preprocessing_outputs_grain(x) if in_grain_data_pipeline() else x


def to_backend_tensors(x: Any) -> Any:
    """Converts preprocessed tensors for Keras's backend or Grain; leaves them alone in a graph."""
    if has_tensorflow():
        return convert_preprocessing_outputs(x)
    return convert_preprocessing_outputs_python(x)


class AdamHooks(Adam):
    """A mixin for `keras.optimizers.Adam`."""

    def clip_gradients(self, gradients: list[Tensor]) -> list[Tensor]:
        """Clips gradients as the optimizer's arguments say. Subclasses may override it."""
        return super()._clip_gradients(gradients)

    def _clip_gradients(self, grads: list[Tensor]) -> list[Tensor]:
        return self.clip_gradients(grads)

    def decays(self, variable: keras.Variable) -> bool:
        """Returns whether a variable decays: not if `exclude_from_weight_decay` names it."""
        return self._use_weight_decay(variable)

    def index_of(self, variable: keras.Variable) -> int:
        """Returns the index of a variable among those that the optimizer was built for."""
        return self._get_variable_index(variable)

    def moments_of(self, variable: keras.Variable) -> tuple[keras.Variable, keras.Variable]:
        """Returns the first and the second moment of a variable's gradient."""
        index = self.index_of(variable)
        return self._momentums[index], self._velocities[index]


def update_loss_metric(model: keras.Model, loss: Tensor, count: Tensor) -> None:
    """Adds a batch's loss, weighted by `count`, to the mean that `fit` and `evaluate` report."""
    model._loss_tracker.update_state(loss, sample_weight=count)


def keras_loops(model: PipelineModel) -> Any:
    """Returns an object with the `fit`, `evaluate` and `predict` of `keras.Model`.

    It takes what is preprocessed already, also a `PyDataset` and a distributed dataset. KerasHub's
    would preprocess it.
    """
    return super(PipelineModel, model)


def _specs_of(iterator: Any) -> Any:
    """Returns what is known of the batches that Keras iterates; None if they are no dataset.

    Keras builds a model by a first batch, and then begins anew. A generator's batch would be lost.
    """
    data = getattr(getattr(iterator, "data_adapter", None), "_dataset", None)
    if has_tensorflow() and isinstance(data, tf.data.Dataset):
        return data.element_spec
    return None


class TensorFlowHooks(Model):
    """A mixin for tasks on TensorFlow: Keras calls it, and `training_step` does the work."""

    training_step: Any

    def compile(self, *args: Any, **kwargs: Any) -> None:
        super().compile(*args, **kwargs)
        optimizer: Any = getattr(self.optimizer, "inner_optimizer", self.optimizer)
        # The step has summed the gradients of all replicas before the optimizer clips them.
        optimizer._all_reduce_sum_gradients = list

    def train_step(self, data: Any) -> dict[str, Tensor]:
        return self.training_step.train(data)

    def test_step(self, data: Any) -> dict[str, Tensor]:
        return self.training_step.evaluate(data)

    def make_train_function(self, force: bool = False) -> None:
        if self.train_function is None or force:
            self.training_step.compile()
            with self._without_outer_jit():
                super().make_train_function(force)

    def make_test_function(self, force: bool = False) -> None:
        with self._without_outer_jit():
            super().make_test_function(force)

    @contextlib.contextmanager
    def _without_outer_jit(self) -> Iterator[None]:
        """Keeps Keras from compiling around the strategy, which fails with several replicas."""
        jit_compile, self._jit_compile = self.jit_compile, False
        try:
            yield
        finally:
            self._jit_compile = jit_compile

    def _resolve_auto_jit_compile(self) -> bool:
        # The same as in Keras, but also under a strategy.
        return any(device.device_type != "CPU" for device in tf.config.list_physical_devices())

    def _maybe_symbolic_build(self, iterator: Any = None, data_batch: Any = None) -> None:
        # Keras builds metrics with the mean of all replicas' data, which fails with several
        # workers. The data of one replica is enough, or what is known of it.
        specs = _specs_of(iterator)
        if specs is not None:
            iterator, data_batch = None, specs
        elif iterator is not None and self._distribute_strategy is not None:
            batch = next(next(iter(iterator))[-1])
            local = self.distribute_strategy.experimental_local_results
            iterator, data_batch = None, tree.map_structure(lambda v: local(v)[0], batch)
        super()._maybe_symbolic_build(iterator, data_batch)


class JaxHooks(Model):
    """A mixin for tasks on JAX: Keras calls it, and `training_step` does the work."""

    training_step: Any

    def train_step(self, state: tuple, data: Any) -> tuple[dict[str, Tensor], tuple]:
        if self.training_step.accumulation_steps == 1:
            return super().train_step(state, data)
        return self.training_step.train(state, data)

    def _symbolic_build(self, iterator: Any = None, data_batch: Any = None) -> None:
        super()._symbolic_build(iterator, data_batch or _specs_of(iterator))

    def compute_loss_and_updates(self, *args: Any, **kwargs: Any) -> Any:
        return self.training_step.loss_and_updates(*args, **kwargs)

    def _update_metrics_variables(
        self,
        metrics_variables: list[Tensor],
        unscaled_loss: Tensor,
        x: Any,
        y: Any,
        y_pred: Any,
        sample_weight: Any,
    ) -> tuple[dict[str, Tensor], list[Tensor]]:
        data = (x, y, sample_weight)
        return self.training_step.update_metrics(metrics_variables, unscaled_loss, data, y_pred)


class TorchHooks(Model):
    """A mixin for tasks on torch: Keras calls it, and `training_step` does the work."""

    training_step: Any

    def _symbolic_build(self, iterator: Any = None, data_batch: Any = None) -> None:
        if data_batch is None and (specs := _specs_of(iterator)) is not None:
            # Of an unknown size, Keras would try one that may be longer than the context.
            data_batch = tree.map_structure(
                lambda spec: tf.TensorSpec([size or 1 for size in spec.shape], spec.dtype), specs
            )
        super()._symbolic_build(iterator, data_batch)

    def train_step(self, data: Any) -> dict[str, Tensor]:
        return self.training_step.train(data)

    def test_step(self, data: Any) -> dict[str, Tensor]:
        return self.training_step.evaluate(data)


def keep_batches_apart(model: keras.Model) -> None:
    """Makes `predict` return batches of outputs that differ in width.

    On JAX and torch, Keras joins batches by `np.concatenate`, which fails on them. So each batch
    becomes the one element of an array of objects, and `predict` returns an array of these
    elements. TensorFlow returns a ragged tensor by itself.
    """
    predict = model.predict_function

    def element(outputs: Tensor) -> np.ndarray:
        array = np.empty(1, object)
        array[0] = outputs
        return array

    def predict_function(*data: Any) -> Any:
        outputs = predict(*data)
        if keras.backend.backend() == "jax":  # whose step also returns the state
            return element(outputs[0]), outputs[1]
        return element(outputs)

    if keras.backend.backend() != "tensorflow":
        model.predict_function = predict_function


if TYPE_CHECKING or keras.backend.backend() == "tensorflow":
    TaskHooks = TensorFlowHooks
elif keras.backend.backend() == "jax":
    TaskHooks = JaxHooks
else:
    TaskHooks = TorchHooks
