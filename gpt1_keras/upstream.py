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
from keras import tree
from keras.src.quantizers.utils import should_quantize_layer as is_selected
from keras.src.saving.keras_saveable import KerasSaveable as Saveable
from keras.src.saving.saving_lib import H5IOStore, ShardedH5IOStore
from keras.src.saving.saving_lib import _get_unique_name as unique_name
from keras.src.saving.saving_lib import _walk_saveable as walk_saveable
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
from keras_hub.src.utils.transformers import preset_loader as transformers_loaders

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


def specs_of(iterator: Any) -> Any:
    """Returns what is known of the batches that Keras iterates; None if they are no dataset.

    Keras builds a model by a first batch, and then begins anew. A generator's batch would be lost.
    """
    data = getattr(getattr(iterator, "data_adapter", None), "_dataset", None)
    if has_tensorflow() and isinstance(data, tf.data.Dataset):
        return data.element_spec
    return None


def has_strategy(model: keras.Model) -> bool:
    """Returns whether a model was made under a `tf.distribute` strategy."""
    return model._distribute_strategy is not None


def take_summed_gradients(optimizer: Any) -> None:
    """Keeps an optimizer from summing the gradients of replicas before it clips them."""
    getattr(optimizer, "inner_optimizer", optimizer)._all_reduce_sum_gradients = list


@contextlib.contextmanager
def without_outer_jit(model: keras.Model) -> Iterator[None]:
    """Keeps Keras from compiling around the strategy, which fails with several replicas."""
    jit_compile, model._jit_compile = model.jit_compile, False
    try:
        yield
    finally:
        model._jit_compile = jit_compile


class ModelHooks(Model):
    """A mixin for models: what Keras calls by private names has public ones, for subclasses."""

    def jit_compiles_by_default(self) -> bool:
        """Returns whether `jit_compile="auto"` stands for True; called on TensorFlow."""
        return super()._resolve_auto_jit_compile()

    def _resolve_auto_jit_compile(self) -> bool:
        return self.jit_compiles_by_default()

    def data_to_build_by(self, iterator: Any, batch: Any) -> tuple[Any, Any]:
        """Returns the arguments, or others, by which Keras builds metrics before it trains."""
        return iterator, batch

    def _maybe_symbolic_build(self, iterator: Any = None, data_batch: Any = None) -> None:
        super()._maybe_symbolic_build(*self.data_to_build_by(iterator, data_batch))

    def _symbolic_build(self, iterator: Any = None, data_batch: Any = None) -> None:
        super()._symbolic_build(*self.data_to_build_by(iterator, data_batch))

    def update_metrics_variables(self, *args: Any) -> tuple[dict[str, Tensor], list[Tensor]]:
        """Updates metrics by values of their variables; called on JAX, see `JaxStep`."""
        return super()._update_metrics_variables(*args)

    def _update_metrics_variables(self, *args: Any) -> tuple[dict[str, Tensor], list[Tensor]]:
        return self.update_metrics_variables(*args)
