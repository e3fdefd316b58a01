"""GPT1TextClassifier: classifies a text or a pair of texts."""

from collections.abc import Callable, Sequence
from typing import Any

import keras
import keras_hub

from gpt1_keras.models.causal_backbone import CausalBackbone
from gpt1_keras.models.gpt1_backbone import GPT1Backbone
from gpt1_keras.tasks.calibration import FRESH_ARGUMENTS
from gpt1_keras.tasks.heads import last_token_index, sequence_inputs
from gpt1_keras.tasks.label_heads import LABEL_ARGUMENTS, LabelHead, make_label_head
from gpt1_keras.tasks.task import Task
from gpt1_keras.tasks.text_classifier_preprocessor import GPT1TextClassifierPreprocessor
from gpt1_keras.types import Tensor


@keras.saving.register_keras_serializable(package="gpt1_keras")
class GPT1TextClassifier(Task, keras_hub.models.TextClassifier):
    """Classifies texts, or pairs of texts as in entailment (sections 3.2 and 3.3).

    The head is a linear layer on the hidden state at the extract token. `fit`, `evaluate` and
    `predict` take raw strings, one text or a pair, by the preprocessor's `fields`. Labels are names
    of classes; or numbers, which are names too where any class has a number or a bool for its name,
    and otherwise indices from 0. `predict` returns float32 `[batch, classes]`, a column for each of
    `class_names` in their order, logits unless there is an `activation`.

    Args:
        backbone: `GPT1Backbone` or `LSTMBackbone`.
        num_classes: the number of classes, or 1 for a single output such as a sigmoid's. Give
            `class_names` or `score_range` instead to name the classes or to predict scores.
        preprocessor: `GPT1TextClassifierPreprocessor`; `None` if inputs are ids.
        class_names: the names of the classes, which presets and exports keep.
        score_range: two integers, the lowest and the highest score, for regression as in
            `GPT1TextSimilarity`.
        activation: the function on the logits. `None` returns logits, `"softmax"` probabilities,
            `"sigmoid"` the probability of a single class.
        dropout: rate of dropout on the hidden state at the extract token; 0.1 in the paper.
        temperature: divides logits before `probabilities`, and the scores of exports, are computed;
            see `Calibration`. `gpt1 calibrate` finds it.
        sure_threshold: the least probability at which an export calls its answer sure.

    Raises:
        ValueError: not exactly one of classes and scores is given, or `num_classes` and
            `class_names` differ.

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

    label_arguments = LABEL_ARGUMENTS
    fresh_arguments = FRESH_ARGUMENTS
    task_head: LabelHead

    def __init__(
        self,
        backbone: CausalBackbone,
        num_classes: int | None = None,
        preprocessor: GPT1TextClassifierPreprocessor | None = None,
        *,
        class_names: Sequence[str] | None = None,
        score_range: tuple[int, int] | None = None,
        activation: str | Callable | None = None,
        dropout: float = 0.1,
        temperature: float = 1.0,
        sure_threshold: float | None = None,
        **kwargs: Any,
    ) -> None:
        # === Layers ===
        head = make_label_head(
            *(num_classes, class_names, score_range, activation, dropout),
            *(temperature, sure_threshold, backbone.dtype_policy),
        )
        self.attach(backbone, preprocessor, head)

        # === Functional model ===
        inputs = sequence_inputs(None)
        outputs = head(self.last_states(**inputs))
        super().__init__(inputs=inputs, outputs=outputs, **kwargs)

    def predict_outputs(
        self, inputs: dict[str, Tensor], states_at: Callable[..., Tensor] | None = None
    ) -> Tensor:
        last = last_token_index(inputs["padding_mask"])
        states = (states_at or self.backbone.states_at)(inputs["token_ids"], last)
        return self.task_head.outputs(states[:, 0])
