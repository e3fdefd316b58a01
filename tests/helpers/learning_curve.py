"""Fine-tunes a classifier on the Keras backend at hand, and prints the loss of each update.

KERAS_BACKEND=jax python tests/helpers/learning_curve.py PRESET
"""

import json
import sys

import keras
import numpy as np

import gpt1_keras

TEXTS = [f"{adjective} film, {noun}" for adjective in ("a good", "a dull") for noun in "abcdefgh"]
LABELS = np.repeat([0, 1], 8)


class _Losses(keras.callbacks.Callback):
    """Records the loss of each update, from Keras's mean over the epoch so far."""

    def __init__(self):
        super().__init__()
        self.losses = []

    def on_epoch_begin(self, epoch, logs=None):
        self.total = 0.0

    def on_train_batch_end(self, batch, logs=None):
        total = float(logs["loss"]) * (batch + 1)
        self.losses.append(total - self.total)
        self.total = total


def learning_curve(preset, epochs=6):
    """Returns the loss of each update; the order of the texts is always the same."""
    classifier = gpt1_keras.GPT1TextClassifier.from_preset(preset)
    classifier.compile(gpt1_keras.optimizer.finetuning_optimizer(1e-2), jit_compile=False)
    losses = _Losses()
    classifier.fit(
        TEXTS, LABELS, batch_size=8, epochs=epochs, shuffle=False, callbacks=[losses], verbose=0
    )
    return losses.losses


if __name__ == "__main__":
    print(json.dumps(learning_curve(sys.argv[1])))
