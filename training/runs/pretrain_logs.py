"""The history of a pre-training for TensorBoard, also where TensorFlow is not installed."""

import pathlib
from typing import Any

import keras
from tensorboard.summary import Writer

_SCORES = (
    *("loss", "validation_loss", "validation_perplexity"),
    *("tokens_per_second", "share_of_peak"),
)


class PretrainLogs:
    """Writes entries of a run's history, and the learning rate, as events."""

    def __init__(self, folder: pathlib.Path, model: keras.Model) -> None:
        self._folder, self._model = folder, model
        self._writer: Writer | None = None

    def add(self, entry: dict[str, Any]) -> None:
        """Writes an entry. Scores that it does not have, as without validation, are left out."""
        self._writer = self._writer or Writer(str(self._folder))
        scores = {name: entry[name] for name in _SCORES if name in entry}
        if "context_use" in entry:
            scores["repeated_passage_gap"] = entry["context_use"]["repeated_passage"]["gap"]
        scores["learning_rate"] = float(self._model.optimizer.learning_rate)
        for name, score in scores.items():
            self._writer.add_scalar(name, score, entry["step"])
        self._writer.flush()
