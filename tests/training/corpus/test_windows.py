"""Windows of a corpus: their content, their positions, and each worker's share."""

import subprocess
import sys

import numpy as np
import pytest
import scipy.stats

from tests.helpers.made_up_corpus import write_corpus
from training.corpus.corpus_format import Corpus, Split
from training.corpus.windows import SequentialWindows, Windows


def make_split(*lengths):
    """A split whose shard i holds 1000 i, 1000 i + 1, ..., so that a token tells where it lay."""
    shards = tuple(
        np.arange(length, dtype=np.uint16) + 1000 * i for i, length in enumerate(lengths)
    )
    return Split("train", shards)


def test_numpy_is_enough():
    program = (
        "import sys, training.corpus.corpus_format, training.corpus.windows; "
        "print([name for name in ('tensorflow', 'keras', 'jax') if name in sys.modules])"
    )
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert process.stdout.strip() == "[]", process.stderr


def test_a_corpus_gives_its_tokens_and_who_made_them(tmp_path):
    corpus = Corpus(write_corpus(tmp_path / "corpus", train=[[1, 2, 3], [4, 5]]))
    split = corpus.split("train")
    assert split.name == "train" and split.tokens == 5
    assert [shard.tolist() for shard in split.shards] == [[1, 2, 3], [4, 5]]
    assert all(isinstance(shard, np.memmap) for shard in split.shards)
    assert corpus.vocabulary_size == 9
    assert corpus.tokenizer_folder == tmp_path / "corpus" / "tokenizer"
    corpus.verify()


def test_the_fingerprint_tells_tokens_and_tokenizers_apart_and_no_more(tmp_path):
    def fingerprint(*shards, **changes):
        name = str(len(list(tmp_path.iterdir())))  # another folder each time
        return Corpus(write_corpus(tmp_path / name, changes=changes, train=shards)).fingerprint

    tokenizer = {"fingerprint": "f", "normalization": "bert", "vocabulary_size": 9}
    first = fingerprint([1, 2, 3], [4, 5])
    assert first == fingerprint([1, 2, 3], [4, 5])
    assert first == fingerprint([1, 2, 3], [4, 5], options={"input": "elsewhere"})
    others = {
        fingerprint([1, 2, 4], [4, 5]),
        fingerprint([4, 5], [1, 2, 3]),
        fingerprint([1, 2, 3, 4, 5]),
        fingerprint([1, 2, 3], [4, 5], tokenizer={**tokenizer, "fingerprint": "g"}),
    }
    assert len(others | {first}) == 5


def test_a_missing_or_odd_index_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="no index.json"):
        Corpus(tmp_path / "nowhere")
    index = tmp_path / "index.json"
    for content, message in [
        ("{", "index.json is not JSON"),
        ("[]", "has the format None; expected 1"),
        ('{"format": 2}', "has the format 2; expected 1"),
        ('{"format": 1}', "is not an index of a corpus: KeyError"),
        ('{"format": 1, "dtype": "uint16", "tokenizer": 3, "splits": {}}', "is not an index"),
    ]:
        index.write_text(content)
        with pytest.raises(ValueError, match=message):
            Corpus(tmp_path)
    write_corpus(tmp_path, changes={"dtype": "object"}, train=[[1, 2]])
    with pytest.raises(ValueError, match="index.*'object'"):
        Corpus(tmp_path)


def test_a_missing_or_odd_shard_is_refused(tmp_path):
    shard = write_corpus(tmp_path, train=[range(100)]) / "train-00000-of-00001.npy"
    content = shard.read_bytes()
    for changed in (content[:-1], content[:60], b""):
        shard.write_bytes(changed)
        with pytest.raises(ValueError, match="00001.npy.*100 tokens"):
            Corpus(tmp_path)
    shard.write_bytes(content + b"\0")
    with pytest.raises(ValueError, match="329 bytes.*328"):
        Corpus(tmp_path)
    np.save(shard, np.zeros(100, np.int64))
    with pytest.raises(ValueError, match=r"int64 of shape \(100,\)"):
        Corpus(tmp_path)
    shard.unlink()
    with pytest.raises(FileNotFoundError, match="00001.npy is missing"):
        Corpus(tmp_path)


def test_a_changed_shard_is_found_by_its_hash(tmp_path):
    write_corpus(tmp_path, train=[range(100), range(50)])
    np.save(tmp_path / "train-00001-of-00002.npy", np.arange(1, 51, dtype=np.uint16))
    corpus = Corpus(tmp_path)  # the size is right
    with pytest.raises(ValueError, match="train-00001-of-00002.npy.*SHA-256"):
        corpus.verify()


def test_a_missing_split_names_those_there_are(tmp_path):
    with pytest.raises(ValueError, match=r"'test'.*\['train'\]"):
        Corpus(write_corpus(tmp_path, train=[[1, 2]])).split("test")


