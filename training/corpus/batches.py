"""Windows of a corpus as what Keras's `fit` and `evaluate` take, on each backend."""

import itertools

import keras

from training.corpus.windows import sequential_windows


def training_batches(windows, first_step, steps, strategy=None):
    """The batches of some consecutive updates.

    Args:
        windows: `training.corpus.windows.Windows`.
        first_step: int, the number of updates before.
        steps: int.
        strategy: optional `tf.distribute.Strategy`; each replica gets its own share.

    Returns:
        What `fit` takes: `({"token_ids": int32 [batch, length]}, int32 [batch, length])`.
    """

    def batch(step, worker, workers):
        tokens = windows.batch(step, worker, workers)
        return {"token_ids": tokens[:, :-1]}, tokens[:, 1:]

    return _batches(
        batch, range(first_step, first_step + steps), strategy, windows.batch_size, windows.length
    )


def validation_batches(split, length, batch_size, steps, strategy=None):
    """The windows of a split one after the other, as what `evaluate` takes.

    Args:
        split: `training.corpus.windows.Split`.
        length, batch_size: ints.
        steps: int, the number of batches to stop after.
        strategy: as above.
    """
    windows = list(itertools.islice(sequential_windows(split, length, batch_size), steps))

    def batch(step, worker, workers):
        tokens, weights = windows[step]
        share = slice(worker * batch_size // workers, (worker + 1) * batch_size // workers)
        return {"token_ids": tokens[share, :-1]}, tokens[share, 1:], weights[share]

    return _batches(batch, range(len(windows)), strategy, batch_size, length)


def _batches(batch, steps, strategy, batch_size, length):
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

    def dataset(context=None):
        local = replicas // context.num_input_pipelines if context else 1
        first = context.input_pipeline_id * local if context else 0

        def generate():
            for step in steps:
                for replica in range(first, first + local):
                    yield batch(step, replica, replicas)

        elements = tf.data.Dataset.from_generator(generate, output_signature=signature)
        elements = elements.apply(tf.data.experimental.assert_cardinality(len(steps) * local))
        return elements.prefetch(2 * local)

    return strategy.distribute_datasets_from_function(dataset) if strategy else dataset()


class _Sequence(keras.utils.PyDataset):
    """The same without TensorFlow, for one device."""

    def __init__(self, batch, steps):
        super().__init__()
        self._batch, self._steps = batch, steps

    def __len__(self):
        return len(self._steps)

    def __getitem__(self, index):
        return self._batch(self._steps[index], 0, 1)
