"""What a pre-training finds out about its model at each checkpoint."""

import sys
from typing import TYPE_CHECKING, Any

from gpt1_keras import GPT1CausalLM
from training.corpus.batches import validation_batches
from training.corpus.corpus_format import Corpus
from training.corpus.windows import count_sequential_batches, count_sequential_tokens
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
        model: compiled.
        corpus: to validate on.
        options: of the run.
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
        self._split = corpus.splits.get("validation")
        self._length, self._batch_size = options.sequence_length or 0, options.batch_size
        self._context_use: ContextUse | None = None
        if self._split is not None and self._length >= 3:
            windows = spread_windows(self._split.shards, self._length, _CONTEXT_WINDOWS)
            self._context_use = ContextUse(model, windows) if len(windows) else None

    def scores(self, limit: int | None = None) -> dict[str, Any]:
        """Returns loss and perplexity of the split, or of its first `limit` batches."""
        if self._split is None:
            return {}
        arguments = self._split, self._length, self._batch_size
        steps = min(count_sequential_batches(*arguments), limit or sys.maxsize)
        batches = validation_batches(*arguments, steps, self._strategy)
        logs = self._model.evaluate(batches, steps=steps, verbose=0, return_dict=True)
        return {
            "validation_loss": logs["loss"],
            "validation_perplexity": logs["perplexity"],
            "validation_tokens": count_sequential_tokens(*arguments, steps),
        }

    def context_use(self) -> dict[str, Any]:
        """Returns what `ContextUse.measure` does; an empty dict if the split has no window."""
        return {"context_use": self._context_use.measure()} if self._context_use else {}


def plot_context_use(run: Run) -> None:
    """Plots how the use of the context changed over a run, if it was measured."""
    entries = [entry for entry in run.history if "context_use" in entry]
    if entries:
        save(plot_series(entries, run.options["config"]), run.folder / "context_use.svg")
