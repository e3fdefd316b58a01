"""Sequences on a device are those of the server, for texts of any lengths."""

import random

import numpy as np
import pytest
import tensorflow as tf

from gpt1_keras.tokenization import list_backend
from serving.tflite.device_framing import Framer

LONG_TEXTS = pytest.mark.parametrize(
    "choice", [("round_robin", 0.0), ("halves", 0.0), ("round_robin", 0.4), ("halves", 0.75)]
)


def random_texts(chance, longest, count):
    return [[chance.randrange(70) for _ in range(chance.randint(0, longest))] for _ in range(count)]


def as_tokens(texts):
    """Ids as `ByteTokenizer` returns them: of all texts, the first of each, and how many."""
    lengths = [len(text) for text in texts]
    starts = np.cumsum([0, *lengths[:-1]])
    ids = tf.constant([id for text in texts for id in text] + [0], tf.int32)
    return ids, tf.constant(starts, tf.int32), tf.constant(lengths, tf.int32)


@LONG_TEXTS
@pytest.mark.parametrize("length", [9, 16])
def test_pairs(tiny_tokenizer, length, choice):
    chance, framer = random.Random(length), Framer(tiny_tokenizer, length, *choice)
    were_cut = set()
    for _ in range(60):
        texts = random_texts(chance, length, 2)
        [expected], [is_cut] = list_backend.frame(
            [[text] for text in texts], tiny_tokenizer, length, *choice
        )
        ids, num_tokens, truncated = framer.frame(as_tokens(texts), (0, 1))
        assert ids[:num_tokens].numpy().tolist() == expected
        assert bool(truncated) == is_cut
        were_cut.add(bool(truncated))
    assert were_cut == {True, False}


@pytest.mark.parametrize("tail", [0.0, 0.4])
def test_windows(tiny_tokenizer, tail):
    framer, windows = Framer(tiny_tokenizer, 9, "halves", tail), 3
    for length in range(40):
        text = [*range(length)]
        [expected], [is_cut] = list_backend.frame_windows([text], tiny_tokenizer, 9, tail, windows)
        ids, window_tokens, truncated = framer.frame_windows(as_tokens([text]), windows)
        found = [row[:count].tolist() for row, count in zip(ids.numpy(), window_tokens.numpy())]
        assert found == expected + [[]] * (windows - len(expected))
        assert bool(truncated) == is_cut


@LONG_TEXTS
def test_choices(tiny_tokenizer, choice):
    """The longest sequence of prefix and branches is as long as is stated."""
    length, chance = 12, random.Random(0)
    framer = Framer(tiny_tokenizer, length, *choice)
    is_present, longest = tf.constant([True] * 3), 0
    cases = [random_texts(chance, length, 5) for _ in range(60)]
    cases += [[[5] * prefix, [], *[[6] * 20] * 3] for prefix in range(20)]
    for context, question, *choices in cases:
        expected, [is_cut] = list_backend.frame_choices(
            [[context], [question], [choices]], tiny_tokenizer, length, *choice
        )
        tokens = as_tokens([context, question, *choices])
        inputs, num_tokens, truncated = framer.frame_choices(tokens, is_present)
        for name, [values] in expected.items():
            assert inputs[name][:num_tokens].numpy().tolist() == values
        assert bool(truncated) == is_cut
        longest = max(longest, len(expected["token_ids"][0]))
    assert longest == framer.length_with_branches(3)
