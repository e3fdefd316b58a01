"""Trains small models under a strategy, and writes the results into a file of JSON.

    python tests/helpers/train_under.py FILE one|mirrored|workers|jax [SCENARIO ...]

"mirrored" makes the CPU two devices; "workers" needs TF_CONFIG; "jax" needs Keras's JAX backend
(see without_tensorflow.py). tests/gpt1_keras/optimization/test_training_step.py compares results.
"""

import contextlib
import gc
import json
import pathlib
import sys

import keras
import numpy as np

import gpt1_keras
from gpt1_keras.optimization.optimizer import GPT1Adam, finetuning_optimizer
from training.corpus.batches import training_batches, validation_batches
from training.corpus.corpus_format import Split
from training.corpus.windows import SequentialWindows, Windows
from training.runs import strategy_and_xla
from training.runs.strategy_and_xla import find_strategy

STEPS = 20
BATCH, LENGTH, VOCABULARY = 8, 16, 50
TOKENS = np.random.default_rng(0).integers(2, VOCABULARY, 2000).astype("uint16")
TOKENS[::2] = TOKENS[0]  # every other token can be learned


def make_strategy(name):
    if name in ("one", "jax"):
        return None
    import tensorflow as tf

    if name == "workers":
        return find_strategy("multi_worker")[0]
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    return find_strategy("mirrored")[0]


def make_lm(strategy, optimizer, lora=False, dropout=0.0, dtype=None, **compiling):
    """Makes a compiled language model; its weights are the same on every backend."""
    keras.utils.set_random_seed(0)
    random = np.random.default_rng(1)
    with strategy.scope() if strategy else contextlib.nullcontext():
        backbone = gpt1_keras.GPT1Backbone(
            VOCABULARY,
            num_layers=1,
            num_heads=2,
            hidden_dim=16,
            intermediate_dim=32,
            max_sequence_length=LENGTH,
            dropout=dropout,
            dtype=dtype,
        )
        for variable in backbone.trainable_variables:
            if len(variable.shape) > 1:
                variable.assign(random.normal(0.0, 0.2, variable.shape))
        lm = gpt1_keras.GPT1CausalLM(backbone)
        if lora:
            backbone.enable_lora(2)
            for variable in backbone.trainable_variables:
                variable.assign(random.normal(0.0, 0.1, variable.shape))
            backbone.embedding.trainable = False
        lm.compile(optimizer(), **compiling)
    return lm


class Updates(keras.callbacks.Callback):
    """Records the norms of the weights' updates."""

    def __init__(self):
        super().__init__()
        self.norms = []

    def on_epoch_begin(self, epoch, logs=None):
        self.before = self.model.get_weights()

    def on_epoch_end(self, epoch, logs=None):
        squares = [
            np.sum((new - old) ** 2, dtype=np.float64)
            for old, new in zip(self.before, self.model.get_weights())
            if new.dtype == np.float32
        ]
        self.norms.append(float(np.sqrt(sum(squares))))


def train(strategy, optimizer, callbacks=(), **options):
    """Returns losses and norms of 20 updates on windows of the tokens, and an evaluation."""
    lm = make_lm(strategy, optimizer, **options)
    windows = Windows(Split("train", (TOKENS,)), LENGTH, BATCH, seed=3)
    updates = Updates()
    history = lm.fit(
        training_batches(windows, 0, STEPS, strategy),
        epochs=STEPS,  # of one update each, because Keras averages the losses of an epoch
        steps_per_epoch=1,
        verbose=0,
        callbacks=[updates, *callbacks],
    )
    validation = Split("validation", (TOKENS[:200],))
    batches = validation_batches(SequentialWindows(validation, LENGTH, BATCH), 2, strategy)
    logs = lm.evaluate(batches, steps=2, verbose=0, return_dict=True)
    return {"losses": history.history["loss"], "norms": updates.norms, **logs}


def train_measured(strategy):
    """Measures in ten updates whether XLA is faster; the other updates use the faster."""
    strategy_and_xla._SECONDS_THAT_PAY = 0.0
    return train(strategy, adam, [strategy_and_xla.CompilationTrial(STEPS)], jit_compile=False)


def train_on_an_odd_batch(strategy):
    """Trains on nine rows in batches of 8: the last has one row, so one replica gets none."""
    import tensorflow as tf

    lm = make_lm(strategy, lambda: GPT1Adam(1e-2))
    rows = TOKENS[: 9 * LENGTH].reshape(9, LENGTH).astype("int32")
    data = tf.data.Dataset.from_tensor_slices(({"token_ids": rows}, np.roll(rows, -1, 1)))
    history = lm.fit(data.batch(8), epochs=3, verbose=0)
    return {"losses": history.history["loss"], "loss": lm.evaluate(data.batch(8), verbose=0)[0]}


