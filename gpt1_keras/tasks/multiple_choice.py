"""GPT1MultipleChoice: selects the best of several choices."""

from collections.abc import Callable
from typing import Unpack

import keras
import keras_hub
from keras import ops

from gpt1_keras.models.causal_backbone import CausalBackbone
from gpt1_keras.models.gpt1_backbone import GPT1Backbone
from gpt1_keras.optimization.objective import branch_weights
from gpt1_keras.tasks.calibration import Calibration
from gpt1_keras.tasks.heads import ABSENT_CHOICE_LOGIT, ChoiceHead
from gpt1_keras.tasks.multiple_choice_preprocessor import GPT1MultipleChoicePreprocessor
from gpt1_keras.tasks.task import Task
from gpt1_keras.types import TaskArguments, Tensor
from gpt1_keras.upstream import keep_batches_apart


@keras.saving.register_keras_serializable(package="gpt1_keras")
class GPT1MultipleChoice(Task, keras_hub.models.Task):
    """Selects one of several choices; examples may differ in their number (section 3.3).

    Each choice is read after the context and the question. A linear layer with one output, on the
    hidden state at the choice's extract token, gives its logit; a softmax over the choices gives
    probabilities. Context and question are read once for all choices, as the backbone is causal.

    `fit`, `evaluate` and `predict` take raw strings; labels are the indices of the right choices,
    from 0.
    `predict` returns logits, float32 `[batch, choices]`, -1e9 for absent choices.

    Args:
        backbone: `GPT1Backbone` or `LSTMBackbone`.
        preprocessor: `GPT1MultipleChoicePreprocessor`; `None` if inputs are ids.
        dropout: rate of dropout on the hidden states at the extract tokens; 0.1 in the paper. All
            choices of an example share a mask, as in the released code.
        temperature, sure_threshold: as in `GPT1TextClassifier`.

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
    task_head: ChoiceHead

    def __init__(
        self,
        backbone: CausalBackbone,
        preprocessor: GPT1MultipleChoicePreprocessor | None = None,
        *,
        dropout: float = 0.1,
        temperature: float = 1.0,
        sure_threshold: float | None = None,
        **kwargs: Unpack[TaskArguments],
    ) -> None:
        # === Layers ===
        calibration = Calibration(temperature, sure_threshold)
        head = ChoiceHead(dropout, backbone.dtype_policy, calibration)
        self.attach(backbone, preprocessor, head, weigh=branch_weights)

        # === Functional model ===
        inputs = {
            name: keras.Input((None,), dtype="int32", name=name)
            for name in ("token_ids", "positions", "branches", "extract_indices")
        }
        x = backbone.encode_branches(**inputs)
        is_present = inputs["extract_indices"] >= 0
        x = self.auxiliary(x, inputs["token_ids"], inputs["branches"], is_present)
        indices = ops.expand_dims(ops.maximum(inputs["extract_indices"], 0), -1)
        logits = head(ops.take_along_axis(x, indices, axis=1))
        outputs = ops.where(is_present, logits, ABSENT_CHOICE_LOGIT)
        super().__init__(inputs=inputs, outputs=outputs, **kwargs)

    def make_predict_function(self, force: bool = False) -> None:
        if self.predict_function is None or force:
            super().make_predict_function(force)
            keep_batches_apart(self)  # as batches may differ in their largest number of choices

    def predict_outputs(
        self, inputs: dict[str, Tensor], states_at: Callable[..., Tensor] | None = None
    ) -> Tensor:
        names = ("token_ids", "extract_indices", "positions", "branches")
        states = (states_at or self.backbone.states_at)(*(inputs[name] for name in names))
        logits = self.task_head.outputs(states)
        return ops.where(inputs["extract_indices"] >= 0, logits, ABSENT_CHOICE_LOGIT)
