"""What the tasks that are fine-tuned share: the layers behind the decoder, L3 and the answers."""

import keras
import numpy as np
from keras import ops

from gpt1_keras.models.layers import initializer
from gpt1_keras.optimization.objective import (
    AuxiliaryLanguageModeling,
    SoftLabelCrossEntropy,
    sequence_weights,
)
from gpt1_keras.optimization.optimizer import finetuning_optimizer
from gpt1_keras.tasks.labels import encode_labels, encode_scores
from gpt1_keras.tasks.raw_text_task import RawTextTask


class FinetunedTask(RawTextTask):
    """Mixed into tasks that put a linear layer on the states at extract tokens (section 3.2)."""

    def add_head(
        self, backbone, preprocessor, units, dropout, dropout_shape=None, weigh=sequence_weights
    ):
        """Sets the decoder, the preprocessor and the layers behind the decoder.

        Args:
            backbone, preprocessor: of the task.
            units: int, outputs of the linear layer.
            dropout: float, on the extract states.
            dropout_shape: optional shape of its mask, with 1 where it is shared.
            weigh: as in `AuxiliaryLanguageModeling`.
        """
        self.attach(backbone, preprocessor)
        dtype = backbone.dtype_policy
        self.auxiliary = AuxiliaryLanguageModeling(
            backbone.token_embedding, weigh, dtype=dtype, name="auxiliary"
        )
        self.extract_dropout = keras.layers.Dropout(
            dropout, noise_shape=dropout_shape, dtype=dtype, name="extract_dropout"
        )
        self.head = keras.layers.Dense(
            units, kernel_initializer=initializer(), dtype=dtype, name="head"
        )
        self.dropout = dropout

    def compile(
        self, optimizer="auto", loss="auto", *, metrics="auto", lm_coefficient=0.5, **kwargs
    ):
        """Configures training; by default as in the paper (section 4.1).

        Args:
            optimizer: `"auto"` for Adam with the paper's rate, schedule, decay and clipping.
            loss: `"auto"` for cross-entropy, L2.
            metrics: `"auto"` for accuracy, where there are classes.
            lm_coefficient: float, lambda in L3 = L2 + lambda L1. `fit` reports L3 as its loss;
                validation and `evaluate` report L2.
            **kwargs: see `keras.Model.compile`.
        """
        self.auxiliary.coefficient = lm_coefficient
        super().compile(
            optimizer=finetuning_optimizer() if optimizer == "auto" else optimizer,
            loss=self._default_loss() if loss == "auto" else loss,
            metrics=self._default_metrics() if metrics == "auto" else metrics,
            **kwargs,
        )

    def predict_outputs(self, inputs):
        """The model's outputs in inference, from no more hidden states than they need.

        Args:
            inputs: dict of tensors, as the model takes them.

        Returns:
            As the model gives them.
        """
        raise NotImplementedError

    def _default_loss(self):
        return keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    def _default_metrics(self):
        return [keras.metrics.SparseCategoricalAccuracy(name="accuracy")]


class ClassOrScoreTask(FinetunedTask):
    """Mixed into tasks whose answer is one of some classes, or a score in a range."""

    def set_labels(self, num_classes, class_names, score_range, activation):
        """Sets what the answers are; returns how many outputs they take, int.

        Raises:
            ValueError: not exactly one of classes and scores, differing `num_classes` and
                `class_names`, or a range that is not of two integers.
        """
        if score_range is None:
            class_names = _class_names(num_classes, class_names)
        elif num_classes is not None or class_names is not None:
            raise ValueError(
                "An answer is a class or a score. Received both: "
                f"num_classes={num_classes}, class_names={class_names}, score_range={score_range}."
            )
        else:
            low, high = score_range = tuple(score_range)
            if not (low == int(low) and high == int(high) and low < high):
                raise ValueError(f"`score_range` must be two integers. Received: {score_range}.")
        self.class_names, self.score_range = class_names, score_range
        self.activation = keras.activations.get(activation)
        self.num_classes = None if class_names is None else len(class_names)
        return self.num_classes or int(score_range[1] - score_range[0]) + 1

    def activate(self, logits):
        """The outputs from the linear layer's, float32."""
        return self.activation(ops.cast(logits, "float32"))

    @classmethod
    def from_preset(cls, preset, load_weights=True, **kwargs):
        """Loads a preset, as `RawTextTask.from_preset`.

        `num_classes`, `class_names` or `score_range` asks for a fresh head on the decoder.
        """
        answers = ("num_classes", "class_names", "score_range")
        if any(kwargs.get(name) is not None for name in answers):
            # Else those of the preset would stay; and KerasHub takes `num_classes` for the wish.
            kwargs |= {name: kwargs.get(name) for name in answers}
        return super().from_preset(preset, load_weights, **kwargs)

    def preprocess_samples(self, x, y=None, sample_weight=None):
        if y is not None and self.score_range is None:
            y = encode_labels(y, self.class_names)
        elif y is not None:
            y = encode_scores(y, self.score_range)
        return super().preprocess_samples(x, y, sample_weight)

    def predict(self, x, **kwargs):
        """As `keras.Model.predict`: float `[batch, classes]`, or scores, float `[batch]`."""
        outputs = super().predict(x, **kwargs)
        return outputs if self.score_range is None else ops.convert_to_numpy(self.score_of(outputs))

    def score_of(self, logits):
        """The mean of the scores under the probabilities of all points, float32 `[batch]`."""
        low, high = self.score_range
        points = np.arange(low, high + 1, dtype="float32")
        return ops.sum(ops.softmax(ops.cast(logits, "float32")) * points, axis=-1)

    def _default_loss(self):
        if self.score_range is not None:
            return SoftLabelCrossEntropy(self.score_range)
        from_logits = self.activation is not keras.activations.softmax
        return keras.losses.SparseCategoricalCrossentropy(from_logits)

    def _default_metrics(self):
        return super()._default_metrics() if self.score_range is None else []

    def get_config(self):
        return {
            **super().get_config(),
            "class_names": self.class_names,
            "score_range": self.score_range,
            "activation": keras.activations.serialize(self.activation),
            "dropout": self.dropout,
        }


def last_states(hidden_states, padding_mask):
    """The hidden state of each text's last token, `[batch, hidden_dim]`."""
    last = last_places(padding_mask)
    return ops.squeeze(ops.take_along_axis(hidden_states, last[:, :, None], axis=1), axis=1)


def last_places(padding_mask):
    """Where each text's last token is, int `[batch, 1]`."""
    return ops.sum(padding_mask, axis=1, keepdims=True) - 1


def _class_names(num_classes, class_names):
    if num_classes is None and class_names is None:
        raise ValueError("A classifier needs `num_classes` or `class_names`. Received neither.")
    if class_names is None:
        return [str(number) for number in range(num_classes)]
    if num_classes is not None and num_classes != len(class_names):
        raise ValueError(
            f"Received num_classes={num_classes}, but {len(class_names)} class_names: "
            f"{class_names}."
        )
    if len(set(class_names)) != len(class_names):
        raise ValueError(f"Class names must differ. Received: {class_names}.")
    return [str(name) for name in class_names]