def train_a_classifier(strategy):
    """Trains with L3 on strings, through `fit` as a user calls it."""
    texts = ["a good film", "a bad film, and a dull one", "kind staff", "dull", "a lovely one"] * 3
    names = ["good", "bad", "good", "bad", "good"] * 3
    keras.utils.set_random_seed(0)
    tokenizer = gpt1_keras.GPT1Tokenizer.learn(texts, num_merges=30)
    random = np.random.default_rng(1)
    with strategy.scope() if strategy else contextlib.nullcontext():
        backbone = gpt1_keras.GPT1Backbone(
            tokenizer.vocabulary_size(), 1, 2, 16, 32, max_sequence_length=32, dropout=0.0
        )
        classifier = gpt1_keras.GPT1TextClassifier(
            backbone,
            class_names=["bad", "good"],
            preprocessor=gpt1_keras.GPT1TextClassifierPreprocessor(tokenizer, 32),
            dropout=0.0,
        )
        for variable in classifier.trainable_variables:
            if len(variable.shape) > 1:
                variable.assign(random.normal(0.0, 0.2, variable.shape))
        classifier.compile(GPT1Adam(1e-2, global_clipnorm=1.0), jit_compile=True)
    # Each batch has all five texts, so all batches have one shape, and XLA compiles once.
    history = classifier.fit(texts, names, batch_size=5, epochs=3, shuffle=False, verbose=0)
    scores = classifier.evaluate(texts, names, batch_size=5, verbose=0, return_dict=True)
    return {"losses": history.history["loss"], **scores}


def train_a_classifier_on_an_odd_batch(strategy):
    """Trains on three texts in batches of 2: the last has one text, so one replica gets none."""
    keras.utils.set_random_seed(0)
    texts, scores = ["a good film", "dull", "a lovely one"], [4.0, 1.0, 5.0]
    tokenizer = gpt1_keras.GPT1Tokenizer.learn(texts * 2, num_merges=30)
    with strategy.scope() if strategy else contextlib.nullcontext():
        classifier = gpt1_keras.GPT1TextClassifier(
            gpt1_keras.GPT1Backbone(tokenizer.vocabulary_size(), 1, 2, 16, 32, 0.0, 32),
            score_range=(1, 5),
            preprocessor=gpt1_keras.GPT1TextClassifierPreprocessor(tokenizer, 32),
            dropout=0.0,
        )
        classifier.compile(GPT1Adam(1e-2), metrics=["mae"], jit_compile=False)
        classifier.compile(finetuning_optimizer(1e-2), metrics=["mae"], jit_compile=False)
    fitted = classifier.fit(texts, scores, batch_size=2, epochs=3, shuffle=False, verbose=0)
    logs = classifier.evaluate(texts, scores, batch_size=2, verbose=0, return_dict=True)
    return {"losses": fitted.history["loss"], **logs}


def train_on_a_generator(strategy):
    """Trains on a generator, of which Keras must not read a batch in vain."""
    rows = TOKENS[: 6 * LENGTH].reshape(3, 2, LENGTH).astype("int32")
    lm = make_lm(strategy, lambda: GPT1Adam(1e-2))
    batches = (({"token_ids": batch}, np.roll(batch, -1, 1)) for batch in rows)
    losses = lm.fit(batches, epochs=3, steps_per_epoch=1, verbose=0).history["loss"]
    return {"losses": losses, "loss": losses[-1]}


def drop(strategy):
    """Returns the loss of an update with dropout, on rows that are all the same."""
    import tensorflow as tf

    lm = make_lm(strategy, lambda: keras.optimizers.SGD(0.0), dropout=0.5)
    replicas = strategy.num_replicas_in_sync if strategy else 1
    rows = np.repeat(TOKENS[None, :LENGTH].astype("int32"), replicas, axis=0)
    data = tf.data.Dataset.from_tensors(({"token_ids": rows}, rows))
    return {"losses": lm.fit(data.repeat(), steps_per_epoch=1, verbose=0).history["loss"]}


def adam():
    return GPT1Adam(1e-2, global_clipnorm=0.1)


def sgd():
    return keras.optimizers.SGD(1.0, global_clipnorm=0.1)


def adamw():
    return keras.optimizers.AdamW(1e-2, weight_decay=0.1, global_clipnorm=0.1)


SCENARIOS = {
    "plain": lambda strategy: train(strategy, adam),
    "xla_in_slices": lambda strategy: train(strategy, adam, jit_compile=True, accumulation_steps=2),
    "in_slices": lambda strategy: train(strategy, adam, accumulation_steps=2),
    "sgd": lambda strategy: train(strategy, sgd),
    "lora": lambda strategy: train(strategy, adamw, lora=True),
    "float16": lambda strategy: train(strategy, adam, dtype="mixed_float16"),
    "measured": train_measured,
    "odd": train_on_an_odd_batch,
    "classifier": train_a_classifier,
    "odd_classifier": train_a_classifier_on_an_odd_batch,
    "generator": train_on_a_generator,
    "dropout": drop,
}


def train_under(path, strategy_name, *scenarios):
    """Runs the scenarios in this process, which must not have used a device yet."""
    gc.disable()  # otherwise it searches the many small objects of graphs in vain
    strategy = make_strategy(strategy_name)
    results = {}
    for name in scenarios:
        results[name] = SCENARIOS[name](strategy)
        keras.backend.clear_session()
    pathlib.Path(path).write_text(json.dumps(results))


if __name__ == "__main__":
    train_under(*sys.argv[1:])
