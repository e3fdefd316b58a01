"""Windows of pairs: what the second text is, as the word after `<extract>` says."""

import collections
import json

import numpy as np
import pytest

from tests.helpers.made_up_corpus import write_corpus
from training.corpus.corpus_format import Corpus
from training.corpus.pairs import WORDS, Pairs
from training.corpus.windows import Windows
from training.runs.pretrain_options import PretrainOptions

LENGTH = 256
TOKENS = ["<unk>", "be", *(f"{word}</w>" for word in (*WORDS, *map(str, range(500))))]
START, DELIMITER, EXTRACT = len(TOKENS) + np.arange(3)


def make_corpus(folder, tokens=TOKENS):
    """Of words that count from 0 to 499, again and again."""
    (folder / "tokenizer").mkdir()
    vocabulary = {token: index for index, token in enumerate(tokens)}
    (folder / "tokenizer" / "vocabulary.json").write_text(json.dumps(vocabulary))
    return Corpus(write_corpus(folder, len(tokens) + 3, train=[9 + np.arange(40_000) % 500]))


@pytest.fixture
def windows(tmp_path):
    corpus = make_corpus(tmp_path)
    return Windows(corpus.split("train"), LENGTH, 64, pair_share=1.0, pairs=Pairs(corpus))


def pairs_of(window):
    """Yields the first text, the second and the word of each whole pair."""
    for pair in np.split(window, np.flatnonzero(window == START))[1:-1]:
        delimiter, extract = (int(np.flatnonzero(pair == i)[0]) for i in (DELIMITER, EXTRACT))
        assert extract == len(pair) - 2
        yield (
            pair[1:delimiter].tolist(),
            pair[delimiter + 1 : extract].tolist(),
            TOKENS[pair[-1]].removesuffix("</w>"),
        )


def test_the_word_says_what_the_second_text_is(windows):
    common, found = collections.defaultdict(list), collections.Counter()
    for window in np.concatenate([windows.batch(step) for step in range(4)]):
        for first, second, word in pairs_of(window):
            found[word] += 1
            assert second
            common[word].append(np.mean(np.isin(second, first)))
            if word == "same":
                assert second == first
            elif word == "part":
                start = first.index(second[0])
                assert second == first[start : start + len(second)] != first
            elif word == "next":
                assert second[0] == 9 + (first[-1] - 9 + 1) % 500
    assert set(found) == set(WORDS)
    means = [np.mean(common[word]) for word in ("same", "most", "some", "few", "other")]
    assert means == sorted(means, reverse=True)
    assert means[0] == np.mean(common["part"]) == 1
    assert means[-1] < 0.3


def test_a_window_is_a_function_of_seed_step_and_row(windows):
    whole = windows.batch(3)
    shares = [windows.batch(3, worker, 4) for worker in range(4)]
    np.testing.assert_array_equal(np.concatenate(shares), whole)
    assert whole.shape == (64, LENGTH + 1)
    assert not np.array_equal(windows.batch(4), whole)


def test_other_windows_stay_as_they_are(tmp_path):
    corpus = make_corpus(tmp_path)
    plain = Windows(corpus.split("train"), LENGTH, 64).batch(0)
    mixed = Windows(corpus.split("train"), LENGTH, 64, pair_share=0.25, pairs=Pairs(corpus))
    is_changed = (mixed.batch(0) != plain).any(axis=1)
    assert 8 <= is_changed.sum() <= 24
    np.testing.assert_array_equal(mixed.batch(0)[~is_changed], plain[~is_changed])


def test_words_that_the_tokenizer_lacks(tmp_path):
    with pytest.raises(ValueError, match=r"lacks same, other\.$"):
        Pairs(make_corpus(tmp_path, [t for t in TOKENS if t not in ("same</w>", "other</w>")]))


def test_shares_whose_sum_is_one(windows):
    """Though 1 - 0.9 is less than 0.1 to the computer."""
    shares = {"repeat_share": 0.9, "pair_share": 0.1}
    assert Windows(windows.split, LENGTH, 64, **shares, pairs=windows._pairs).batch(0).any()
    assert PretrainOptions("gpt1_micro", steps=1, **shares).pair_share == 0.1
    with pytest.raises(ValueError, match="pair_share.*repeat_share=0.1"):
        PretrainOptions("gpt1_micro", steps=1, repeat_share=0.9, pair_share=0.101)
