"""GPT1TextClassifier: one text or a pair of texts to a class."""

import keras
import keras_hub

from gpt1_keras.models.gpt1_backbone import GPT1Backbone
from gpt1_keras.tasks.finetuned_task import ClassOrScoreTask, last_places, last_states
from gpt1_keras.tasks.text_classifier_preprocessor import GPT1TextClassifierPreprocessor


@keras.saving.register_keras_serializable(package="gpt1_keras")
class GPT1TextClassifier(ClassOrScoreTask, keras_hub.models.TextClassifier):
    """Classifies texts, or pairs of texts as in entailment (sections 3.2 and 3.3).

    A linear layer on the decoder's state at the extract token. `fit`, `evaluate` and `predict`
    take raw strings, one text or a pair as the preprocessor's `fields` say. Labels are class
    numbers or class names. `predict` gives float `[batch, classes]`, logits unless
    `activation` says otherwise.

    Args:
        backbone: `GPT1Backbone`.
        num_classes: int; or
        class_names: list of str, the classes, which then travel with presets and exports; or
        score_range: two integers, the least and the greatest score, for regression as in
            `GPT1TextSimilarity`.
        preprocessor: `GPT1TextClassifierPreprocessor`; `None` for inputs that are ids already.
        activation: on the scores; `None` for logits, `"softmax"` for probabilities.
        dropout: float, on the extract state; 0.1 in the paper.

    Raises:
        ValueError: not exactly one of classes and scores, or differing `num_classes` and
            `class_names`.

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
        score_range=None,
        preprocessor=None,
        activation=None,
        dropout=0.1,
        **kwargs,
    ):
        # === Layers ===
        units = self.set_labels(num_classes, class_names, score_range, activation)
        self.add_head(backbone, preprocessor, units, dropout)

        # === Functional model ===
        token_ids = backbone.input["token_ids"]
        padding_mask = keras.Input((None,), dtype="int32", name="padding_mask")
        hidden_states = backbone({"token_ids": token_ids})
        hidden_states = self.auxiliary(hidden_states, token_ids, padding_mask)
        state = self.extract_dropout(last_states(hidden_states, padding_mask))
        outputs = keras.layers.Activation(activation, dtype="float32", name="scores")(
            self.head(state)
        )
        inputs = {"token_ids": token_ids, "padding_mask": padding_mask}
        super().__init__(inputs=inputs, outputs=outputs, **kwargs)

    def predict_outputs(self, inputs):
        last = last_places(inputs["padding_mask"])
        states = self.backbone.states_at(inputs["token_ids"], last)
        return self.activate(self.head(states[:, 0]))
