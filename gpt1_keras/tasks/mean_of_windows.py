"""Long texts as windows: each is read as a text of its own, and the answer is their mean.

A text's windows are `[batch, windows, length]`; those after its last one are absent, all padding.
The decoder reads them as rows, `[windows * batch, length]`: the first windows of all texts, and
then the second ones.
"""

from typing import Any

import keras
from keras import ops

from gpt1_keras.optimization.objective import sequence_weights
from gpt1_keras.types import Tensor

_ABSENT = -1e9  # the logarithm of no probability


@keras.saving.register_keras_serializable(package="gpt1_keras")
class WindowsAsRows(keras.layers.Layer):
    """Maps windows, `[batch, windows, length]`, to rows, `[windows * batch, length]`."""

    def call(self, x: Tensor) -> Tensor:
        return ops.reshape(ops.transpose(x, (1, 0, 2)), (-1, ops.shape(x)[2]))

    def compute_output_spec(self, x: Tensor) -> keras.KerasTensor:
        return keras.KerasTensor((None, x.shape[2]), x.dtype)


@keras.saving.register_keras_serializable(package="gpt1_keras")
class MeanOfWindows(keras.layers.Layer):
    """Averages the outputs of each text's windows.

    Args:
        are_logits: whether the outputs are logits of two classes or more. Then their probabilities
            are averaged, and the result is the logarithm of the mean, so that its softmax is the
            mean, too.

    Call arguments:
        outputs: float32 `[windows * batch, units]`, those of the windows as rows.
        padding_mask: int `[batch, windows, length]`.

    Returns:
        float32 `[batch, units]`.
    """

    def __init__(self, are_logits: bool, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.are_logits = are_logits

    def call(self, outputs: Tensor, padding_mask: Tensor) -> Tensor:
        is_present = ops.transpose(_is_present(padding_mask))[:, :, None]
        windows, batch, _ = ops.shape(is_present)
        outputs = ops.reshape(outputs, (windows, batch, outputs.shape[-1]))
        count = _count(padding_mask)[:, None]
        if not self.are_logits:
            return ops.sum(ops.where(is_present, outputs, 0.0), axis=0) / count
        logarithms = ops.where(is_present, ops.log_softmax(outputs, axis=-1), _ABSENT)
        return ops.logsumexp(logarithms, axis=0) - ops.log(count)

    def compute_output_spec(self, outputs: Tensor, padding_mask: Tensor) -> keras.KerasTensor:
        return keras.KerasTensor((padding_mask.shape[0], outputs.shape[-1]), outputs.dtype)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "are_logits": self.are_logits}


def window_weights(padding_mask: Tensor, of_texts: Tensor) -> Tensor:
    """Returns each next token's weight in L1, float32 `[windows * batch, length - 1]`.

    L1 is the mean over texts, within each over its windows, and within these over next tokens.
    `padding_mask` is that of the rows, and `of_texts` the same, `[batch, windows, length]`.
    """
    weights = sequence_weights(padding_mask)  # which counts absent windows, too
    batch, windows, length = ops.shape(of_texts)
    share = ops.cast(windows, "float32") / _count(of_texts)
    weights = ops.reshape(weights, (windows, batch, length - 1)) * share[:, None]
    return ops.reshape(weights, (-1, length - 1))


def _is_present(padding_mask: Tensor) -> Tensor:
    """Returns whether there is a window, bool `[batch, windows]`."""
    return ops.any(ops.not_equal(padding_mask, 0), axis=-1)


def _count(padding_mask: Tensor) -> Tensor:
    """Returns the number of each text's windows, float32 `[batch]`, at least 1."""
    # An example that fills up a batch on a replica has none.
    return ops.maximum(ops.sum(ops.cast(_is_present(padding_mask), "float32"), axis=1), 1.0)
