"""Lists of texts, without TensorFlow, give the same as TensorFlow's ops."""

import json
import random
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from tokenizers import normalizers

import gpt1_keras
from gpt1_keras.tokenization import list_backend, tensor_backend
from gpt1_keras.tokenization.input_transformations import HALVES, ROUND_ROBIN
from tests.helpers.random_unicode import random_texts

TESTS = __file__.rpartition("/tests/")[0] + "/tests"
TEXTS = ["A good film, isn't it?", "", "naïve CAFÉ – 東京 한국 😀", "word" * 40, " \n\t ", "ß…\0"]
INVALID = [b"fi\xfflm", b"\xe2\x82", b"a\xed\xa0\x80b \xc0\x80", b"\0a\0"]
MARKS = ["a\u08d4\u1b44", "a\u1b44\u08d4"]  # which Hugging Face normalizes to the same text


@pytest.fixture(scope="module")
def list_codec(original_tokenizer):
    token_texts = [token.replace("</w>", " ") for token in original_tokenizer.vocabulary.tokens]
    token_texts += ["<start> ", "<delimiter> ", "<extract> "]
    return list_backend.Codec(original_tokenizer.vocabulary, token_texts, "bert")


def test_encode(original_tokenizer, list_codec):
    chance = np.random.default_rng(0)
    for texts in (TEXTS, INVALID, MARKS, random_texts(chance, chance.integers(0, 41, 2000))):
        assert list_codec.encode(texts) == original_tokenizer(texts).to_list()


def test_choices_in_an_array():
    """Empty strings after an example's last choice are no choices; before it, they are."""
    rows = [["a", "", "b"], ["", "a", ""], ["", "", ""], ["a", "b", ""]]
    expected = [["a", "", "b"], ["", "a"], [], ["a", "b"]]
    for size in (3, 0):
        given = np.array(rows)[:, :size]
        assert list_backend.as_choices(given) == [row[:size] for row in expected]
        of_tensor = tensor_backend.as_choices(given).to_list()
        assert of_tensor == [[each.encode() for each in row[:size]] for row in expected]


def test_marks_stay_in_order():
    normalize = normalizers.BertNormalizer(lowercase=True).normalize_str
    assert normalize(MARKS[0]) == normalize(MARKS[1])
    normalized = [text.translate(list_backend._NormalizedCodePoints()) for text in MARKS]
    assert normalized == MARKS


def test_shapes(original_tokenizer, list_codec):
    one = list_codec.encode("some text")
    assert one.dtype == np.int32 and one.tolist() == [803, 4830]
    rows = [TEXTS[:3], TEXTS[3:]]
    for given in (rows, np.array(rows), np.array(rows, object)):
        assert list_codec.encode(given) == original_tokenizer(given).to_list()
    with pytest.raises(ValueError, match="depth"):
        list_codec.encode([["a"], "b"])


@pytest.mark.parametrize("ids", [[803, 4830], [[803, 4830], [], [40477, 803]], [[]], []])
def test_decode(original_tokenizer, list_codec, ids):
    assert list_codec.decode(ids, 0) == original_tokenizer.detokenize(ids)


def test_decode_arrays(original_tokenizer, list_codec):
    padded = np.array([[803, 0, 4830, 0, 0], [0, 0, 0, 0, 0], [803, 803, 803, 803, 4830]])
    for ids in (padded, padded[0]):
        assert list_codec.decode(ids, 0) == original_tokenizer.detokenize(ids)
    for id in (-1, 40481):
        with pytest.raises(ValueError, match=rf"\[0, 40481\).* {id}\."):
            list_codec.decode([803, id], 0)


@pytest.mark.parametrize(
    "x", [1, None, [1, 2], ["a", None], {"a": 1}, np.array([1.0]), np.array(["a", None], object)]
)
@pytest.mark.parametrize("backend", [list_backend, tensor_backend])
def test_what_is_not_strings(backend, x):
    with pytest.raises(ValueError, match="array of strings"):
        backend.as_texts(x)


def test_original_needs_tensorflow(original_tokenizer):
    codec = list_backend.Codec(original_tokenizer.vocabulary, [], "original")
    with pytest.raises(ImportError, match="'original' .*TensorFlow"):
        codec.encode(["a"])


def random_ids(chance, longest):
    return [chance.randrange(70) for _ in range(chance.randint(0, longest))]


def ragged(rows):
    return tf.ragged.constant(rows, tf.int32, ragged_rank=1)


def assert_same(lists, tensors):
    """Compares a dict or pair of arrays with those of tensors, dtypes included."""
    tf.nest.map_structure(np.testing.assert_array_equal, lists, tensors)
    for array, tensor in zip(tf.nest.flatten(lists), tf.nest.flatten(tensors)):
        assert array.dtype == tensor.numpy().dtype


