"""RawTextTrainer, what `compile`, `fit`, `evaluate` and `predict` do with strings."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from typing import Any

import keras

from gpt1_keras.lazy import has_tensorflow
from gpt1_keras.lazy import tensorflow as tf
from gpt1_keras.models.causal_backbone import CausalBackbone
from gpt1_keras.optimization.optimizer import finetuning_optimizer
from gpt1_keras.optimization.training_step import TrainingStep
from gpt1_keras.tasks.data import (
    cardinality,
    from_generator,
    holds_batches,
    holds_ids,
    is_generator,
    pack,
    without_autotuning,
)
from gpt1_keras.tasks.fields_preprocessor import FieldsPreprocessor
from gpt1_keras.tasks.heads import Head
from gpt1_keras.types import Tensor
from gpt1_keras.upstream import in_grain_data_pipeline, schedule_of


class RawTextTrainer(TrainingStep):
    """Trains a `RawTextTask` on strings, and predicts from them."""

    backbone: CausalBackbone
    task_head: Any = Head()  # which head, a task says
    auxiliary: Any = None  # an `AuxiliaryLanguageModeling`, which adds L1; None without a head
    preprocessor: Any  # a layer or a function; None where inputs are ids
    _takes_class_numbers = True  # whether the compiled loss takes what the head makes of labels

    def compile(  # type: ignore[override]  # names what Keras takes as *args
        self,
        optimizer: Any = "auto",
        loss: Any = "auto",
        *,
        metrics: Any = "auto",
        lm_coefficient: float = 0.5,
        **kwargs: Any,
    ) -> None:
        """Configures training; by default fine-tuning as in the paper (section 4.1).

        Args:
            optimizer: `"auto"` for Adam with the paper's rate, schedule, decay and clipping.
            loss: `"auto"` for the head's, L2: cross-entropy.
            metrics: `"auto"` for the head's: accuracy, where there are classes and the loss takes
                their numbers.
            lm_coefficient: lambda in L3 = L2 + lambda L1. `fit` reports L3 as its loss; validation
                and `evaluate` report L2. The weights of examples weigh both.
            **kwargs: see `keras.Model.compile`.
        """
        if self.auxiliary is not None:
            self.auxiliary.coefficient = lm_coefficient
        is_auto, is_sparse = isinstance(loss, str) and loss == "auto", _is_sparse(loss)
        if is_sparse and not self.task_head.labels_are_classes:
            raise ValueError(
                "A sparse loss takes numbers of two classes or more, which the labels of a "
                f"{type(self.task_head).__name__} are not. Received: loss={loss}."
            )
        self._takes_class_numbers = is_auto or is_sparse
        if metrics == "auto":
            metrics = self.task_head.default_metrics() if self._takes_class_numbers else []
        super().compile(
            optimizer=finetuning_optimizer() if optimizer == "auto" else optimizer,
            loss=self.task_head.default_loss() if is_auto else loss,
            metrics=metrics,
            **kwargs,
        )

    def texts_as_tensors(self, x: Any) -> Any:
        """Texts as users give them, in a form that `tf.data` can slice into examples."""
        return x

    def preprocess_samples(self, x: Any, y: Any = None, sample_weight: Any = None) -> Any:
        """As `keras_hub.models.Task.preprocess_samples`, with labels encoded by the head."""
        self.check_tokenizer()
        if self.preprocessor is None:
            self.check_inputs(x)
        if y is not None and self._takes_class_numbers:
            y = self.task_head.encode_labels(y)
        elif y is not None:
            y = self.task_head.encode_names(y)
        x = self.texts_as_tensors(x)
        if isinstance(self.preprocessor, FieldsPreprocessor):
            # Grain's batches must all be of one length.
            to_bucket = not in_grain_data_pipeline()
            batch = self.preprocessor(x, y, sample_weight, to_bucket=to_bucket)
            # Buckets keep down how often XLA compiles. A graph takes any length.
            if to_bucket and keras.backend.backend() == "tensorflow" and not self.jit_compile:
                inputs, *others = keras.utils.unpack_x_y_sample_weight(batch)
                batch = keras.utils.pack_x_y_sample_weight(self.preprocessor.trim(inputs), *others)
            return batch
        return super().preprocess_samples(x, y, sample_weight)

    def forward_loss(
        self, x: Any, y: Any, sample_weight: Any, training: bool
    ) -> tuple[Any, Tensor]:
        if self.auxiliary is None:
            return super().forward_loss(x, y, sample_weight, training)
        with self.auxiliary.weighted(sample_weight):
            return super().forward_loss(x, y, sample_weight, training)

    def fit(
        self,
        x: Any = None,
        y: Any = None,
        batch_size: int | None = None,
        sample_weight: Any = None,
        validation_data: Any = None,
        validation_split: float | None = None,
        shuffle: bool = True,
        class_weight: Mapping[Any, float] | None = None,
        **kwargs: Any,
    ) -> keras.callbacks.History:
        """Trains on strings, a `tf.data.Dataset` or a generator of batches, as `keras.Model.fit`.

        Strings and arrays are reshuffled each epoch (KerasHub would leave them in order); a dataset
        keeps its order. A learning-rate schedule without `total_steps` is stretched over all
        updates up to the end of this call. A `keras.utils.PyDataset` and a
        `tf.distribute.DistributedDataset` hold ids, and `keras.Model.fit` gets them unchanged.

        Args:
            x, y, batch_size, sample_weight, validation_data, validation_split: as in
                `keras_hub.models.Task.fit`.
            shuffle: whether to reshuffle strings and arrays.
            class_weight: the weight of each class, by its name or number; 1 where it is not given.
            **kwargs: see `keras.Model.fit`.

        Raises:
            ValueError: `validation_split` with anything but strings or arrays; a schedule without
                `total_steps` and data of unknown length; unknown classes in `class_weight`; or
                weights in float16.
        """
        dtypes = {variable.dtype for variable in self.trainable_variables}
        if "bfloat16" in dtypes:
            warnings.warn(
                "Weights in bfloat16 have 8 bits: updates of less than about 1/256 of a weight are "
                "lost, as all are at fine-tuning's rates. Build the backbone with "
                "dtype='mixed_bfloat16', whose weights are float32.",
                stacklevel=2,
            )
        if "float16" in dtypes:
            raise ValueError(
                "Weights in float16 cannot be trained: Adam's epsilon rounds to 0 there, and "
                "updates become NaN. Build the backbone with dtype='mixed_float16'. Received: "
                f"dtype={self.backbone.dtype_policy.name!r}."
            )
        if class_weight is not None:
            class_weight = self.task_head.weights_by_number(class_weight)
        if is_generator(x):
            x = from_generator(x, self.texts_as_tensors)
        if holds_batches(x):
            if validation_split:
                raise ValueError(
                    "`validation_split` needs strings or arrays. Received: "
                    f"validation_split={validation_split} with a {type(x).__name__}."
                )
        else:
            data = self._sliced(x, y, sample_weight)
            count = len(data)
            if validation_split and validation_data is None:
                count = math.floor(count * (1 - validation_split))
                validation_data = data.skip(count).batch(batch_size or 32)
                data = data.take(count)
            if shuffle:
                data = data.shuffle(count, reshuffle_each_iteration=True)
            x, y, sample_weight = data.batch(batch_size or 32), None, None
        x = without_autotuning(x)
        if validation_data is not None:
            texts, labels, weights = keras.utils.unpack_x_y_sample_weight(validation_data)
            validation_data, *_ = self._batches(texts, labels, weights, batch_size)
        kwargs |= {"class_weight": class_weight, "validation_data": validation_data}
        self._stretch_schedule(x, kwargs)
        if holds_ids(x):
            return keras.Model.fit(self, x, y, sample_weight=sample_weight, shuffle=False, **kwargs)
        if kwargs.get("steps_per_epoch") and cardinality(x) < 0:
            x = x.repeat()  # else Keras would find no data in the second epoch
        return super().fit(x, y, sample_weight=sample_weight, shuffle=False, **kwargs)

    def _sliced(self, x: Any, y: Any, sample_weight: Any) -> tf.data.Dataset:
        """Strings or arrays as a dataset of examples."""
        return tf.data.Dataset.from_tensor_slices(pack(self.texts_as_tensors(x), y, sample_weight))

    def _batches(self, x: Any, y: Any, sample_weight: Any, batch_size: int | None) -> tuple:
        """The arguments as `tf.data` batches, unless TensorFlow is not installed.

        KerasHub would use Grain where that is installed, whose batches must all be of one length.
        """
        if is_generator(x):
            x = from_generator(x, self.texts_as_tensors)
        elif not has_tensorflow():
            return self.texts_as_tensors(x), y, batch_size, sample_weight
        elif not holds_batches(x):
            x = self._sliced(x, y, sample_weight).batch(batch_size or 32)
            y = batch_size = sample_weight = None
        return without_autotuning(x), y, batch_size, sample_weight

    def evaluate(
        self,
        x: Any = None,
        y: Any = None,
        batch_size: int | None = None,
        sample_weight: Any = None,
        **kwargs: Any,
    ) -> Any:
        """As `keras.Model.evaluate`, on what `fit` takes."""
        if holds_ids(x):
            return keras.Model.evaluate(
                self, x, y, batch_size, sample_weight=sample_weight, **kwargs
            )
        return super().evaluate(*self._batches(x, y, sample_weight, batch_size), **kwargs)

    def predict(self, x: Any, batch_size: int | None = None, **kwargs: Any) -> Any:
        """As `keras.Model.predict`, on what `fit` takes.

        Returns:
            float32: `[batch, classes]`, logits unless there is an activation; or scores `[batch]`;
            or logits `[batch, choices]`.
        """
        x, _, batch_size, _ = self._batches(x, None, None, batch_size)
        outputs = super().predict(x, batch_size, **kwargs)
        return self.task_head.predictions(outputs)

    def train_on_batch(
        self,
        x: Any,
        y: Any = None,
        sample_weight: Any = None,
        class_weight: Any = None,
        **kwargs: Any,
    ) -> Any:
        """As `keras.Model.train_on_batch`, on strings.

        Raises:
            ValueError: the learning-rate schedule has no `total_steps`.
        """
        schedule = self._open_schedule()
        if schedule is not None:
            raise ValueError(
                f"The {type(schedule).__name__} spans a whole training, and `train_on_batch` does "
                "not say how many updates that has. Compile with an optimizer that has "
                "`total_steps`, as `gpt1_keras.optimizer.finetuning_optimizer(total_steps=...)`."
            )
        if class_weight is not None:
            class_weight = self.task_head.weights_by_number(class_weight)
        return super().train_on_batch(x, y, sample_weight, class_weight=class_weight, **kwargs)

    def predict_on_batch(self, x: Any, **kwargs: Any) -> Any:
        """As `keras.Model.predict_on_batch`, on strings; returns what `predict` does."""
        return self.task_head.predictions(super().predict_on_batch(x, **kwargs))

    def _open_schedule(self) -> Any:
        """The learning-rate schedule that waits for `fit` to say how long it is, or None."""
        if not self.compiled:
            return None  # as Keras will say
        schedule = schedule_of(_inner(self.optimizer))
        return schedule if getattr(schedule, "is_open", False) else None

    def _stretch_schedule(self, dataset: Any, fit_arguments: dict[str, Any]) -> None:
        """Gives an open schedule the number of updates at the end of this `fit`."""
        schedule = self._open_schedule()
        if schedule is None:
            return
        steps = fit_arguments.get("steps_per_epoch") or cardinality(dataset)
        if steps < 0:
            raise ValueError(
                "The learning-rate schedule spans the whole training, but the dataset does not "
                "say how many batches it has. Pass `steps_per_epoch` to `fit`, or compile with "
                "`gpt1_keras.optimizer.finetuning_optimizer(total_steps=...)`."
            )
        epochs = fit_arguments.get("epochs", 1) - fit_arguments.get("initial_epoch", 0)
        total = int(_inner(self.optimizer).iterations) + steps * epochs
        if total != schedule.total_steps:
            schedule.total_steps = total
            self.train_function = None  # the old total is a constant of its graph


def _inner(optimizer: Any) -> Any:
    """The optimizer itself: under float16, Keras wraps it in one that scales the loss."""
    return getattr(optimizer, "inner_optimizer", optimizer)


def _is_sparse(loss: Any) -> bool:
    """Whether a loss takes class numbers."""
    if isinstance(loss, str):
        return loss == "sparse_categorical_crossentropy"
    return isinstance(loss, keras.losses.SparseCategoricalCrossentropy)
