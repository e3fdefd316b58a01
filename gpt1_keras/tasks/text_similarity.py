"""GPT1TextSimilarity: how alike two texts are, whichever comes first."""

import keras
import keras_hub
from keras import ops

from gpt1_keras.models.gpt1_backbone import GPT1Backbone
from gpt1_keras.tasks.finetuned_task import ClassOrScoreTask, last_places, last_states
from gpt1_keras.tasks.text_similarity_preprocessor import GPT1TextSimilarityPreprocessor


@keras.saving.register_keras_serializable(package="gpt1_keras")
class GPT1TextSimilarity(ClassOrScoreTask, keras_hub.models.Task):
    """Classifies or scores pairs of texts that have no order (section 3.3).

    Both orders of a pair are read, and the linear layer is on the sum of their states at the
    extract tokens. `fit`, `evaluate` and `predict` take pairs of raw strings.

    With `score_range`, answers are scores such as STS-B's from 0 to 5: the layer gives logits of
    its integers, which are trained by `SoftLabelCrossEntropy`, and `predict` gives the expected
    score, float `[batch]`. This is a reconstruction; the paper does not say.

    Args:
        backbone: `GPT1Backbone`.
        num_classes: int; or
        class_names: list of str, the classes, which then travel with presets and exports; or
        score_range: two integers, the least and the greatest score.
        preprocessor: `GPT1TextSimilarityPreprocessor`; `None` for inputs that are ids already.
        activation: on the outputs; `None` for logits, `"softmax"` for probabilities.
        dropout: float, on the sum of the extract states; 0.1 in the paper.

    Raises:
        ValueError: not exactly one of classes and scores, or differing `num_classes` and
            `class_names`.

    Example:
    ```python
    similarity = gpt1_keras.GPT1TextSimilarity.from_preset("path/to/preset", score_range=(0, 5))
    similarity.fit((["A man walks."], ["A man is walking."]), [4.8], epochs=3)
    similarity.predict((["A dog runs."], ["A cat sleeps."]))
    ```
    """

    backbone_cls = GPT1Backbone
    preprocessor_cls = GPT1TextSimilarityPreprocessor

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
        inputs = {
            name: keras.Input((2, None), dtype="int32", name=name)
            for name in ("token_ids", "padding_mask")
        }
        token_ids, padding_mask = map(_one_batch, inputs.values())
        hidden_states = backbone({"token_ids": token_ids})
        hidden_states = self.auxiliary(hidden_states, token_ids, padding_mask)
        first, second = ops.split(last_states(hidden_states, padding_mask), 2, axis=0)
        outputs = keras.layers.Activation(activation, dtype="float32", name="scores")(
            self.head(self.extract_dropout(first + second))
        )
        super().__init__(inputs=inputs, outputs=outputs, **kwargs)

    def predict_outputs(self, inputs):
        token_ids, padding_mask = (
            _one_batch(inputs[name]) for name in ("token_ids", "padding_mask")
        )
        last = last_places(padding_mask)
        states = self.backbone.states_at(token_ids, last)[:, 0]
        first, second = ops.split(states, 2, axis=0)
        return self.activate(self.head(first + second))


def _one_batch(x):
    """Both orders as texts of one batch: `[batch, 2, length]` to `[2 batch, length]`."""
    return ops.concatenate([x[:, 0], x[:, 1]], axis=0)
