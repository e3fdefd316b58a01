"""GPT1MultipleChoice: the best of several answers."""

import keras
import keras_hub
from keras import ops

from gpt1_keras.models.gpt1_backbone import GPT1Backbone
from gpt1_keras.optimization.objective import branch_weights
from gpt1_keras.tasks.finetuned_task import FinetunedTask
from gpt1_keras.tasks.multiple_choice_preprocessor import GPT1MultipleChoicePreprocessor

_ABSENT = -1e9  # the score of an answer that is not there


@keras.saving.register_keras_serializable(package="gpt1_keras")
class GPT1MultipleChoice(FinetunedTask, keras_hub.models.Task):
    """Chooses among answers, of which each example may have another number (section 3.3).

    Each answer is read behind the context and the question, a linear layer of one output scores its
    extract token, and a softmax over the answers gives their probabilities. As the decoder is
    causal, context and question are the same to every answer, and are read only once.

    `fit`, `evaluate` and `predict` take raw strings; labels are the numbers of the right answers,
    from 0. `predict` gives float `[batch, choices]`, logits, -1e9 for answers that are not there.

    Args:
        backbone: `GPT1Backbone`.
        preprocessor: `GPT1MultipleChoicePreprocessor`; `None` for inputs that are ids already.
        dropout: float, on the extract states; 0.1 in the paper. All answers of an example share a
            mask, as in the released code.

    Example:
    ```python
    chooser = gpt1_keras.GPT1MultipleChoice.from_preset("path/to/preset")
    texts = {
        "context": ["The sun shone all day."],
        "question": ["What was the weather like?"],
        "choices": [["It rained.", "It was fine.", "It snowed."]],
    }
    chooser.fit(texts, [1], epochs=3)
    chooser.predict(texts)
    ```
    """

    backbone_cls = GPT1Backbone
    preprocessor_cls = GPT1MultipleChoicePreprocessor

    def __init__(self, backbone, preprocessor=None, dropout=0.1, **kwargs):
        # === Layers ===
        self.add_head(
            backbone, preprocessor, 1, dropout, dropout_shape=(None, 1, None), weigh=branch_weights
        )

        # === Functional model ===
        inputs = {
            name: keras.Input((None,), dtype="int32", name=name)
            for name in ("token_ids", "positions", "branches", "extract_indices")
        }
        x = backbone.encode_branches(**inputs)
        is_there = inputs["extract_indices"] >= 0
        x = self.auxiliary(x, inputs["token_ids"], inputs["branches"], is_there)
        places = ops.expand_dims(ops.maximum(inputs["extract_indices"], 0), -1)
        states = self.extract_dropout(ops.take_along_axis(x, places, axis=1))
        super().__init__(inputs=inputs, outputs=self._score(states, is_there), **kwargs)

    def _score(self, states, is_there):
        scores = ops.cast(ops.squeeze(self.head(states), axis=-1), "float32")
        return ops.where(is_there, scores, _ABSENT)

    def predict_outputs(self, inputs):
        names = ("token_ids", "extract_indices", "positions", "branches")
        states = self.backbone.states_at(*(inputs[name] for name in names))
        return self._score(states, inputs["extract_indices"] >= 0)

    def fit(self, x=None, *args, **kwargs):
        """As `RawTextTask.fit`."""
        return super().fit(self._as_tensors(x), *args, **kwargs)

    def evaluate(self, x=None, *args, **kwargs):
        """As `RawTextTask.evaluate`."""
        return super().evaluate(self._as_tensors(x), *args, **kwargs)

    def predict(self, x, *args, **kwargs):
        """As `keras.Model.predict`, on what `fit` takes."""
        scores = super().predict(self._as_tensors(x), *args, **kwargs)
        # Keras makes them ragged where batches differ in their most answers.
        return scores.to_tensor(_ABSENT).numpy() if hasattr(scores, "to_tensor") else scores

    def preprocess_samples(self, x, y=None, sample_weight=None):
        return super().preprocess_samples(self._as_tensors(x), y, sample_weight)

    def _as_tensors(self, x):
        """Texts as tensors, as nested lists of uneven lengths are no array."""
        is_texts = self.preprocessor is not None and isinstance(x, (dict, tuple))
        return self.preprocessor.as_tensors(x) if is_texts else x

    def get_config(self):
        return {**super().get_config(), "dropout": self.dropout}
