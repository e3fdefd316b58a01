"""What all tasks share: a decoder and a preprocessor that fit each other, and `fit` on strings."""

import math
from typing import Any

import keras

from gpt1_keras.files import reading_weights
from gpt1_keras.lazy import tensorflow as tf
from gpt1_keras.models.causal_backbone import CausalBackbone
from gpt1_keras.optimization.keras_internals import (
    TOKENIZER_CONFIG_FILE,
    check_file_exists,
    get_preset_loader,
    load_json,
    schedule_of,
)
from gpt1_keras.optimization.training_step import TrainingStep


class RawTextTask(TrainingStep):
    """Mixed into the `keras_hub.models.Task`s of this package."""

    def attach(self, backbone, preprocessor):
        """Sets the decoder and the preprocessor, whose texts are cut to the decoder's context."""
        self.backbone = backbone
        self.preprocessor = preprocessor
        if preprocessor is not None:
            preprocessor.sequence_length = min(
                preprocessor.sequence_length, backbone.max_sequence_length
            )

    @classmethod
    def from_preset(cls, preset, load_weights=True, **kwargs):
        """Loads a preset, as `keras_hub.models.Task.from_preset`.

        Args:
            preset: str, the name of a preset that ships (`cls.presets` has them) or a directory
                that `save_to_preset` wrote.
            load_weights: bool; else weights are drawn afresh.
            **kwargs: what to change, such as `dtype`.

        Raises:
            ValueError: there is no such preset, it is another model's, its weights are damaged, or
                its tokenizer does not fit them; or `kwargs` has a preprocessor of another one.
        """
        loader = get_preset_loader(preset)
        decoder_cls = loader.check_backbone_class()
        if not issubclass(decoder_cls, CausalBackbone):
            raise ValueError(
                f"{preset} holds a {decoder_cls.__name__}; {cls.__name__} needs a decoder of "
                "gpt1_keras."
            )
        # KerasHub's own `from_preset` wants another task for each kind of backbone.
        task = loader.load_task(cls, load_weights, "num_classes" not in kwargs, **kwargs)
        task.check_tokenizer()
        if load_weights:
            task._check_trained_with(preset)
        return task

    def load_task_weights(self, filepath):
        with reading_weights(filepath):
            super().load_task_weights(filepath)

    def check_tokenizer(self):
        """Raises ValueError if the tokenizer has tokens that the decoder does not embed."""
        if self.preprocessor is None:
            return
        tokens = self.preprocessor.tokenizer.vocabulary_size()
        if tokens > self.backbone.vocabulary_size:
            raise ValueError(
                f"The tokenizer does not fit the model: it has {tokens} tokens, and the model "
                f"embeds {self.backbone.vocabulary_size}."
            )

    def _check_trained_with(self, preset):
        """Raises ValueError if the preset's weights were trained with another tokenizer."""
        if self.preprocessor is None or not check_file_exists(preset, TOKENIZER_CONFIG_FILE):
            return
        trained_with = load_json(preset, TOKENIZER_CONFIG_FILE)["config"]
        tokenizer = self.preprocessor.tokenizer
        if trained_with.get("fingerprint") not in (None, tokenizer.fingerprint):
            raise ValueError(
                f"{preset} was trained with another tokenizer, and ids of this one mean nothing to "
                f"its weights. Received: normalization={tokenizer.normalization!r}, fingerprint "
                f"{tokenizer.fingerprint}; expected normalization="
                f"{trained_with['normalization']!r}, fingerprint {trained_with['fingerprint']}."
            )

    def preprocess_samples(self, x, y=None, sample_weight=None):
        self.check_tokenizer()
        return super().preprocess_samples(x, y, sample_weight)

    def fit(
        self,
        x=None,
        y=None,
        batch_size=None,
        sample_weight=None,
        validation_split=None,
        shuffle=True,
        **kwargs,
    ):
        """Trains on strings or on a `tf.data.Dataset`, as `keras.Model.fit`.

        Strings and arrays are reshuffled each epoch (KerasHub would leave them in order); a
        dataset comes as its maker ordered it. A learning-rate schedule without `total_steps` is
        stretched over all updates up to the end of this call. A `keras.utils.PyDataset` and a
        `tf.distribute.DistributedDataset` hold ids and go to `keras.Model.fit` as they are.
        """
        if _holds_ids(x):
            self._span_schedule(x, kwargs)
            return keras.Model.fit(self, x, shuffle=False, **kwargs)
        if not isinstance(x, tf.data.Dataset):
            data = tf.data.Dataset.from_tensor_slices(_pack(x, y, sample_weight))
            examples = len(data)
            if validation_split and kwargs.get("validation_data") is None:
                examples = math.floor(examples * (1 - validation_split))
                kwargs["validation_data"] = data.skip(examples).batch(batch_size or 32)
                data = data.take(examples)
            if shuffle:
                data = data.shuffle(examples, reshuffle_each_iteration=True)
            x, y, sample_weight, batch_size = data.batch(batch_size or 32), None, None, None
        elif validation_split:
            raise ValueError(
                "`validation_split` needs strings or arrays. Received: "
                f"validation_split={validation_split} with a tf.data.Dataset."
            )
        self._span_schedule(x, kwargs)
        return super().fit(x, y, batch_size, sample_weight, shuffle=False, **kwargs)

    def evaluate(self, x=None, *args, **kwargs):
        """As `keras.Model.evaluate`, on what `fit` takes."""
        if _holds_ids(x):
            return keras.Model.evaluate(self, x, *args, **kwargs)
        return super().evaluate(x, *args, **kwargs)

    def _span_schedule(self, dataset, fit_arguments):
        # Under float16, Keras wraps the optimizer in one that scales the loss.
        optimizer: Any = getattr(self.optimizer, "inner_optimizer", self.optimizer)
        schedule = schedule_of(optimizer)
        if not getattr(schedule, "is_open", False):
            return
        steps = fit_arguments.get("steps_per_epoch") or _cardinality(dataset)
        if steps < 0:
            raise ValueError(
                "The learning-rate schedule spans the whole training, but the dataset does not "
                "say how many batches it has. Pass `steps_per_epoch` to `fit`, or compile with "
                "`gpt1_keras.optimizer.finetuning_optimizer(total_steps=...)`."
            )
        epochs = fit_arguments.get("epochs", 1) - fit_arguments.get("initial_epoch", 0)
        total = int(optimizer.iterations) + steps * epochs
        if total != schedule.total_steps:
            schedule.total_steps = total
            self.train_function = None  # the old total is a constant of its graph


def _pack(x, y, sample_weight):
    if y is None:
        return (x,)
    return (x, y) if sample_weight is None else (x, y, sample_weight)


def _holds_ids(x):
    """Whether the data is of a kind that is not preprocessed."""
    if keras.backend.backend() == "tensorflow" and isinstance(x, tf.distribute.DistributedDataset):
        return True
    return isinstance(x, keras.utils.PyDataset)


def _cardinality(dataset):
    """The number of batches; negative if it is unknown or endless."""
    try:
        return len(dataset)
    except TypeError:
        return -1
