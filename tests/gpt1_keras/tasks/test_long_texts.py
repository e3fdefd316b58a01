"""Texts that are too long keep their beginning and their end, in every task and everywhere."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import gpt1_keras
from gpt1_keras.presets import load_task
from serving.export.exporter import export
from serving.tflite import TextModel, convert

LENGTH = 16
WORDS = ["good", "film", "bad", "dull", "kind", "lovely", "staff", "one"]


def words(count, seed=0):
    """A text of a number of words."""
    return " ".join(np.random.default_rng(seed).choice(WORDS, count))


def head_and_tail(tokenizer, text, kept, tail):
    """The words of a text whose first and last tokens are kept, where each word is whole."""
    ids = tokenizer(text).numpy().tolist()
    end = int(kept * tail)
    return tokenizer.detokenize(ids[: kept - end] + ids[len(ids) - end :])


@pytest.fixture
def classifier(tiny_tokenizer, tiny_backbone):
    preprocessor = gpt1_keras.GPT1TextClassifierPreprocessor(tiny_tokenizer, LENGTH, tail=0.5)
    model = gpt1_keras.GPT1TextClassifier(
        tiny_backbone, preprocessor=preprocessor, class_names=["bad", "good"]
    )
    model.head.kernel.assign(keras.ops.ones_like(model.head.kernel) * [[-1.0, 1.0]])
    return model


def test_the_middle_is_left_out(classifier, tiny_tokenizer):
    """Texts of words of one token each, so that what is kept is a text, too."""
    assert all(tiny_tokenizer(word).shape == [1] for word in WORDS)
    texts = [words(count, seed=count) for count in (3, 14, 15, 40, 200)]
    kept = [
        texts[0],
        texts[1],
        *(head_and_tail(tiny_tokenizer, text, 14, 0.5) for text in texts[2:]),
    ]
    inputs, expected = (classifier.preprocessor(each) for each in (texts, kept))
    np.testing.assert_array_equal(inputs["token_ids"], expected["token_ids"])
    found = classifier.predict(texts, verbose=0)
    np.testing.assert_allclose(found, classifier.predict(kept, verbose=0), atol=1e-6)
    data = tf.data.Dataset.from_tensor_slices(texts).batch(2)
    np.testing.assert_allclose(classifier.predict(data, verbose=0), found, atol=1e-6)


def test_it_is_part_of_a_preset(classifier, tmp_path):
    classifier.save_to_preset(tmp_path)
    assert load_task(tmp_path).preprocessor.tail == 0.5
    config = classifier.preprocessor.get_config()
    del config["tail"]  # as earlier versions wrote it
    assert type(classifier.preprocessor).from_config(config).tail == 0.0


def test_an_export_keeps_the_same(classifier, tmp_path):
    texts = [words(count, seed=count) for count in (3, 15, 200)]
    answer = tf.saved_model.load(export(classifier, tmp_path)).signatures["serving_default"]
    expected = keras.ops.softmax(classifier.predict(texts, verbose=0))
    np.testing.assert_allclose(answer(text=tf.constant(texts))["scores"], expected, atol=1e-5)


@pytest.mark.slow
def test_a_device_keeps_the_same(classifier, tmp_path):
    answer = TextModel(convert(classifier, tmp_path / "model.tflite", 1000, LENGTH))
    for count in (3, 14, 15, 120):
        text = words(count, seed=count)
        found, [expected] = answer(text), classifier.classify([text])
        assert found["scores"] == pytest.approx(expected["scores"], abs=1e-5)
        assert found["truncated"] == (count > 14)


@pytest.mark.parametrize("tail", [-0.1, 1.0, "half", None])
@pytest.mark.parametrize(
    "cls",
    [
        gpt1_keras.GPT1TextClassifierPreprocessor,
        gpt1_keras.GPT1TextSimilarityPreprocessor,
        gpt1_keras.GPT1MultipleChoicePreprocessor,
    ],
)
def test_what_is_no_share(tiny_tokenizer, cls, tail):
    with pytest.raises(ValueError, match="tail"):
        cls(tiny_tokenizer, LENGTH, tail=tail)
    assert cls(tiny_tokenizer, LENGTH, tail=0.25).get_config()["tail"] == 0.25