def test_a_batch_is_a_pure_function_of_seed_and_step():
    split = make_split(500, 300)
    windows = Windows(split, length=8, batch_size=16, seed=5)
    first = windows.batch(3)
    assert first.shape == (16, 9) and first.dtype == np.int32
    windows.batch(4)
    np.testing.assert_array_equal(windows.batch(3), first)
    np.testing.assert_array_equal(Windows(split, 8, 16, seed=5).batch(3), first)
    assert not np.array_equal(windows.batch(2), first)
    assert not np.array_equal(Windows(split, 8, 16, seed=3).batch(5), first)


def test_places_stay_what_they_are():
    # Written down once: a resumed run must see the same batches under any version of numpy.
    windows = Windows(make_split(500, 300), length=8, batch_size=4, seed=5)
    assert windows.batch(3)[:, 0].tolist() == [10, 227, 218, 1142]


def test_workers_share_one_batch():
    windows = Windows(make_split(500, 300), length=8, batch_size=12)
    for workers in (1, 2, 3, 12):
        shares = [windows.batch(7, worker, workers) for worker in range(workers)]
        np.testing.assert_array_equal(np.concatenate(shares), windows.batch(7))


def test_windows_are_contiguous_and_within_a_shard():
    windows = Windows(make_split(40, 9, 8, 30), length=8, batch_size=1000)
    tokens = windows.batch(0)
    np.testing.assert_array_equal(np.diff(tokens), 1)
    np.testing.assert_array_equal(tokens[:, 0] // 1000, tokens[:, -1] // 1000)
    assert set(tokens[:, 0] // 1000) == {0, 1, 3}  # the third is too short


def test_every_place_is_equally_likely():
    windows = Windows(make_split(40, 9, 8, 30), length=8, batch_size=1000, seed=1)
    firsts = np.concatenate([windows.batch(step)[:, 0] for step in range(100)])
    places, counts = np.unique(firsts, return_counts=True)
    assert len(places) == 32 + 1 + 22
    assert scipy.stats.chisquare(counts).pvalue > 1e-3


def test_a_share_of_the_windows_repeats_a_passage():
    split = make_split(500, 300)
    plain = Windows(split, length=31, batch_size=2000, seed=2).batch(1)
    windows = Windows(split, length=31, batch_size=2000, seed=2, repeat_share=0.25)
    tokens = windows.batch(1)
    found = []
    for row, before in zip(tokens, plain):
        changed = np.flatnonzero(row != before)
        if len(changed):
            again, size = changed[0], len(changed)
            [start] = np.flatnonzero(before == row[again])
            np.testing.assert_array_equal(changed, np.arange(again, again + size))
            np.testing.assert_array_equal(row[changed], before[start : start + size])
            assert start + size <= again
            found.append((size, start, again))
    assert scipy.stats.binomtest(len(found), 2000, 0.25).pvalue > 1e-3
    sizes, starts, _ = zip(*found)
    assert set(sizes) == set(range(2, 17)), "from a sixteenth of 32 tokens to a half"
    assert scipy.stats.chisquare(np.bincount(sizes)[2:]).pvalue > 1e-3
    assert min(starts) == 0 and max(again + size for size, _, again in found) == 32
    shares = [windows.batch(1, worker, 4) for worker in range(4)]
    np.testing.assert_array_equal(np.concatenate(shares), tokens)


def test_even_the_smallest_window_can_repeat_a_passage():
    for length in (1, 2, 3):
        tokens = Windows(make_split(50), length, batch_size=64, repeat_share=1.0).batch(0)
        assert all(len(set(row)) < len(row) for row in tokens)


def test_impossible_windows_are_refused():
    split = make_split(40, 8)
    with pytest.raises(ValueError, match="41 tokens.*40"):
        Windows(split, length=40, batch_size=2)
    assert Windows(split, length=39, batch_size=2).batch(0).shape == (2, 40)
    with pytest.raises(ValueError, match="`seed`.*-1"):
        Windows(split, length=3, batch_size=2, seed=-1)
    windows = Windows(split, length=3, batch_size=4)
    with pytest.raises(ValueError, match="4 windows.*3 workers"):
        windows.batch(0, 0, 3)
    with pytest.raises(ValueError, match=r"`worker`.*\[0, 2\).*2"):
        windows.batch(0, 2, 2)


@pytest.mark.parametrize("lengths", [(23, 9, 1, 0, 16), (17,), (1,), ()])
@pytest.mark.parametrize("batch_size", [1, 3])
def test_validation_predicts_each_token_once(lengths, batch_size):
    split = make_split(*lengths)
    batches = list(SequentialWindows(split, 8, batch_size))
    assert len(batches) == len(SequentialWindows(split, 8, batch_size))
    predicted = []
    for tokens, weights in batches:
        assert tokens.shape == (batch_size, 9) and tokens.dtype == np.int32
        assert weights.shape == (batch_size, 8) and weights.dtype == np.float32
        assert set(np.unique(weights)) <= {0, 1}
        predicted += tokens[:, 1:][weights == 1].tolist()
        # What precedes a target is what precedes it in the shard.
        np.testing.assert_array_equal((tokens[:, 1:] - tokens[:, :-1])[weights == 1], 1)
    assert predicted == [token for shard in split.shards for token in shard[1:].tolist()]
