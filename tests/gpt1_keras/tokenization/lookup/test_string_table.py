"""The table of strings, against a dict."""

import random

import pytest
import tensorflow as tf

from gpt1_keras.tokenization.lookup import StringTable


def index_table(strings):
    """Finds the index of each string, or -1."""
    table = StringTable(strings, tf.range(len(strings)))

    def find(queries):
        index, is_known = table(queries)
        return tf.where(is_known, index, -1)

    return find


def random_strings(count):
    choose = random.Random(0)
    return list({"".join(choose.choices("abé漢\0 ", k=choose.randint(0, 9))) for _ in range(count)})


@pytest.mark.parametrize("size", [0, 1, 2, 20_000])
def test_finds_what_a_dict_finds(size):
    strings = random_strings(2 * size + 100)
    known, unknown = strings[:size], strings[size:]
    numbers = {string: number for number, string in enumerate(known)}
    queries = unknown + known + known[::-1]
    expected = [numbers.get(string, -1) for string in queries]
    assert index_table(known)(tf.constant(queries)).numpy().tolist() == expected


def test_values_are_strings():
    values, is_known = StringTable(["a", "b"], tf.constant(["one", "two"]))(tf.constant(["b", "c"]))
    assert values[0] == b"two"
    assert is_known.numpy().tolist() == [True, False]


def test_strings_of_the_same_hash_are_told_apart(monkeypatch):
    """All strings but those of the table: the hash alone would find them."""
    find = index_table(["word"])
    hashes = tf.strings.to_hash_bucket_fast(["word", "word"], 2**62)
    monkeypatch.setattr(tf.strings, "to_hash_bucket_fast", lambda strings, _: hashes)
    assert find(tf.constant(["word", "other"])).numpy().tolist() == [0, -1]


def test_strings_that_cannot_be_told_apart():
    with pytest.raises(ValueError, match="Two of the 2 strings of a table have the same hash"):
        index_table(["word", "word"])


def test_no_queries():
    for known in ([], ["a"]):
        assert index_table(known)(tf.zeros([0], tf.string)).shape == [0]


def test_in_a_graph_of_unknown_length():
    spec = tf.TensorSpec([None], tf.string)
    find = tf.function(index_table(["b", "", "a"]), input_signature=[spec])
    assert find(tf.constant(["a", "c", ""])).numpy().tolist() == [2, -1, 1]
