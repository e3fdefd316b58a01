"""GPT1TextSimilarity: classifies or scores two texts without an order."""

from collections.abc import Callable, Sequence
from typing import Unpack

import keras
import keras_hub
from keras import ops

from gpt1_keras.models.causal_backbone import CausalBackbone
from gpt1_keras.models.gpt1_backbone import GPT1Backbone
from gpt1_keras.tasks.calibration import FRESH_ARGUMENTS
from gpt1_keras.tasks.heads import last_token_index, sequence_inputs
from gpt1_keras.tasks.label_heads import LABEL_ARGUMENTS, LabelHead, make_label_head
from gpt1_keras.tasks.task import Task
from gpt1_keras.tasks.text_similarity_preprocessor import GPT1TextSimilarityPreprocessor
from gpt1_keras.types import TaskArguments, Tensor


@keras.saving.register_keras_serializable(package="gpt1_keras")
class GPT1TextSimilarity(Task, keras_hub.models.Task):
    """Classifies or scores pairs of texts that have no order (section 3.3).

    Each pair is read in both orders, and the linear layer is on the sum of the hidden states at the
    two extract tokens. `fit`, `evaluate` and `predict` take pairs of raw strings.

    With `score_range`, labels are scores, such as STS-B's from 0 to 5. The head has a logit for
    each integer of the range, `SoftLabelCrossEntropy` is the loss, and `predict` returns the
    expected score, float32 `[batch]`. This is a reconstruction, as the paper does not say how it
    predicts scores.

    Args:
        preprocessor: `GPT1TextSimilarityPreprocessor`; `None` if inputs are ids.
        score_range: two integers, the lowest and the highest score.
        dropout: rate of dropout on the sum of the hidden states at the extract tokens; 0.1 in the
            paper.

    All other arguments, and the errors, are as in `GPT1TextClassifier`.

    Example: ```python similarity = gpt1_keras.GPT1TextSimilarity.from_preset("path/to/preset",
    score_range=(0, 5)) similarity.fit((["A man walks."], ["A man is walking."]), [4.8], epochs=3)
    similarity.predict((["A dog runs."], ["A cat sleeps."])) ```
    """

    backbone_cls = GPT1Backbone
    preprocessor_cls = GPT1TextSimilarityPreprocessor

    label_arguments = LABEL_ARGUMENTS
    fresh_arguments = FRESH_ARGUMENTS
    task_head: LabelHead

    def __init__(
        self,
        backbone: CausalBackbone,
        num_classes: int | None = None,
        preprocessor: GPT1TextSimilarityPreprocessor | None = None,
        *,
        class_names: Sequence[str] | None = None,
        score_range: tuple[int, int] | None = None,
        activation: str | Callable | None = None,
        dropout: float = 0.1,
        temperature: float = 1.0,
        sure_threshold: float | None = None,
        **kwargs: Unpack[TaskArguments],
    ) -> None:
        # === Layers ===
        head = make_label_head(
            *(num_classes, class_names, score_range, activation, dropout),
            *(temperature, sure_threshold, backbone.dtype_policy),
        )
        self.attach(backbone, preprocessor, head)

        # === Functional model ===
        inputs = sequence_inputs(2, None)
        outputs = head(_sum_of_orders(self.last_states(*map(_merge_orders, inputs.values()))))
        super().__init__(inputs=inputs, outputs=outputs, **kwargs)

    def predict_outputs(
        self, inputs: dict[str, Tensor], states_at: Callable[..., Tensor] | None = None
    ) -> Tensor:
        token_ids, padding_mask = (
            _merge_orders(inputs[name]) for name in ("token_ids", "padding_mask")
        )
        states = (states_at or self.backbone.states_at)(token_ids, last_token_index(padding_mask))
        return self.task_head.outputs(_sum_of_orders(states[:, 0]))


def _merge_orders(x: Tensor) -> Tensor:
    """Merges both orders into one batch: `[batch, 2, length]` to `[2 batch, length]`."""
    return ops.concatenate([x[:, 0], x[:, 1]], axis=0)


def _sum_of_orders(states: Tensor) -> Tensor:
    """Sums over both orders: float `[2 batch, hidden_dim]` to `[batch, hidden_dim]`."""
    first, second = ops.split(states, 2, axis=0)
    return first + second
