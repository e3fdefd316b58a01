"""How a language model uses its context: its loss by position, and on passages that it has read."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from gpt1_keras import GPT1CausalLM
from training.evaluation.likelihood import TokenLosses

_FIRST_BIN = 8  # positions; each further bin ends at twice the end of the one before
_TOKENS_AT_ONCE = 2048  # tokens whose logits are in memory together


class ContextUse:
    """Two measurements of a language model, always on the same windows of a text.

    The loss of a model that uses its context falls as it reads more tokens. Where a passage follows
    itself, the loss is far lower the second time, because the model can copy it (Olsson et al.
    2022). A bag of words, or a bigram model, has a flat loss and no such gap.

    Args:
        lm: compiled, with any backbone; it may be trained between measurements.
        windows: int32 `[windows, length + 1]`, from `spread_windows`: at least one; `length` is at
            least 3.
    """

    def __init__(self, lm: GPT1CausalLM, windows: np.ndarray) -> None:
        if not len(windows) or windows.shape[1] < 4:
            raise ValueError(
                "Expected windows of at least 4 tokens. Received: an array of shape "
                f"{windows.shape}."
            )
        self._losses = TokenLosses(lm.backbone, lm.jit_compile)
        self._windows = windows
        # The windows' shape, for one graph: where the length is even, a third copy begins.
        self.passage_length = windows.shape[1] // 2
        self._repeated = np.tile(windows[:, : self.passage_length], 3)[:, : windows.shape[1]]

    def measure(self) -> dict[str, Any]:
        """Measures the model as it is.

        Returns:
            dict for JSON, of losses in nats, each with its standard error over windows (None for a
            single window):
            `windows`, how many;
            `loss_by_position`: list of dicts of `from`, `to`, `loss` and `standard_error`: the mean
            over positions `[from, to)`, where position 0 has read one token;
            `repeated_passage`: dict of `tokens`, the passage's length; `first` and `second`, the
            mean loss of its tokens after the first token, the first and the second time;
            `gap`, the difference, and its `standard_error`.
        """
        losses = self._losses_of(self._windows)
        length = losses.shape[1]
        ends = [_FIRST_BIN]
        while ends[-1] < length:
            ends.append(2 * ends[-1])
        bins = []
        for start, end in zip([0, *ends], ends):
            mean, error = _mean(losses[:, start:end].mean(axis=1))
            bins.append(
                {"from": start, "to": min(end, length), "loss": mean, "standard_error": error}
            )
        tokens = self.passage_length
        losses = self._losses_of(self._repeated)
        first, second = losses[:, : tokens - 1], losses[:, tokens : 2 * tokens - 1]
        gap, error = _mean((first - second).mean(axis=1))
        return {
            "windows": len(self._windows),
            "loss_by_position": bins,
            "repeated_passage": {
                "tokens": tokens,
                "first": float(first.mean()),
                "second": float(second.mean()),
                "gap": gap,
                "standard_error": error,
            },
        }

    def _losses_of(self, tokens: np.ndarray) -> np.ndarray:
        batch_size = max(1, _TOKENS_AT_ONCE // tokens.shape[1])
        losses = self._losses.predict(tokens, batch_size=batch_size, verbose=0)
        return np.asarray(losses, np.float64)


def spread_windows(shards: Sequence[np.ndarray], length: int, count: int) -> np.ndarray:
    """Returns windows that are spread evenly over a text, and do not overlap.

    Args:
        shards: integer arrays `[tokens]`; no window crosses them.
        length: tokens that are predicted in a window.
        count: how many windows; fewer where the text is too short.

    Returns:
        int32 `[windows, length + 1]`.
    """
    starts = [
        (shard, start) for shard in shards for start in range(0, len(shard) - length, length + 1)
    ]
    chosen = np.linspace(0, len(starts), min(count, len(starts)), endpoint=False).astype(int)
    rows = [starts[index][0][starts[index][1] :][: length + 1] for index in chosen]
    return np.array(rows, np.int32).reshape(-1, length + 1)


def _mean(values: np.ndarray) -> tuple[float, float | None]:
    """Returns the mean, and its standard error if there are several values."""
    error = float(values.std(ddof=1) / len(values) ** 0.5) if len(values) > 1 else None
    return float(values.mean()), error
