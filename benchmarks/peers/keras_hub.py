"""KerasHub's GPT-2, of the same size as ours."""

import numpy as np

from benchmarks.harness import training_turns
from benchmarks.harness.measured_models import SIZES


def train(turns, precision, mode, size, batch, length, steps):
    """Pre-trains a language model on random ids, with Keras's own optimizer and loss."""
    import keras
    import keras_hub

    training_turns.use_precision(precision)
    model = keras_hub.models.GPT2CausalLM(
        keras_hub.models.GPT2Backbone(**SIZES[size], dropout=0.1), preprocessor=None
    )
    model.compile(
        optimizer=keras.optimizers.AdamW(
            training_turns.PRETRAINING_RATE,
            weight_decay=training_turns.WEIGHT_DECAY,
            global_clipnorm=training_turns.CLIP_NORM,
        ),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        jit_compile=mode == "XLA",
        weighted_metrics=None,  # its metric would take time
    )
    ids = training_turns.random_ids(size, batch, length + 1, steps)
    mask = np.ones((steps, batch, length), "int32")
    training_turns.fit_in_turns(turns, model, ids, padding_mask=mask)
    return {"peak_memory": training_turns.peak_memory()}
