"""Windows of a corpus in the form that Keras's `fit` and `evaluate` take, on each backend."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import keras
import numpy as np

from gpt1_keras.tasks.batches import without_autotuning
from training.corpus.windows import SequentialWindows, Windows

if TYPE_CHECKING:  # TensorFlow may be missing on another backend
    import tensorflow as tf

# Takes `(step, worker, workers)`, and returns `(inputs, targets[, weights])`.
_MakeBatch = Callable[[int, int, int], tuple[Any, ...]]


def training_batches(
    windows: Windows, first_step: int, steps: int, strategy: "tf.distribute.Strategy | None" = None
) -> Any:
    """Returns the batches of consecutive updates.

    Args:
        first_step: number of updates before these.
        strategy: each replica gets its own share.

    Returns:
        What `fit` takes: `({"token_ids": int32 [batch, length]}, int32 [batch, length])`.
    """

    def batch(step: int, worker: int, workers: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
        tokens = windows.batch(step, worker, workers)
        return {"token_ids": tokens[:, :-1]}, tokens[:, 1:]

    return _batches(
        batch, range(first_step, first_step + steps), strategy, windows.batch_size, windows.length
    )


def validation_batches(
    windows: SequentialWindows,
    steps: int | None = None,
    strategy: "tf.distribute.Strategy | None" = None,
) -> Any:
    """Returns batches of consecutive windows, in the form that `evaluate` takes.

    Args:
        steps: how many of their batches, from the first; all by default.
        strategy: each replica gets its own share.
    """

    def batch(
        step: int, worker: int, workers: int
    ) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]:
        tokens, weights = windows[step]
        rows = len(tokens)
        share = slice(worker * rows // workers, (worker + 1) * rows // workers)
        return {"token_ids": tokens[share, :-1]}, tokens[share, 1:], weights[share]

    steps = len(windows) if steps is None else steps
    return _batches(batch, range(steps), strategy, windows.batch_size, windows.length)


def _batches(
    batch: _MakeBatch,
    steps: range,
    strategy: "tf.distribute.Strategy | None",
    batch_size: int,
    length: int,
) -> Any:
    if keras.backend.backend() != "tensorflow":
        return _Sequence(batch, steps)
    import tensorflow as tf

    replicas = strategy.num_replicas_in_sync if strategy else 1
    shape = (batch_size // replicas, length)
    signature = (
        {"token_ids": tf.TensorSpec(shape, "int32")},
        tf.TensorSpec(shape, "int32"),
        tf.TensorSpec(shape, "float32"),
    )[: len(batch(steps[0], 0, replicas))]

    def dataset(context: tf.distribute.InputContext | None = None) -> tf.data.Dataset:
        local = replicas // context.num_input_pipelines if context else 1
        first = context.input_pipeline_id * local if context else 0

        def generate() -> Iterator[tuple[Any, ...]]:
            for step in steps:
                for replica in range(first, first + local):
                    yield batch(step, replica, replicas)

        elements = tf.data.Dataset.from_generator(generate, output_signature=signature)
        elements = elements.apply(tf.data.experimental.assert_cardinality(len(steps) * local))
        return without_autotuning(elements.prefetch(2 * local))

    return strategy.distribute_datasets_from_function(dataset) if strategy else dataset()


class _Sequence(keras.utils.PyDataset):
    """The batches without TensorFlow, for one device.

    The next batch is made while the device computes, by a thread of ours: Keras's (`workers=2`)
    drop what they have made ahead at the end of every epoch, and a fit in several epochs skips it.
    """

    def __init__(self, batch: _MakeBatch, steps: range) -> None:
        super().__init__()
        self._batch, self._steps = batch, steps
        self._thread = ThreadPoolExecutor(1)
        self._ahead: dict[int, Future[tuple[Any, ...]]] = {}

    def __len__(self) -> int:
        return len(self._steps)

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        made = self._ahead.pop(index, None) or self._start(index)
        following = index + 1
        self._ahead = {following: self._start(following)} if following < len(self) else {}
        return made.result()

    def _start(self, index: int) -> "Future[tuple[Any, ...]]":
        return self._thread.submit(self._batch, self._steps[index], 0, 1)
