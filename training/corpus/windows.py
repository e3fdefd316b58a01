"""Windows of tokens from a pre-training corpus, in numpy alone.

Neither TensorFlow nor Keras is imported here, so that a machine with another backend can train too.
`training.corpus` writes what is read here: a folder of `index.json`, the shards that it lists
(`.npy`, one row of token ids each) and the tokenizer that made them.
"""

import dataclasses
import hashlib
import json
import pathlib

import numpy as np

INDEX_FILE = "index.json"
TOKENIZER_FOLDER = "tokenizer"
FORMAT = 1
_DTYPES = ("uint16", "uint32")


@dataclasses.dataclass(frozen=True)
class Split:
    """A split of a corpus.

    Attributes:
        name: str, such as `"train"`.
        shards: tuple of memory-mapped uint16 or uint32 arrays `[tokens]`.
    """

    name: str
    shards: tuple[np.ndarray, ...]

    @property
    def tokens(self):
        """The number of tokens in all shards, int."""
        return sum(len(shard) for shard in self.shards)


class Corpus:
    """A folder that `training.corpus` has written.

    Args:
        folder: path.

    Attributes:
        folder: `pathlib.Path`.
        index: dict, the content of `index.json`.
        vocabulary_size: int, the number of ids, special tokens included.
        fingerprint: str, 16 hexadecimal digits that change if and only if the tokens, their order
            or the tokenizer changes.
        splits: dict from name to `Split`.

    Raises:
        FileNotFoundError: there is no index, or a shard is missing.
        ValueError: the index is damaged or of another format, or a shard does not fit it.
    """

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.index = _read_index(self.folder)
        try:
            dtype = self.index["dtype"]
            self.vocabulary_size = self.index["tokenizer"]["vocabulary_size"]
            self.fingerprint = _fingerprint(self.index)
            if dtype not in _DTYPES or type(self.vocabulary_size) is not int:
                raise TypeError(f"dtype {dtype!r}, vocabulary size {self.vocabulary_size!r}")
            self.splits = {
                name: Split(name, tuple(self._open(shard, dtype) for shard in split["shards"]))
                for name, split in self.index["splits"].items()
            }
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(
                f"{self.folder / INDEX_FILE} is not an index of a corpus: {error!r}."
            ) from None

    @property
    def tokenizer_folder(self):
        """The path of the tokenizer that made the corpus; see `gpt1_keras.presets.tokenizers`."""
        return self.folder / TOKENIZER_FOLDER

    def split(self, name):
        """The `Split` of that name. Raises ValueError, naming those there are."""
        if name not in self.splits:
            raise ValueError(
                f"The corpus {self.folder} has no split {name!r}; it has {sorted(self.splits)}."
            )
        return self.splits[name]

    def verify(self):
        """Reads every shard. Raises ValueError for one whose content is not what was written."""
        for split in self.index["splits"].values():
            for shard in split["shards"]:
                path = self.folder / shard["file"]
                with open(path, "rb") as file:
                    digest = hashlib.file_digest(file, "sha256").hexdigest()
                if digest != shard["sha256"]:
                    raise ValueError(
                        f"The shard {path} has changed: its SHA-256 is {digest}, and the index "
                        f"has {shard['sha256']}."
                    )

    def _open(self, shard, dtype):
        """Maps a shard into memory, once its size is what the index says."""
        path, tokens = self.folder / shard["file"], shard["tokens"]
        if not path.is_file():
            raise FileNotFoundError(f"The shard {path} is missing, though the index lists it.")
        expected = f"{tokens} tokens of {dtype}"
        try:
            array = np.load(path, mmap_mode="r", allow_pickle=False)
        except (ValueError, EOFError) as error:
            raise ValueError(
                f"The shard {path} is damaged or cut short ({error}); the index has {expected}."
            ) from None
        if array.shape != (tokens,) or array.dtype != dtype:
            raise ValueError(
                f"The shard {path} holds {array.dtype} of shape {array.shape}; the index has "
                f"{expected}."
            )
        size = array.offset + array.nbytes
        if path.stat().st_size != size:
            raise ValueError(
                f"The shard {path} has {path.stat().st_size} bytes; {expected} take {size}."
            )
        return array


