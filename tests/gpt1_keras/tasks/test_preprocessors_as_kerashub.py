"""KerasHub's own test harness on the tokenizer and the preprocessors, expectations unchanged."""

import json

import keras_hub
import numpy as np
import pytest
import tensorflow as tf

pytest.importorskip("grain", reason="the harness imports it")

from keras_hub.src.tests import test_case

import gpt1_keras

FIRST = ["a good film, and a lovely one", "a dull one"]
SECOND = ["the staff were kind", "a bad film"]
CHOICES = [["kind", "dull"], ["a film", "a good one"]]


@pytest.fixture
def harness(tiny_tokenizer):
    """A test case of KerasHub's, which reads `init_kwargs` itself."""
    test = test_case.TestCase("assertEqual")
    test.init_kwargs = {"tokenizer": tiny_tokenizer, "sequence_length": 64}
    return test


def test_tokenizer(harness, tiny_tokenizer):
    vocabulary = tiny_tokenizer.vocabulary
    merges = [" ".join(merge) for merge in vocabulary.merges]
    texts = ["a good film", "a lovely one", ""]
    harness.run_preprocessing_layer_test(
        gpt1_keras.GPT1Tokenizer,
        {"vocabulary": vocabulary.token_to_id, "merges": merges},
        texts,
        expected_output=tiny_tokenizer(texts).to_list(),
        expected_detokenize_output=texts,
    )


@pytest.mark.parametrize(
    "name, data, arguments",
    [
        ("CausalLM", FIRST, {}),
        ("TextClassifier", (FIRST, [1, 0], [1.0, 0.5]), {}),
        (
            "TextClassifier",
            ((FIRST, SECOND), [1, 0], [1.0, 0.5]),
            {"fields": ("premise", "hypothesis")},
        ),
        ("TextSimilarity", ((FIRST, SECOND), [1, 0], [1.0, 0.5]), {}),
    ],
)
def test_preprocessor(harness, name, data, arguments):
    cls = getattr(gpt1_keras, f"GPT1{name}Preprocessor")
    harness.init_kwargs |= arguments
    harness.run_preprocessor_test(cls, harness.init_kwargs, data)


def test_multiple_choice(harness):
    """All of the harness but `ragged_batch`, which leaves choices ragged.

    How long all choices of an example are is only known with the texts, so `tf.data` does not see
    that examples have the same shape; `batch` does.
    """
    preprocessor = gpt1_keras.GPT1MultipleChoicePreprocessor(**harness.init_kwargs)
    data = ((FIRST, SECOND, CHOICES), np.array([1, 0]), np.array([1.0, 0.5]))
    harness.run_serialization_test(preprocessor)
    expected = preprocessor(*data)
    examples = tf.data.Dataset.from_tensor_slices(data)
    for batches in (examples.map(preprocessor).batch(2), examples.batch(2).map(preprocessor)):
        harness.assertAllClose(expected, batches.get_single_element())
    harness.run_grain_preprocessing_test(preprocessor, data, expected)
    for length in (64, 40):
        preprocessor.sequence_length = length
        assert preprocessor(*data)[0]["token_ids"].shape == (2, length)


@pytest.mark.parametrize(
    "cls",
    [
        gpt1_keras.GPT1TextClassifierPreprocessor,
        gpt1_keras.GPT1TextSimilarityPreprocessor,
        gpt1_keras.GPT1MultipleChoicePreprocessor,
    ],
)
def test_truncation(cls, tiny_tokenizer, tiny_backbone, tmp_path):
    """Presets keep theirs; those of earlier versions do not name it, and have halves."""
    with pytest.raises(ValueError, match="waterfall"):
        cls(tiny_tokenizer, truncate="waterfall")
    assert cls(tiny_tokenizer).truncate == "round_robin"
    tiny_backbone.save_to_preset(tmp_path)
    for truncate in ("round_robin", "halves"):
        cls(tiny_tokenizer, truncate=truncate).save_to_preset(tmp_path)
        assert cls.from_preset(str(tmp_path)).truncate == truncate
    saved = json.loads((tmp_path / "preprocessor.json").read_text())
    del saved["config"]["truncate"]
    (tmp_path / "preprocessor.json").write_text(json.dumps(saved))
    assert cls.from_preset(str(tmp_path)).truncate == "halves"
    assert cls.from_preset(str(tmp_path), truncate="round_robin").truncate == "round_robin"
    assert cls.from_preset("gpt1_tiny_books").truncate == "round_robin"  # a language model's


@pytest.mark.parametrize("cls", [gpt1_keras.GPT1Tokenizer, keras_hub.tokenizers.Tokenizer])
def test_tokenizer_s_preset(harness, cls):
    ids = gpt1_keras.presets.load_tokenizer("gpt1_tiny_books")(FIRST).to_list()
    harness.run_preset_test(cls, "gpt1_tiny_books", FIRST, expected_output=ids)


@pytest.mark.parametrize(
    "cls", [keras_hub.models.TextClassifierPreprocessor, keras_hub.models.CausalLMPreprocessor]
)
def test_preprocessor_s_preset(harness, cls):
    shape = {"token_ids": (2, 64), "padding_mask": (2, 64)}
    if cls is keras_hub.models.CausalLMPreprocessor:
        shape = (shape, (2, 64), (2, 64))
    harness.run_preset_test(
        cls,
        "gpt1_tiny_books",
        FIRST,
        init_kwargs={"sequence_length": 64},
        expected_output_shape=shape,
    )
