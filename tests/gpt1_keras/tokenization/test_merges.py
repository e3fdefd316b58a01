"""Merging many words at once, and words that are looked up, against merging one pair at a time."""

import itertools
import random

import pytest
import tensorflow as tf

from gpt1_keras.tokenization.encoder import WordTable
from gpt1_keras.tokenization.merges import Merger
from gpt1_keras.tokenization.vocabulary import END_OF_WORD, Vocabulary

pytestmark = pytest.mark.usefixtures("time_limit")


def make_vocabulary(merges, letters="abcde"):
    tokens = ["<unk>", *letters, *(letter + END_OF_WORD for letter in letters)]
    tokens += [merge.replace(" ", "") for merge in merges]
    return Vocabulary({token: id for id, token in enumerate(dict.fromkeys(tokens))}, merges)


def base_symbols(word):
    return [*word[:-1], word[-1] + END_OF_WORD]


def merge_one_by_one(symbols, merges):
    """Merges as textbooks do: joins the leftmost pair of the lowest rank until none is left."""
    ranks = {}
    for rank, merge in enumerate(merges):
        ranks.setdefault(merge, rank)
    symbols = list(symbols)
    while True:
        found = [
            (ranks[pair], index)
            for index, pair in enumerate(zip(symbols, symbols[1:]))
            if pair in ranks
        ]
        if not found:
            return symbols
        index = min(found)[1]
        symbols[index : index + 2] = ["".join(symbols[index : index + 2])]


def random_merges(rng, letters):
    """Makes random merges, each of characters or of products of earlier merges."""
    inner, final = list(letters), [letter + END_OF_WORD for letter in letters]
    merges = []
    for _ in range(rng.randint(2, 20)):
        left, right = rng.choice(inner), rng.choice(inner + final)
        merge, product = f"{left} {right}", left + right
        if merge in merges or len(product.removesuffix(END_OF_WORD)) > 8:
            continue
        merges.append(merge)
        if product not in inner + final:
            (final if product.endswith(END_OF_WORD) else inner).append(product)
    return merges


def random_vocabulary(rng, letters, ordered):
    """Makes a random vocabulary; its merges are in order, or not."""
    while True:
        merges = random_merges(rng, letters)
        if not ordered and rng.random() < 0.3:
            rng.shuffle(merges)
        vocabulary = make_vocabulary(merges)
        if vocabulary.merges_are_ordered is ordered:
            return vocabulary


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


@pytest.mark.parametrize(
    ("merges", "expected"),
    [
        # `a bc` makes the pair `abc d`, of a lower rank than both, which goes before `d e`.
        (["abc d", "b c", "a bc", "d e"], ["abcd", "e", "e</w>"]),
        (["ab c", "abc d", "b c", "a bc", "d e", "a b"], ["abcd", "e", "e</w>"]),
        # The same product twice.
        (["a b", "ab c", "abc d", "b c", "a bc", "d e"], ["abcd", "e", "e</w>"]),
    ],
)
def test_merges_out_of_order(merges, expected):
    vocabulary = make_vocabulary(merges)
    assert not vocabulary.merges_are_ordered
    assert merge_all(vocabulary, ["abcdee"]) == [expected]
    assert_merges_as_the_textbook(vocabulary, ["abcdee", "abcde", "abcd", "bcde", "abcabcd"])


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
    with pytest.raises(ValueError, match="4194304 pairs"):
        Merger(make_vocabulary(merges))


# Words that are looked up whole


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
def test_words_of_random_vocabularies(letters, longest):
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


def test_no_words_to_look_up():
    assert look_up(make_vocabulary(["a b"]), []) == {}


def test_words_beyond_ascii():
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