class Windows:
    """Contiguous windows at random places of a split, for training.

    Every place of every shard where a window fits is equally likely. A window never crosses shards;
    within a shard it may cross documents.

    Args:
        split: `Split`.
        length: int, the number of tokens that are predicted in a window.
        batch_size: int, windows in a batch, of all workers together.
        seed: int from 0 to 2^64 - 1.

    Raises:
        ValueError: a number is out of its range, or no shard has `length + 1` tokens.
    """

    def __init__(self, split, length, batch_size, seed=0):
        _check_positive(length=length, batch_size=batch_size)
        if not 0 <= seed < 2**64:
            raise ValueError(f"`seed` must be in [0, 2^64). Received: {seed}.")
        self.split, self.length, self.batch_size, self.seed = split, length, batch_size, seed
        starts = [max(0, len(shard) - length) for shard in split.shards]
        self._ends = np.cumsum([0, *starts])
        if not self._ends[-1]:
            longest = max((len(shard) for shard in split.shards), default=0)
            raise ValueError(
                f"A window of length {length} takes {length + 1} tokens, and the longest shard of "
                f"the split {split.name!r} has {longest}."
            )

    def batch(self, step, worker=0, workers=1):
        """A batch, a pure function of the seed and the step.

        Args:
            step: int from 0 to 2^64 - 1.
            worker, workers: ints; the worker's number, and of how many. Each has a contiguous
                share of the same batch, whatever their number.

        Returns:
            int32 `[batch_size // workers, length + 1]`: the inputs are `[:, :-1]`, the targets
            `[:, 1:]`.

        Raises:
            ValueError: the batch cannot be shared equally, or there is no such worker.
        """
        if workers < 1 or self.batch_size % workers:
            raise ValueError(
                f"A batch of {self.batch_size} windows cannot be shared by {workers} workers."
            )
        if not 0 <= worker < workers:
            raise ValueError(f"`worker` must be in [0, {workers}). Received: {worker}.")
        share = self.batch_size // workers
        places = self._places(step)[worker * share : (worker + 1) * share]
        shards = np.searchsorted(self._ends, places, side="right") - 1
        tokens = np.empty((share, self.length + 1), np.int32)
        for row, shard, start in zip(tokens, shards, places - self._ends[shards]):
            row[:] = self.split.shards[shard][start : start + self.length + 1]
        return tokens

    def _places(self, step):
        """Where the windows of a step start, among all places, int64 `[batch_size]`."""
        # Raw numbers are the same in every version of numpy, which those of a Generator need not
        # be. A remainder prefers no place by more than one part in 2^64 / places.
        random = np.random.Philox(key=np.array([self.seed, step], np.uint64))
        raw = random.random_raw(self.batch_size)
        return (raw % np.uint64(self._ends[-1])).astype(np.int64)


def sequential_windows(split, length, batch_size):
    """Windows one after the other, for validation.

    Every token of the split, but the first of each shard, is predicted exactly once.

    Args:
        split: `Split`.
        length: int, the number of tokens that are predicted in a window.
        batch_size: int.

    Yields:
        `(tokens, weights)`: int32 `[batch_size, length + 1]` and float32 `[batch_size, length]`.
        The weight of a target `tokens[:, 1:]` is 1, or 0 where windows and the last batch are
        padded with zeros.

    Raises:
        ValueError: a number below 1.
    """
    _check_positive(length=length, batch_size=batch_size)
    places = [
        (shard, start) for shard in split.shards for start in range(0, len(shard) - 1, length)
    ]
    for first in range(0, len(places), batch_size):
        tokens = np.zeros((batch_size, length + 1), np.int32)
        weights = np.zeros((batch_size, length), np.float32)
        for row, (shard, start) in enumerate(places[first : first + batch_size]):
            window = shard[start : start + length + 1]
            tokens[row, : len(window)] = window
            weights[row, : len(window) - 1] = 1
        yield tokens, weights


def count_sequential_batches(split, length, batch_size):
    """The number of batches that `sequential_windows` gives for these arguments, int."""
    _check_positive(length=length, batch_size=batch_size)
    windows = sum(len(range(0, len(shard) - 1, length)) for shard in split.shards)
    return -(-windows // batch_size)


def count_sequential_tokens(split, length, batch_size, batches):
    """The number of tokens that are predicted in the first batches, int."""
    windows, tokens = batches * batch_size, 0
    for shard in split.shards:
        tokens += min(windows * length, max(0, len(shard) - 1))
        windows = max(0, windows - len(range(0, len(shard) - 1, length)))
    return tokens


def _read_index(folder):
    path = folder / INDEX_FILE
    if not path.is_file():
        raise FileNotFoundError(
            f"{folder} is no corpus: it has no {INDEX_FILE}. `python -m training.corpus` makes one."
        )
    try:
        index = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}.") from None
    found = index.get("format") if isinstance(index, dict) else None
    if found != FORMAT:
        raise ValueError(f"{path} has the format {found!r}; expected {FORMAT}.")
    return index


def _fingerprint(index):
    """The hash of all that the tokens depend on, and of nothing else, such as where they lay."""
    content = {
        "tokenizer": index["tokenizer"],
        "splits": {
            name: [shard["sha256"] for shard in split["shards"]]
            for name, split in index["splits"].items()
        },
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def _check_positive(**numbers):
    for name, value in numbers.items():
        if value < 1:
            raise ValueError(f"`{name}` must be at least 1. Received: {value}.")
