"""What a pre-training finds out about its model at each checkpoint."""

import sys
from typing import TYPE_CHECKING, Any

from gpt1_keras import GPT1CausalLM
from training.corpus.batches import validation_batches
from training.corpus.corpus_format import Corpus
from training.corpus.windows import SequentialWindows
from training.evaluation.context_losses import ContextUse, spread_windows
from training.evaluation.context_plots import plot_series
from training.evaluation.plots import save
from training.runs.pretrain_options import PretrainOptions
from training.runs.run_folder import Run

if TYPE_CHECKING:  # TensorFlow may be missing on another backend
    import tensorflow as tf

_CONTEXT_WINDOWS = 64  # on which the use of the context is measured


class Validation:
    """Scores a model on a corpus's validation split; returns nothing where there is none.

    Args:
        strategy: under which the model was built; all its workers call `scores`.
    """

    def __init__(
        self,
        model: GPT1CausalLM,
        corpus: Corpus,
        options: PretrainOptions,
        strategy: "tf.distribute.Strategy | None" = None,
    ) -> None:
        self._model, self._strategy = model, strategy
        self._windows: SequentialWindows | None = None
        self._context_use: ContextUse | None = None
        split, length = corpus.splits.get("validation"), options.sequence_length or 0
        if split is not None:
            self._windows = SequentialWindows(split, length, options.batch_size)
            windows = spread_windows(split.shards, length, _CONTEXT_WINDOWS)
            if len(windows) and length >= 3:
                self._context_use = ContextUse(model, windows)

    def scores(self, limit: int | None = None) -> dict[str, Any]:
        """Returns loss and perplexity of the split, or of its first `limit` batches."""
        if self._windows is None:
            return {}
        steps = min(len(self._windows), limit or sys.maxsize)
        batches = validation_batches(self._windows, steps, self._strategy)
        logs = self._model.evaluate(batches, steps=steps, verbose=0, return_dict=True)
        return {
            "validation_loss": logs["loss"],
            "validation_perplexity": logs["perplexity"],
            "validation_tokens": self._windows.count_tokens(steps),
        }

    def context_use(self) -> dict[str, Any]:
        """Returns what `ContextUse.measure` does; an empty dict if the split has no window."""
        return {"context_use": self._context_use.measure()} if self._context_use else {}


def plot_context_use(run: Run) -> None:
    """Plots how the use of the context changed over a run, if it was measured."""
    entries = [entry for entry in run.history if "context_use" in entry]
    if entries:
        save(plot_series(entries, run.options["config"]), run.folder / "context_use.svg")
