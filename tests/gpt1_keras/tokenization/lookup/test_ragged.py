"""Ops on ragged tensors, against plain lists."""

import pytest
import tensorflow as tf

from gpt1_keras.tokenization.lookup.ragged import (
    concatenate,
    join_rows,
    row_indices,
    split_at_white_space,
)

LENGTHS = [[], [0], [3], [0, 0], [2, 0, 0, 3, 1, 0], [0, 1, 0, 100]]


@pytest.mark.parametrize("lengths", LENGTHS)
def test_row_indices(lengths):
    expected = [row for row, length in enumerate(lengths) for _ in range(length)]
    splits = tf.concat([[0], tf.cumsum(tf.constant(lengths, tf.int64))], 0)
    assert row_indices(splits).numpy().tolist() == expected


@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("numbers", [[], [[]], [[0], [], [0, 0]], [[3, 1, 1], [0, 2]]])
def test_join_rows(lengths, numbers):
    rows = [[f"{row}.{index}" for index in range(length)] for row, length in enumerate(lengths)]
    numbers = [[number for number in some if number < len(rows)] for some in numbers]
    got = join_rows(
        tf.ragged.constant(rows, tf.string, ragged_rank=1),
        tf.ragged.constant(numbers, tf.int32, ragged_rank=1),
    )
    expected = [[value.encode() for number in some for value in rows[number]] for some in numbers]
    assert got.to_list() == expected


def test_one_long_row_among_many():
    """A mask of rows by the longest row would take 100 GB."""
    splits = tf.concat([[0], 10**6 + tf.range(10**5)], 0)
    assert row_indices(splits)[-1].numpy() == 10**5 - 1


def test_concatenate():
    texts = tf.ragged.constant([[], ["a", "", "b"], [], ["é"], []], tf.string)
    assert concatenate(texts).numpy().tolist() == [b"", b"ab", b"", "é".encode(), b""]
    assert concatenate(texts[:0]).shape == [0]


@pytest.mark.parametrize("texts", [[], [""], ["", " a\tb ", "\n", "ü c\r"]])
def test_texts_split_at_white_space_as_python_splits_them(texts):
    split = split_at_white_space(tf.constant(texts, tf.string))
    assert split.to_list() == [text.encode().split() for text in texts]