@pytest.mark.parametrize("pad_to", ["sequence_length", "bucket", "longest"])
@pytest.mark.parametrize("sequence_length", [8, 9, 24, 100])
def test_frame_and_pad(tiny_tokenizer, sequence_length, pad_to):
    chance = random.Random(sequence_length)
    first, second = ([random_ids(chance, 70) for _ in range(30)] for _ in range(2))
    for segments, truncate, tail in (
        ([first], ROUND_ROBIN, 0.0),
        ([first], ROUND_ROBIN, 0.29),
        ([first, second], ROUND_ROBIN, 0.0),
        ([first, second], HALVES, 0.0),
        ([first, second], HALVES, 0.75),
    ):
        results = []
        for backend, given in (
            (list_backend, segments),
            (tensor_backend, [ragged(rows) for rows in segments]),
        ):
            framed, truncated = backend.frame(
                given, tiny_tokenizer, sequence_length, truncate, tail
            )
            padded = backend.pad(framed, tiny_tokenizer, sequence_length, pad_to)
            results.append((padded, truncated))
        assert_same(*results)


def test_both_orders(tiny_tokenizer):
    first, second = [[1, 2], []], [[3], [4, 5, 6]]
    expected = [[1, 2], [3], [], [4, 5, 6]]
    assert list_backend.interleave(first, second) == expected
    rows = tensor_backend.interleave(ragged(first), ragged(second))
    assert rows.to_list() == expected
    pairs = [
        backend.as_pairs(backend.pad(given, tiny_tokenizer, 4, "longest")["token_ids"])
        for backend, given in ((list_backend, expected), (tensor_backend, rows))
    ]
    np.testing.assert_array_equal(*pairs)
    assert pairs[0].tolist() == [[[1, 2, 0], [3, 0, 0]], [[0, 0, 0], [4, 5, 6]]]


@pytest.mark.parametrize("pad_to", ["sequence_length", "bucket", "longest"])
@pytest.mark.parametrize("sequence_length", [9, 24, 100])
@pytest.mark.parametrize("has_question", [True, False])
@pytest.mark.parametrize(
    ("truncate", "tail"), [(ROUND_ROBIN, 0.0), (HALVES, 0.0), (ROUND_ROBIN, 0.6)]
)
def test_choices(tiny_tokenizer, truncate, tail, sequence_length, has_question, pad_to):
    chance = random.Random(sequence_length)
    context, question = ([random_ids(chance, 70) for _ in range(20)] for _ in range(2))
    choices = [
        [random_ids(chance, 20) for _ in range(chance.randint(1, 4))] for _ in range(len(context))
    ]
    results = []
    for backend, given in (
        (list_backend, (context, question, choices)),
        (
            tensor_backend,
            (ragged(context), ragged(question), tf.ragged.constant(choices, tf.int32)),
        ),
    ):
        segments = given if has_question else given[::2]
        framed, truncated = backend.frame_choices(
            segments, tiny_tokenizer, sequence_length, truncate, tail
        )
        padded = backend.pad_choices(framed, tiny_tokenizer, sequence_length, pad_to)
        results.append((padded, truncated))
    assert_same(*results)


def test_batches_of_different_lengths(tiny_tokenizer):
    """No text of the longer batch is dropped."""
    with pytest.raises(ValueError, match="shorter"):
        list_backend.frame([[[1], [2]], [[3]]], tiny_tokenizer, 16)
    with pytest.raises(ValueError, match="shorter"):
        list_backend.frame_choices([[[1], [2]], [[3]], [[[4]], [[5]]]], tiny_tokenizer, 16)


PROGRAM = """
import json, sys
import numpy as np
import gpt1_keras

folder, texts = sys.argv[1], json.loads(sys.argv[2])
classifier = gpt1_keras.GPT1TextClassifier.from_preset(folder)
lm = gpt1_keras.GPT1CausalLM(classifier.backbone, gpt1_keras.GPT1CausalLMPreprocessor(
    classifier.preprocessor.tokenizer, 16))
lm.compile(sampler="greedy")
print(json.dumps([classifier.predict(texts, verbose=0).tolist(), lm.generate(texts, 12)]))
"""


@pytest.mark.slow
def test_predict_and_generate_without_tensorflow(tiny_backbone, tiny_tokenizer, tmp_path):
    """Strings in, in a process on JAX that cannot import TensorFlow."""
    pytest.importorskip("grain", reason="KerasHub's way to batch without TensorFlow")
    texts = ["A good film", "the staff were kind, and a dull one"]
    classifier = gpt1_keras.GPT1TextClassifier(
        tiny_backbone, 2, preprocessor=gpt1_keras.GPT1TextClassifierPreprocessor(tiny_tokenizer)
    )
    classifier.save_to_preset(tmp_path / "preset")
    (tmp_path / "program.py").write_text(PROGRAM)
    lm = gpt1_keras.GPT1CausalLM(
        tiny_backbone, gpt1_keras.GPT1CausalLMPreprocessor(tiny_tokenizer, 16)
    )
    lm.compile(sampler="greedy", run_eagerly=True)
    helper = f"{TESTS}/helpers/without_tensorflow.py"
    arguments = [str(tmp_path / "program.py"), str(tmp_path / "preset"), json.dumps(texts)]
    process = subprocess.run(
        [sys.executable, helper, *arguments], capture_output=True, text=True, timeout=300
    )
    assert process.returncode == 0, process.stderr
    logits, continued = json.loads(process.stdout.splitlines()[-1])
    np.testing.assert_allclose(logits, classifier.predict(texts, verbose=0), atol=1e-5)
    assert continued == lm.generate(texts, 12)
