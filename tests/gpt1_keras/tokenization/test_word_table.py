"""Words that are looked up whole, against merging one pair at a time."""

import itertools
import random

import pytest
import tensorflow as tf

from gpt1_keras.tokenization.merges import Merger
from gpt1_keras.tokenization.word_table import WordTable
from tests.helpers.textbook_merging import (
    base_symbols,
    make_vocabulary,
    merge_one_by_one,
    random_vocabulary,
)

pytestmark = pytest.mark.usefixtures("time_limit")


def look_up(vocabulary, words):
    """The tokens of those words that are found, by word."""
    table = WordTable(vocabulary, Merger(vocabulary))
    ids, is_token = (each.numpy() for each in table.find_one(tf.constant(words, tf.string)))
    rows = {word: [id] for word, id, found in zip(words, ids, is_token) if found}
    others = [word for word in words if word not in rows]
    found, pairs = table.find_two(tf.constant(others, tf.string))
    assert found.shape[0] == len(set(found.numpy().tolist()))
    rows |= {others[index]: pair for index, pair in zip(found.numpy(), pairs.numpy().tolist())}
    return {word: [vocabulary.tokens[id] for id in ids] for word, ids in rows.items()}


def assert_finds_what_merging_makes(vocabulary, words):
    expected = {word: merge_one_by_one(base_symbols(word), vocabulary.merges) for word in words}
    got = look_up(vocabulary, words)
    merges = [" ".join(merge) for merge in vocabulary.merges]
    for word, tokens in got.items():
        assert tokens == expected[word], f"{word} with {merges}"
    missed = [word for word, tokens in expected.items() if len(tokens) <= 2 and word not in got]
    assert not missed, merges


def all_words(letters, longest):
    for length in range(1, longest + 1):
        yield from map("".join, itertools.product(letters, repeat=length))


@pytest.mark.parametrize(("letters", "longest"), [("a", 20), ("ab", 9), ("abc", 6)])
def test_random_vocabularies(letters, longest):
    rng = random.Random(0)
    words = list(all_words(letters, longest))
    tried = 0
    while tried < 40:
        vocabulary = random_vocabulary(rng, letters, ordered=True)
        if vocabulary.merges_are_unique:
            tried += 1
            assert_finds_what_merging_makes(vocabulary, words)


@pytest.mark.parametrize(
    "merges",
    [
        ["a a", "aa a"],  # `aaa` could be made in two ways, but one merge makes it
        ["a b", "b c", "a bc"],  # `abc` is never made
        ["b c", "a b", "ab c</w>"],
        ["a a", "aa aa", "aa a</w>", "a a</w>"],
    ],
)
def test_merges_that_cross(merges):
    assert_finds_what_merging_makes(make_vocabulary(merges), list(all_words("abc", 6)))


@pytest.mark.parametrize(
    "merges", [["ab c", "a b"], ["a b", "ab c", "b c", "a bc"], ["a b", "a b"]]
)
def test_where_ranks_do_not_tell_what_is_made_only_tokens_are_found(merges):
    vocabulary = make_vocabulary(merges)
    words = list(all_words("abc", 5))
    for word, tokens in look_up(vocabulary, words).items():
        assert tokens == merge_one_by_one(base_symbols(word), vocabulary.merges)
        assert len(tokens) == 1


def test_no_words():
    assert look_up(make_vocabulary(["a b"]), []) == {}


def test_characters_beyond_ascii():
    """No word is cut between the bytes of a character."""
    vocabulary = make_vocabulary(["é a</w>", "漢 é"], letters="aé漢")
    words = ["éa", "漢é", "漢éa", "aé", "é", "a漢éa", "😀a", "é😀"]
    found = look_up(vocabulary, words)
    assert found == {
        "éa": ["éa</w>"],
        "漢é": ["漢", "é</w>"],
        "漢éa": ["漢", "éa</w>"],
        "aé": ["a", "é</w>"],
        "é": ["é</w>"],
    }


def test_a_word_of_a_million_letters():
    """All its parts would take a terabyte."""
    words = ["a" * 10**6, "ab", "aab", "aabb", "aabab"]
    found = look_up(make_vocabulary(["a b</w>", "a a"]), words)
    assert found == {"ab": ["ab</w>"], "aab": ["a", "ab</w>"]}
