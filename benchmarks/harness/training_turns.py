"""What the peers share that train in turns: settings, ids, and turns of one batch or of several."""

import pathlib

from benchmarks.harness.measured_models import SIZES

WEIGHT_DECAY = 0.01
CLIP_NORM = 1.0
PRETRAINING_RATE = 2.5e-4
FINETUNING_RATE = 6.25e-5
FINETUNING_BATCH = 32
IDS_FILE, PRESET, HUGGING_FACE = "ids.npz", "preset", "hugging_face"  # what is prepared


def random_ids(size, batch, length, steps):
    """Returns random token ids, int32 `[steps, batch, length]`."""
    import numpy as np

    random = np.random.default_rng(0)
    shape = (steps, batch, length)
    return random.integers(0, SIZES[size]["vocabulary_size"], shape, dtype="int32")


def peak_memory():
    """Returns bytes. (`resource` would also count the memory of the parent process.)"""
    status = pathlib.Path("/proc/self/status").read_text()
    kilobytes = next(line for line in status.splitlines() if line.startswith("VmHWM:")).split()[1]
    return int(kilobytes) * 1024


def use_precision(precision):
    """Sets Keras's dtype policy."""
    import keras

    keras.config.set_dtype_policy("mixed_bfloat16" if precision == "bfloat16" else precision)


def fit_in_turns(turns, model, ids, **inputs):
    """Trains on ids `[steps, batch, length + 1]`, one step in each turn; reports the loss."""
    import keras
    import tensorflow as tf

    inputs["token_ids"] = ids[:, :, :-1]
    data = tf.data.Dataset.from_tensor_slices((inputs, ids[:, :, 1:]))
    callback = keras.callbacks.LambdaCallback(
        on_train_batch_begin=lambda batch, logs: turns.begin(),
        # Reading the loss waits for the step to end.
        on_train_batch_end=lambda batch, logs: turns.end(loss=float(logs["loss"])),
    )
    model.fit(data, verbose=0, callbacks=[callback])


class BatchTurns:
    """Makes a turn of every `batches` batches, of `count` turns; `begin` waits for the first."""

    def __init__(self, turns, count, batches):
        self._turns, self._batches, self._done = turns, batches, 0
        self.steps = count * batches
        self.begin = turns.begin

    def batch_ended(self):
        """Ends the turn, and waits for the next, if that was its last batch."""
        self._done += 1
        if self._done % self._batches == 0:
            self._turns.end()
            if self._done < self.steps:
                self._turns.begin()
