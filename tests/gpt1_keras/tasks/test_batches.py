"""What the tasks do with the data of `fit`, `evaluate` and `predict`."""

import itertools
import pathlib

import keras
import numpy as np
import pytest
import tensorflow as tf

import gpt1_keras
from gpt1_keras.examples import Examples
from gpt1_keras.presets import load_task
from gpt1_keras.tasks.batches import without_autotuning

TEXTS, LABELS = ["good", "bad"], [1, 0]


def batches():
    return tf.data.Dataset.from_tensor_slices((TEXTS, LABELS)).batch(2)


@pytest.mark.slow
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


# === Generators ===

PAIRS_OF_TEXTS = [["good", "bad"], ["a good film", "the staff"], ["a dull one", "a lovely one"]]


def generate():
    for texts in PAIRS_OF_TEXTS:
        yield texts, LABELS


@pytest.fixture(scope="module")
def make_classifier(tiny_tokenizer):
    """Makes a classifier without dropout, always with the same weights."""

    def make(rate=0.1):
        keras.utils.set_random_seed(0)
        backbone = gpt1_keras.GPT1Backbone(tiny_tokenizer.vocabulary_size(), 1, 2, 8, 16, 0.0, 16)
        preprocessor = gpt1_keras.GPT1TextClassifierPreprocessor(tiny_tokenizer, 16)
        classifier = gpt1_keras.GPT1TextClassifier(backbone, 2, preprocessor, dropout=0.0)
        classifier.compile(keras.optimizers.SGD(rate), run_eagerly=True)
        return classifier

    return make


def assert_trained_on(classifier, order, make_classifier):
    expected = make_classifier()
    for index in order:
        expected.train_on_batch(PAIRS_OF_TEXTS[index], LABELS)
    assert int(classifier.optimizer.iterations) == len(order)
    for found, weight in zip(classifier.get_weights(), expected.get_weights(), strict=True):
        np.testing.assert_allclose(found, weight, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make_iterator", "steps"),
    [
        (generate, 3),
        (generate, 2),
        (generate, None),
        (lambda: iter(list(generate())), 3),
        (lambda: zip(PAIRS_OF_TEXTS, itertools.repeat(LABELS)), 3),
    ],
)
def test_a_generator_that_ends_is_read_once(make_classifier, make_iterator, steps):
    """Its first batch alone was trained on from then on."""
    classifier = make_classifier()
    with pytest.warns(UserWarning, match="Your input ran out of data"):
        classifier.fit(make_iterator(), steps_per_epoch=steps, epochs=4, verbose=0)
    assert_trained_on(classifier, [0, 1, 2], make_classifier)


@pytest.mark.slow
def test_a_generator_that_goes_on_goes_on(make_classifier):
    classifier = make_classifier()
    classifier.fit(itertools.cycle(generate()), steps_per_epoch=2, epochs=3, verbose=0)
    assert_trained_on(classifier, [0, 1, 2, 0, 1, 2], make_classifier)


@pytest.mark.slow
def test_generators_of_validation_data(make_classifier):
    """Each epoch needs all of one that ends; with `validation_steps`, it goes on."""
    classifier = make_classifier(rate=0.0)
    whole = classifier.evaluate(generate(), verbose=0)[0]
    each = [classifier.evaluate(texts, LABELS, verbose=0)[0] for texts in PAIRS_OF_TEXTS]

    def losses(data, **arguments):
        history = classifier.fit(
            TEXTS, LABELS, epochs=3, validation_data=data, verbose=0, **arguments
        )
        return history.history["val_loss"]

    np.testing.assert_allclose(losses(generate()), [whole] * 3, rtol=1e-5)
    batches = iter(list(generate()) * 9)
    np.testing.assert_allclose(losses(batches, validation_steps=1), each, rtol=1e-5)
    assert len(list(batches)) == 9 * 3 - 3  # none was read ahead, and lost


# === Examples that another edge has read ===

CHOOSER = pathlib.Path(__file__).parents[1] / "presets" / "saved_models" / "chooser"


def read_elsewhere(class_names=("1", "0"), labels=(1, 0, -1, 1)):
    """As runs read files: bytes, and labels that are indices of classes, not their names."""
    texts = np.array([b"good", b"bad", b"unlabelled", b"a good film"], object)
    return Examples({"text": texts}, np.array(labels, np.int32), class_names=list(class_names))


@pytest.mark.slow
def test_batches_that_are_given(make_classifier):
    """They are read in their order, each once; answers come in the examples' own."""
    examples = read_elsewhere(["0", "1"]).labelled()
    batches = [np.array([2]), np.array([1, 0])]
    given, expected = make_classifier(), make_classifier()
    given.fit(examples.in_batches(batches), verbose=0)
    for batch in batches:
        part = examples.take(batch)
        expected.train_on_batch([text.decode() for text in part.texts["text"]], part.labels)
    for found, weight in zip(given.get_weights(), expected.get_weights(), strict=True):
        np.testing.assert_allclose(found, weight, atol=1e-6)
    found = given.predict(examples.in_batches(batches), verbose=0)
    np.testing.assert_allclose(found, given.predict(examples, verbose=0), atol=1e-6)
    with pytest.raises(ValueError, match="once"):
        given.predict(examples.in_batches(batches[:1]), verbose=0)
    with pytest.raises(ValueError, match="validation_split"):
        given.fit(examples.in_batches(batches), validation_split=0.5)


def test_labels_that_are_encoded_stay(make_classifier):
    """Of classes whose names are numbers, too; those of other classes would be others."""
    classifier = make_classifier()
    backbone, preprocessor = classifier.backbone, classifier.preprocessor
    reversed_ = type(classifier)(backbone, class_names=["1", "0"], preprocessor=preprocessor)
    read = reversed_.read_examples(read_elsewhere().labelled())
    assert read.labels.tolist() == [1, 0, 1]
    by_name = reversed_.read_examples(["a", "b"], ["0", "1"])
    for again in (by_name, reversed_.read_examples(by_name)):
        assert np.array_equal(again.labels, [1, 0])
    assert read.texts["text"].numpy().tolist() == [b"good", b"bad", b"a good film"]
    with pytest.raises(ValueError, match="classes"):
        classifier.read_examples(read_elsewhere().labelled())
    with pytest.raises(ValueError, match="index 2"):
        reversed_.read_examples(read_elsewhere())
    with pytest.raises(ValueError, match="alone"):
        reversed_.read_examples(read_elsewhere().labelled(), [0, 1, 0])
    assert len(reversed_.predict(read_elsewhere(), verbose=0)) == 4  # whose labels do not count


@pytest.mark.slow
def test_choices_of_unequal_numbers():
    chooser = load_task(CHOOSER)
    columns = {
        "context": ["The sun.", "Rain."],
        "question": ["What?", "Why?"],
        "choices": [["It rained.", "Fine.", "Snow."], ["Yes.", "No."]],
    }
    examples = Examples(columns, labels=np.array([0, 1], np.int32))
    expected = chooser.predict(columns, verbose=0)
    for batches in (None, [np.array([1]), np.array([0])]):
        found = chooser.predict(examples.in_batches(batches), verbose=0)
        np.testing.assert_allclose(found, expected, atol=1e-5)
    as_bytes = examples.take([1])
    as_bytes.texts["choices"][0] = np.array([b"Yes.", b"No."], object)
    np.testing.assert_allclose(chooser.predict(as_bytes), expected[1:, :2], atol=1e-5)
