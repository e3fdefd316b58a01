"""What the tasks do with the data of `fit`, `evaluate` and `predict`."""

import keras
import pytest
import tensorflow as tf

import gpt1_keras
from gpt1_keras.tasks.data import without_autotuning

TEXTS, LABELS = ["good", "bad"], [1, 0]


def batches():
    return tf.data.Dataset.from_tensor_slices((TEXTS, LABELS)).batch(2)


@pytest.mark.parametrize("kind", ["strings", "dataset", "generator"])
def test_no_epoch_waits_for_the_thread_that_tunes(kind, monkeypatch):
    classifier = gpt1_keras.GPT1TextClassifier.from_preset("gpt1_tiny_books", num_classes=2)
    found = []
    for name in ("fit", "evaluate"):
        monkeypatch.setattr(
            keras.Model, name, lambda _, x, *args, **kwargs: found.extend([x, kwargs])
        )
    make = {
        "strings": lambda: (TEXTS, LABELS),
        "dataset": lambda: (batches(),),
        "generator": lambda: (iter(batches()),),
    }[kind]
    fixed = {"steps_per_epoch": 1} if kind == "generator" else {}
    classifier.fit(*make(), validation_data=batches(), **fixed)
    classifier.evaluate(*make())
    datasets = [found[0], found[1]["validation_data"], found[2]]
    assert [each.options().autotune.enabled for each in datasets] == [False] * 3


def test_what_a_user_chose_stays():
    options = tf.data.Options()
    options.autotune.enabled = True
    assert without_autotuning(batches().with_options(options)).options().autotune.enabled
    assert without_autotuning(TEXTS) is TEXTS
