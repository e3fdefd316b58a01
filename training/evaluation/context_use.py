"""How a language model uses its context: its loss by position, and on passages that it has read."""

import os
import pathlib
from collections.abc import Sequence
from typing import Any

import matplotlib.ticker
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gpt1_keras import GPT1CausalLM
from gpt1_keras.files import check_writable, write_json
from gpt1_keras.presets import load_task
from training.corpus.corpus_format import Corpus
from training.corpus.shards import encode_documents
from training.evaluation.likelihood import TokenLosses, load_for_corpus
from training.evaluation.plots import BLUE, ORANGE, new_figure, save, shown

_FIRST_BIN = 8  # positions; each further bin ends at twice the end of the one before
_TOKENS_AT_ONCE = 2048  # tokens whose logits are in memory together
_MOST_CURVES = 5  # of a run, from light to dark


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


def measure_context_use(
    preset: str | os.PathLike[str],
    output: str | os.PathLike[str],
    corpus: str | os.PathLike[str] | None = None,
    text: str | os.PathLike[str] | None = None,
    split: str = "validation",
    windows: int = 512,
) -> dict[str, Any]:
    """Measures a preset, and writes the result and its plot.

    Args:
        corpus: path of a corpus that was made with the preset's tokenizer.

    Returns:
        The content of `context_use.json`: what `ContextUse.measure` returns, with the preset and
        what it was measured on.
    """
    folder = pathlib.Path(output)
    check_writable(folder)
    if corpus is not None:
        data = Corpus(corpus)
        shards, source = data.split(split).shards, f"{split} of {corpus}"
        lm = load_for_corpus(preset, data)
    else:
        assert text is not None  # where there is no corpus
        with open(text, "rb") as lines:
            lm, source = load_task(preset, GPT1CausalLM), str(text)
            shards = (encode_documents([lines], lm.preprocessor.tokenizer)[0],)
        lm.preprocessor = None
        lm.compile()
    length = lm.backbone.max_sequence_length
    found = spread_windows(shards, length, windows)
    if not len(found):
        longest = max((len(shard) for shard in shards), default=0)
        raise ValueError(
            f"A window of the context of {preset} takes {length + 1} tokens, and the longest text "
            f"in {source} has {longest}."
        )
    # A model that was not trained with `<start>` does not predict that another text begins.
    known = lm.backbone.vocabulary_size - lm.backbone.num_untrained_tokens
    found = found[(found[:, 1:] < known).all(axis=1)]
    if not len(found):
        raise ValueError(
            f"In each window of {source}, a text begins with `<start>`, which {preset} was not "
            f"trained with. Expected texts of {length + 1} tokens or more."
        )
    result = {"preset": str(preset), "source": source, **ContextUse(lm, found).measure()}
    write_json(folder / "context_use.json", result)
    save(plot_measurement(result, str(preset)), folder / "context_use.svg")
    return result


def plot_measurement(use: dict[str, Any], title: str) -> Figure:
    """Plots what `ContextUse.measure` returns."""
    figure, (left, right) = new_figure(width=10, columns=2)
    _plot_positions(left, use, color=BLUE, marker="o")
    passage = use["repeated_passage"]
    bars = right.bar(
        ["first", "second"], [passage["first"], passage["second"]], color=[BLUE, ORANGE]
    )
    right.bar_label(bars, fmt="%.2f")
    right.set(
        ylabel="loss of a token, nats",
        title=f"a passage of {passage['tokens']} tokens, twice (gap: {passage['gap']:.2f})",
    )
    figure.suptitle(shown(title))
    return figure


def plot_series(entries: Sequence[dict[str, Any]], title: str) -> Figure:
    """Plots the measurements of a pre-training.

    Args:
        entries: of its history, at least one, each with `step` and `context_use`.
    """
    figure, (left, right) = new_figure(width=10, columns=2)
    chosen = np.linspace(0, len(entries) - 1, min(_MOST_CURVES, len(entries))).round().astype(int)
    for number, index in enumerate(chosen, start=1):
        entry = entries[index]
        label = f"after {entry['step']:,} updates"
        _plot_positions(
            left, entry["context_use"], color=BLUE, alpha=number / len(chosen), label=label
        )
    left.legend(edgecolor="none", loc="upper right")
    steps = [entry["step"] for entry in entries]
    passages = [entry["context_use"]["repeated_passage"] for entry in entries]
    for name, color in (("first", BLUE), ("second", ORANGE)):
        losses = [passage[name] for passage in passages]
        right.plot(steps, losses, color=color, marker="o", markersize=3, label=f"{name} time")
    right.set(
        xlabel="updates",
        ylabel="loss of a token, nats",
        title=f"a passage of {passages[-1]['tokens']} tokens, twice "
        f"(last gap: {passages[-1]['gap']:.2f})",
    )
    right.set_xlim(left=0)
    right.legend(edgecolor="none")
    figure.suptitle(shown(title))
    return figure


def _plot_positions(axes: Axes, use: dict[str, Any], **style: Any) -> None:
    bins = use["loss_by_position"]
    centers = [(each["from"] + each["to"]) / 2 for each in bins]
    errors = [each["standard_error"] or 0.0 for each in bins]
    axes.errorbar(centers, [each["loss"] for each in bins], errors, capsize=2, **style)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(matplotlib.ticker.StrMethodFormatter("{x:,.0f}"))
    axes.set(
        xlabel="position in the context", ylabel="loss of a token, nats", title="loss by position"
    )
