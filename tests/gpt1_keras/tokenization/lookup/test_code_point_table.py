"""The table over code points, against a plain array."""

import numpy as np
import pytest
import tensorflow as tf

from gpt1_keras.tokenization.lookup import (
    CODE_POINTS,
    CodePointTable,
    distinct_pages,
)

RANDOM = np.random.default_rng(0)
PAGE = 128
VALUES = {
    "constant": np.full(CODE_POINTS, -7),
    "every value different": np.arange(CODE_POINTS)[::-1],
    "whole range of int32": RANDOM.integers(-(2**31), 2**31, CODE_POINTS),
    "few pages": np.tile(RANDOM.integers(0, 3, (16, PAGE)), (CODE_POINTS // PAGE // 16, 1)).ravel(),
    "one other value": np.arange(CODE_POINTS) == 0x1F600,
}


@pytest.mark.parametrize("name", VALUES)
def test_gives_every_value(name):
    table = CodePointTable(VALUES[name])
    got = table(tf.range(CODE_POINTS))
    assert got.dtype == tf.int32
    np.testing.assert_array_equal(got, VALUES[name])


@pytest.mark.parametrize(
    "name, pages",
    [
        ("constant", 1),
        ("every value different", CODE_POINTS // PAGE),
        ("few pages", 16),
        ("one other value", 2),
    ],
)
def test_keeps_each_distinct_page_once(name, pages):
    kept, page_of = distinct_pages(VALUES[name])
    assert kept.shape == (pages, PAGE)
    assert page_of.shape == (CODE_POINTS // PAGE,)


@pytest.mark.parametrize("shape", [(), (0,), (5,), (3, 0), (2, 3, 4)])
def test_any_shape(shape):
    values = VALUES["whole range of int32"]
    code_points = RANDOM.integers(0, CODE_POINTS, shape, np.int32)
    table = CodePointTable(values)
    np.testing.assert_array_equal(table(tf.constant(code_points)), values[code_points])


@pytest.mark.parametrize("shape", [(CODE_POINTS - 1,), (CODE_POINTS, 1), (0,), ()])
def test_refuses_another_number_of_values(shape):
    with pytest.raises(ValueError, match=r"1114112 code points.*shape \("):
        CodePointTable(np.zeros(shape, np.int32))
