"""The tables that the graph looks up, against an array, a dict and str.translate."""

import random

import numpy as np
import pytest
import tensorflow as tf

from gpt1_keras.tokenization.lookup import (
    ABSENT,
    CODE_POINTS,
    CodePointMap,
    CodePointTable,
    PairTable,
    StringTable,
    distinct_pages,
)

RANDOM = np.random.default_rng(0)
PAGE = 128
# From a name to values of all code points, and how many of their pages differ.
VALUES = {
    "constant": (np.full(CODE_POINTS, -7), 1),
    "every value different": (np.arange(CODE_POINTS)[::-1], CODE_POINTS // PAGE),
    "whole range of int32": (RANDOM.integers(-(2**31), 2**31, CODE_POINTS), CODE_POINTS // PAGE),
    "few pages": (
        np.tile(RANDOM.integers(0, 3, (16, PAGE)), (CODE_POINTS // PAGE // 16, 1)).ravel(),
        16,
    ),
    "one other value": (np.arange(CODE_POINTS) == 0x1F600, 2),
}


@pytest.mark.parametrize(("values", "pages"), VALUES.values(), ids=VALUES)
def test_code_points(values, pages):
    got = CodePointTable(values)(tf.range(CODE_POINTS))
    assert got.dtype == tf.int32
    np.testing.assert_array_equal(got, values)
    kept, page_of = distinct_pages(values)
    assert kept.shape == (pages, PAGE)
    assert page_of.shape == (CODE_POINTS // PAGE,)


@pytest.mark.parametrize("shape", [(), (0,), (5,), (3, 0), (2, 3, 4)])
def test_code_points_of_any_shape(shape):
    values, _ = VALUES["whole range of int32"]
    code_points = RANDOM.integers(0, CODE_POINTS, shape, np.int32)
    table = CodePointTable(values)
    np.testing.assert_array_equal(table(tf.constant(code_points)), values[code_points])


@pytest.mark.parametrize("shape", [(CODE_POINTS - 1,), (CODE_POINTS, 1), (0,), ()])
def test_another_number_of_values(shape):
    with pytest.raises(ValueError, match=r"shape \("):
        CodePointTable(np.zeros(shape, np.int32))


REPLACEMENTS = {"a": "", "b": "bb", "漢": "x", "\U0010ffff": "long text"}


@pytest.mark.parametrize("texts", [["", "a", "abc", "漢b漢", "aa", "\U0010ffff\U0010fffe"], []])
def test_code_points_are_replaced_as_by_translate(texts):
    codes = tf.strings.unicode_decode(tf.constant(texts, tf.string), "UTF-8")
    replaced = tf.strings.unicode_encode(CodePointMap.from_mapping(REPLACEMENTS)(codes), "UTF-8")
    expected = [text.translate(str.maketrans(REPLACEMENTS)) for text in texts]
    assert [text.decode() for text in replaced.numpy()] == expected


LARGEST_ID = 2**31 - 1
LIMITED = pytest.mark.usefixtures("time_limit")  # a table of pairs is searched for until one fits


def random_pairs(size, limit, seed=0, absent=ABSENT):
    """A dict from distinct random pairs of ids up to `limit` to random values below `absent`."""
    random = np.random.default_rng(seed)
    pairs = {}
    while len(pairs) < size:
        left, right = random.integers(0, limit, 2, endpoint=True).tolist()
        pairs[left, right] = int(random.integers(0, absent))
    return pairs


def make_table(pairs, dtype=np.int32):
    left, right = np.array(list(pairs), np.int64).reshape(-1, 2).T
    return PairTable(left, right, list(pairs.values()), dtype)


def assert_finds(table, pairs, queries, absent=ABSENT):
    left, right = np.array(queries, np.int32).reshape(-1, 2).T
    expected = [pairs.get(query, int(absent)) for query in queries]
    assert table(tf.constant(left), tf.constant(right)).numpy().tolist() == expected


@LIMITED
@pytest.mark.parametrize("limit", [300, 50_000, LARGEST_ID])
@pytest.mark.parametrize("size", [0, 1, 2, 50_000])
def test_pairs(size, limit):
    pairs = random_pairs(size, limit)
    queries = list(pairs)
    queries += [(right, left) for left, right in pairs]
    queries += [(left, (right + 1) % limit) for left, right in pairs]
    queries += list(random_pairs(1000, limit, seed=1))
    queries += [(0, 0), (0, limit), (limit, 0), (limit, limit)]
    table = make_table(pairs)
    assert_finds(table, pairs, queries)
    assert_finds(table, pairs, [])


@LIMITED
def test_all_pairs_of_few_ids():
    """Many pairs with the same left or the same right symbol."""
    pairs = {(left, right): left * 200 + right for left in range(200) for right in range(200)}
    assert_finds(make_table(pairs), pairs, [*pairs, (200, 0), (0, 200)])


@LIMITED
@pytest.mark.parametrize("step", [1, 2, 16, 65_536])
def test_pairs_of_equal_symbols(step):
    """Such as those of `a a`, `aa aa`, `aaaa aaaa`, whose ids have much in common."""
    for size in [3, 4, 12, 51, 102, 1001]:
        pairs = {(number * step, number * step): number for number in range(size)}
        assert_finds(make_table(pairs), pairs, [*pairs, (step, 0), (0, step)])


def test_smallest_and_largest_values_of_pairs():
    pairs = {(1, 2): 0, (2, 1): int(ABSENT) - 1, (3, 3): -5}
    assert_finds(make_table(pairs), pairs, [(1, 2), (2, 1), (3, 3), (1, 1)])


@LIMITED
@pytest.mark.parametrize("size", [0, 1, 50_000])
def test_pairs_in_16_bits(size):
    """Among the queries are symbols that have more bits, and the same lower ones."""
    limit, absent = 2**16 - 2, 2**16 - 1
    pairs = random_pairs(size, limit, absent=absent)
    queries = [*pairs, *((left + 2**16, right) for left, right in pairs), *random_pairs(99, limit)]
    queries += [(0, 0), (limit, limit), (absent, absent), (-1, -1)]
    assert_finds(make_table(pairs, np.uint16), pairs, queries, absent)


def test_pairs_in_a_graph_of_unknown_length():
    pairs = random_pairs(100, LARGEST_ID)
    spec = tf.TensorSpec([None], tf.int32)
    table = tf.function(make_table(pairs), input_signature=[spec, spec])
    assert_finds(table, pairs, [*pairs, (5, 5)])
    assert_finds(table, pairs, [])


def index_table(strings):
    """Finds the index of each string, or -1."""
    table = StringTable(strings, tf.range(len(strings)))

    def find(queries):
        index, is_known = table(queries)
        return tf.where(is_known, index, -1)

    return find


@pytest.mark.parametrize("size", [0, 1, 2, 20_000])
def test_strings(size):
    choose, count = random.Random(0), 2 * size + 100
    strings = {"".join(choose.choices("abé漢\0 ", k=choose.randint(0, 9))) for _ in range(count)}
    known, unknown = list(strings)[:size], list(strings)[size:]
    numbers = {string: number for number, string in enumerate(known)}
    queries = unknown + known + known[::-1]
    expected = [numbers.get(string, -1) for string in queries]
    find = index_table(known)
    assert find(tf.constant(queries)).numpy().tolist() == expected
    assert find(tf.zeros([0], tf.string)).shape == [0]


def test_values_are_strings():
    values, is_known = StringTable(["a", "b"], tf.constant(["one", "two"]))(tf.constant(["b", "c"]))
    assert values[0] == b"two"
    assert is_known.numpy().tolist() == [True, False]


def test_strings_of_the_same_hash(monkeypatch):
    """All strings but those of the table are told apart: the hash alone would find them."""
    find = index_table(["word"])
    hashes = tf.strings.to_hash_bucket_fast(["word", "word"], 2**62)
    with pytest.raises(ValueError, match="same hash"):
        index_table(["word", "word"])
    monkeypatch.setattr(tf.strings, "to_hash_bucket_fast", lambda strings, _: hashes)
    assert find(tf.constant(["word", "other"])).numpy().tolist() == [0, -1]


def test_strings_in_a_graph_of_unknown_length():
    spec = tf.TensorSpec([None], tf.string)
    find = tf.function(index_table(["b", "", "a"]), input_signature=[spec])
    assert find(tf.constant(["a", "c", ""])).numpy().tolist() == [2, -1, 1]
