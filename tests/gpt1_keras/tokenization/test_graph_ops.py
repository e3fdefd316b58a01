"""Ops on ragged tensors, against plain lists."""

import pytest
import tensorflow as tf

from gpt1_keras.tokenization.graph_ops import (
    concatenate,
    from_row_indices,
    gather_rows,
    join_rows,
    put_rows,
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


@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("dtype", [tf.int32, tf.int64])
def test_from_row_indices(lengths, dtype):
    rows = [row for row, length in enumerate(lengths) for _ in range(length)]
    ragged = from_row_indices(
        tf.range(len(rows)), tf.constant(rows, dtype), tf.constant(len(lengths), dtype)
    )
    assert ragged.row_lengths().numpy().tolist() == lengths
    assert ragged.values.numpy().tolist() == list(range(len(rows)))


@pytest.mark.parametrize("indices", [[], [1], [3, 0, 0, 2]])
def test_gather_rows(indices):
    rows = [["a"], [], ["b", "c"], ["d", "e", "f"]]
    got = gather_rows(tf.ragged.constant(rows), tf.constant(indices, tf.int64))
    assert got.to_list() == [[value.encode() for value in rows[index]] for index in indices]


@pytest.mark.parametrize("others", [{}, {0: [9]}, {1: [], 3: [7, 8, 9], 2: [6]}])
def test_put_rows(others):
    rows = [[1], [2, 3], [], [4]]
    got = put_rows(
        tf.ragged.constant(rows),
        tf.constant([[index] for index in others], tf.int64, shape=[len(others), 1]),
        tf.ragged.constant(list(others.values()), tf.int32, ragged_rank=1),
    )
    assert got.to_list() == [others.get(index, row) for index, row in enumerate(rows)]


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
