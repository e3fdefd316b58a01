"""Merging many words at once, against merging one pair at a time."""

import random

import pytest
import tensorflow as tf

from gpt1_keras.tokenization.merges import Merger
from tests.helpers.textbook_merging import (
    base_symbols,
    make_vocabulary,
    merge_one_by_one,
    random_vocabulary,
)

pytestmark = pytest.mark.usefixtures("time_limit")


def merge_all(vocabulary, words):
    """What the merger makes of words, all given at once: a list of symbols for each."""
    symbols = [base_symbols(word) for word in words]
    flat = [vocabulary.token_to_id[symbol] for word in symbols for symbol in word]
    numbers = [number for number, word in enumerate(symbols) for _ in word]
    ids, numbers = Merger(vocabulary)(tf.constant(flat, tf.int32), tf.constant(numbers, tf.int32))
    merged = [[] for _ in words]
    for id, number in zip(ids.numpy(), numbers.numpy()):
        merged[number].append(vocabulary.tokens[id])
    return merged


def assert_merges_as_the_textbook(vocabulary, words):
    got = merge_all(vocabulary, words)
    for word, symbols in zip(words, got):
        expected = merge_one_by_one(base_symbols(word), vocabulary.merges)
        assert symbols == expected, (
            f"{word} with {[' '.join(merge) for merge in vocabulary.merges]}"
        )


@pytest.mark.slow
@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("letters", ["a", "ab", "abc"])
def test_random_vocabularies(letters, ordered):
    rng = random.Random(0)
    for _ in range(40):
        words = ["".join(rng.choices(letters, k=rng.randint(1, 14))) for _ in range(60)]
        words += [rng.choice(letters) * length for length in range(1, 20)]
        assert_merges_as_the_textbook(random_vocabulary(rng, letters, ordered), words)


@pytest.mark.parametrize(
    "merges",
    [
        ["a a"],
        ["a a", "a a</w>"],
        ["a a</w>", "a a"],
        ["a a", "aa a"],
        ["a a", "aa aa", "a a</w>", "aa aa</w>"],
        ["a a", "aa a", "aaa aaa", "a a</w>"],
    ],
)
def test_runs_of_one_letter(merges):
    vocabulary = make_vocabulary(merges)
    assert vocabulary.merges_are_ordered
    words = ["a" * length for length in [*range(1, 40), 100, 1001]]
    assert_merges_as_the_textbook(vocabulary, words)


def test_runs_inside_words():
    vocabulary = make_vocabulary(["a a", "b a", "aa b", "a b", "b b"])
    words = ["baaab", "aaab", "baaaa", "abaaaba", "aaabaaa", "bbaaabbaaaabb", "aabbaabb"]
    assert_merges_as_the_textbook(vocabulary, words)


def test_more_tokens_than_16_bits_number():
    letters = [chr(code) for code in range(0x4E00, 0x4E00 + 260)]
    pairs = [f"{left} {right}" for left in letters for right in letters]
    merges = [*pairs, f"{letters[-2] * 2} {letters[-1] * 2}"]
    vocabulary = make_vocabulary(merges, letters)
    assert len(vocabulary.tokens) > 2**16 and len(vocabulary.merges) > 2**16
    rng = random.Random(0)
    words = ["".join(rng.choices(letters, k=7)) for _ in range(9)]
    words += ["".join(rng.choices(letters[-2:], k=7)) for _ in range(9)]
    assert_merges_as_the_textbook(vocabulary, words)


def test_same_product_twice():
    vocabulary = make_vocabulary(["a b", "ab c", "abc d", "b c", "a bc", "d e"])
    assert not vocabulary.merges_are_ordered
    assert_merges_as_the_textbook(vocabulary, ["abcde", "abcd", "bcde", "abcabcd"])


@pytest.mark.parametrize(
    "merges",
    [
        ["abc d", "b c", "a bc", "d e"],
        ["ab c", "abc d", "b c", "a bc", "d e", "a b"],
    ],
)
def test_merge_that_makes_room_for_a_lower_rank(merges):
    """`a bc` makes the pair `abc d`, of a lower rank than both, which goes before `d e`."""
    vocabulary = make_vocabulary(merges)
    assert not vocabulary.merges_are_ordered
    assert merge_all(vocabulary, ["abcdee"]) == [["abcd", "e", "e</w>"]]


def test_first_of_two_equal_merges_counts():
    vocabulary = make_vocabulary(["a b", "b c", "b c", "a b"])
    assert merge_all(vocabulary, ["abcc"]) == [["ab", "c", "c</w>"]]


def test_unknown_symbols_stay():
    vocabulary = make_vocabulary(["a b", "a b</w>"])
    ids = [
        vocabulary.token_to_id[symbol] for symbol in ["<unk>", "<unk>", "a", "<unk>", "a", "b</w>"]
    ]
    symbols, words = Merger(vocabulary)(tf.constant(ids), tf.constant([0, 1, 1, 1, 1, 1]))
    assert [vocabulary.tokens[id] for id in symbols] == ["<unk>", "<unk>", "a", "<unk>", "ab</w>"]
    assert words.numpy().tolist() == [0, 1, 1, 1, 1]


@pytest.mark.parametrize("merges", [[], ["a b", "ab a</w>"]])
@pytest.mark.parametrize("words", [[], ["a"], ["ab", "a", "b", "aba"]])
def test_few_merges_and_few_words(merges, words):
    assert_merges_as_the_textbook(make_vocabulary(merges), words)


def test_in_a_graph_of_unknown_length():
    vocabulary = make_vocabulary(["a a", "aa a</w>"])
    spec = tf.TensorSpec([None], tf.int32)
    merge = tf.function(Merger(vocabulary), input_signature=[spec, spec])
    ids = [vocabulary.token_to_id[symbol] for symbol in ["a", "a", "a</w>", "a", "a</w>"]]
    symbols, words = merge(tf.constant(ids), tf.constant([0, 0, 0, 1, 1]))
    assert [vocabulary.tokens[id] for id in symbols] == ["aaa</w>", "a", "a</w>"]
    assert words.numpy().tolist() == [0, 1, 1]
    assert [part.shape for part in merge(*[tf.zeros([0], tf.int32)] * 2)] == [[0], [0]]


def test_merges_that_were_made_to_take_hours():
    """Each joins any number of a's with any number of b's: 100^4 / 4 pairs of symbols."""
    runs = range(1, 101)
    merges = [f"a {'a' * length}" for length in runs] + [f"{'b' * length} b" for length in runs]
    merges += [f"{'a' * left} {'b' * right}" for left in runs for right in runs]
    with pytest.raises(ValueError, match="more than 4194304 pairs of symbols, as no learned"):
        Merger(make_vocabulary(merges))
