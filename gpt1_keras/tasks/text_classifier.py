"""GPT1TextClassifier: one text or a pair of texts to a class."""

import keras
import keras_hub
from keras import ops

from gpt1_keras.backbone import GPT1Backbone
from gpt1_keras.layers import initializer
from gpt1_keras.objective import AuxiliaryLanguageModeling
from gpt1_keras.optimizer import finetuning_optimizer
from gpt1_keras.tasks.labels import encode_labels
from gpt1_keras.tasks.raw_text_task import RawTextTask
from gpt1_keras.tasks.text_classifier_preprocessor import GPT1TextClassifierPreprocessor


@keras.saving.register_keras_serializable(package="gpt1_keras")
class GPT1TextClassifier(RawTextTask, keras_hub.models.TextClassifier):
    """Classifies texts, or pairs of texts as in entailment (sections 3.2 and 3.3).

    A linear layer on the decoder's state at the extract token. `fit`, `evaluate` and `predict`
    take raw strings, one text or a pair as the preprocessor's `fields` say. Labels are class
    numbers or class names. `predict` gives float `[batch, classes]`, logits unless
    `activation` says otherwise.

    Args:
        backbone: `GPT1Backbone`.
        num_classes: int; or
        class_names: list of str, the classes, which then travel with presets and exports.
        preprocessor: `GPT1TextClassifierPreprocessor`; `None` for inputs that are ids already.
        activation: on the scores; `None` for logits, `"softmax"` for probabilities.
        dropout: float, on the extract state; 0.1 in the paper.

    Raises:
        ValueError: neither or differing `num_classes` and `class_names`.

    Example:
    ```python
    classifier = gpt1_keras.GPT1TextClassifier.from_preset(
        "path/to/preset", class_names=["negative", "positive"]
    )
    classifier.fit(["A lovely film.", "A dull one."], ["positive", "negative"], epochs=3)
    classifier.predict(["What a lovely day."])
    ```
    """

    backbone_cls = GPT1Backbone
    preprocessor_cls = GPT1TextClassifierPreprocessor

    def __init__(
        self,
        backbone,
        num_classes=None,
        class_names=None,
        preprocessor=None,
        activation=None,
        dropout=0.1,
        **kwargs,
    ):
        class_names = _class_names(num_classes, class_names)

        # === Layers ===
        self.attach(backbone, preprocessor)
        self.auxiliary = AuxiliaryLanguageModeling(
            backbone.token_embedding, dtype=backbone.dtype_policy, name="auxiliary"
        )
        self.extract_dropout = keras.layers.Dropout(
            dropout, dtype=backbone.dtype_policy, name="extract_dropout"
        )
        self.classifier = keras.layers.Dense(
            len(class_names),
            kernel_initializer=initializer(),
            dtype=backbone.dtype_policy,
            name="classifier",
        )

        # === Functional model ===
        inputs = {
            "token_ids": backbone.input["token_ids"],
            "padding_mask": keras.Input((None,), dtype="int32", name="padding_mask"),
        }
        hidden_states = backbone({"token_ids": inputs["token_ids"]})
        hidden_states = self.auxiliary(hidden_states, **inputs)
        state = self.extract_dropout(_last_state(hidden_states, inputs["padding_mask"]))
        outputs = keras.layers.Activation(activation, dtype="float32", name="scores")(
            self.classifier(state)
        )

        # === Configuration ===
        self.num_classes = len(class_names)
        self.class_names = class_names
        self.activation = keras.activations.get(activation)
        self.dropout = dropout
        super().__init__(inputs=inputs, outputs=outputs, **kwargs)

    def compile(
        self, optimizer="auto", loss="auto", *, metrics="auto", lm_coefficient=0.5, **kwargs
    ):
        """Configures training; by default as in the paper (section 4.1).

        Args:
            optimizer: `"auto"` for Adam with the paper's rate, schedule, decay and clipping.
            loss: `"auto"` for cross-entropy, L2.
            metrics: `"auto"` for accuracy.
            lm_coefficient: float, lambda in L3 = L2 + lambda L1. `fit` reports L3 as its loss;
                validation and `evaluate` report L2.
            **kwargs: see `keras.Model.compile`.
        """
        self.auxiliary.coefficient = lm_coefficient
        super().compile(
            optimizer=finetuning_optimizer() if optimizer == "auto" else optimizer,
            loss=loss,
            metrics=[keras.metrics.SparseCategoricalAccuracy(name="accuracy")]
            if metrics == "auto"
            else metrics,
            **kwargs,
        )

    @classmethod
    def from_preset(cls, preset, load_weights=True, **kwargs):
        """Loads a preset, as `keras_hub.models.Task.from_preset`.

        `num_classes` or `class_names` asks for a fresh classifier on top of the decoder.
        """
        if kwargs.get("class_names") is not None:
            kwargs.setdefault("num_classes", len(kwargs["class_names"]))
        elif "num_classes" in kwargs:
            kwargs["class_names"] = None  # else the preset's would stay
        return super().from_preset(preset, load_weights, **kwargs)

    def preprocess_samples(self, x, y=None, sample_weight=None):
        if y is not None:
            y = encode_labels(y, self.class_names)
        return super().preprocess_samples(x, y, sample_weight)

    def get_config(self):
        return {
            **super().get_config(),
            "class_names": self.class_names,
            "activation": keras.activations.serialize(self.activation),
            "dropout": self.dropout,
        }


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


def _last_state(hidden_states, padding_mask):
    """The hidden state of each text's last token, `[batch, hidden_dim]`."""
    last = ops.sum(padding_mask, axis=1, keepdims=True) - 1
    return ops.squeeze(ops.take_along_axis(hidden_states, last[:, :, None], axis=1), axis=1)
