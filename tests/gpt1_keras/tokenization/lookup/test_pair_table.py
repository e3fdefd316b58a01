"""The hash table of pairs, against a dict."""

import numpy as np
import pytest
import tensorflow as tf

from gpt1_keras.tokenization.lookup import ABSENT, PairTable

LARGEST_ID = 2**31 - 1
pytestmark = pytest.mark.usefixtures("time_limit")  # a table is searched for until one fits


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


@pytest.mark.parametrize("limit", [300, 50_000, LARGEST_ID])
@pytest.mark.parametrize("size", [0, 1, 2, 50_000])
def test_finds_what_a_dict_finds(size, limit):
    pairs = random_pairs(size, limit)
    queries = list(pairs)
    queries += [(right, left) for left, right in pairs]
    queries += [(left, (right + 1) % limit) for left, right in pairs]
    queries += list(random_pairs(1000, limit, seed=1))
    queries += [(0, 0), (0, limit), (limit, 0), (limit, limit)]
    assert_finds(make_table(pairs), pairs, queries)


def test_all_pairs_of_few_ids():
    """Many pairs with the same left or the same right symbol."""
    pairs = {(left, right): left * 200 + right for left in range(200) for right in range(200)}
    assert_finds(make_table(pairs), pairs, [*pairs, (200, 0), (0, 200)])


@pytest.mark.parametrize("step", [1, 2, 16, 65_536])
def test_pairs_of_equal_symbols(step):
    """Such as those of `a a`, `aa aa`, `aaaa aaaa`, whose ids have much in common."""
    for size in [3, 4, 12, 51, 102, 1001]:
        pairs = {(number * step, number * step): number for number in range(size)}
        assert_finds(make_table(pairs), pairs, [*pairs, (step, 0), (0, step)])


def test_smallest_and_largest_values():
    pairs = {(1, 2): 0, (2, 1): int(ABSENT) - 1, (3, 3): -5}
    assert_finds(make_table(pairs), pairs, [(1, 2), (2, 1), (3, 3), (1, 1)])


@pytest.mark.parametrize("size", [0, 1, 50_000])
def test_in_16_bits(size):
    """Among the queries are symbols that have more bits, and the same lower ones."""
    limit, absent = 2**16 - 2, 2**16 - 1
    pairs = random_pairs(size, limit, absent=absent)
    queries = [*pairs, *((left + 2**16, right) for left, right in pairs), *random_pairs(99, limit)]
    queries += [(0, 0), (limit, limit), (absent, absent), (-1, -1)]
    assert_finds(make_table(pairs, np.uint16), pairs, queries, absent)


@pytest.mark.parametrize("size", [0, 3])
def test_no_queries(size):
    assert_finds(make_table(random_pairs(size, 9)), {}, [])


def test_in_a_graph_of_unknown_length():
    pairs = random_pairs(100, LARGEST_ID)
    spec = tf.TensorSpec([None], tf.int32)
    table = tf.function(make_table(pairs), input_signature=[spec, spec])
    assert_finds(table, pairs, [*pairs, (5, 5)])
    assert_finds(table, pairs, [])
