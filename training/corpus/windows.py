"""Windows of a corpus's tokens: at random for training, in order for validation; numpy alone."""

import numpy as np

from training.corpus.corpus_format import Split
from training.corpus.pairs import Pairs


class Windows:
    """Contiguous windows at random positions of a split, for training.

    Every position of every shard where a window fits is equally likely. A window never crosses
    shards; within a shard it may cross documents.

    Args:
        length: tokens that are predicted in a window.
        batch_size: windows in a batch, over all workers.
        seed: from 0 to 2^64 - 1.
        repeat_share: from 0 to 1, the share of windows in which a copy of a passage replaces a
            later part. The passage takes from a sixteenth to a half of the window. Its length and
            its two places are random, so a model cannot predict them.
        pair_share: from 0 to 1 - `repeat_share`, the share of windows that `pairs` fills.
        pairs: what fills them; needed if their share is above 0.
    """

    def __init__(
        self,
        split: Split,
        length: int,
        batch_size: int,
        seed: int = 0,
        repeat_share: float = 0.0,
        pair_share: float = 0.0,
        pairs: Pairs | None = None,
    ) -> None:
        if not 0 <= seed < 2**64:
            raise ValueError(f"`seed` must be in [0, 2^64). Received: {seed}.")
        self.split, self.length, self.batch_size, self.seed = split, length, batch_size, seed
        self.repeat_share, self.pair_share, self._pairs = repeat_share, pair_share, pairs
        starts = [max(0, len(shard) - length) for shard in split.shards]
        self._ends = np.cumsum([0, *starts])
        if not self._ends[-1]:
            longest = max((len(shard) for shard in split.shards), default=0)
            raise ValueError(
                f"A window of length {length} takes {length + 1} tokens, and the longest shard of "
                f"the split {split.name!r} has {longest}."
            )

    def batch(self, step: int, worker: int = 0, workers: int = 1) -> np.ndarray:
        """Returns a batch, or a worker's share of it: a pure function of the seed and the step.

        Args:
            step: from 0 to 2^64 - 1.
            worker: index of the worker; each reads a contiguous share of the same batch.

        Returns:
            int32 `[batch_size // workers, length + 1]`: the inputs are `[:, :-1]`, the targets
            `[:, 1:]`.
        """
        if workers < 1 or self.batch_size % workers:
            raise ValueError(
                f"A batch of {self.batch_size} windows cannot be shared by {workers} workers."
            )
        if not 0 <= worker < workers:
            raise ValueError(f"`worker` must be in [0, {workers}). Received: {worker}.")
        share = slice(
            worker * self.batch_size // workers, (worker + 1) * self.batch_size // workers
        )
        raw = self._random(step)[:, share]
        tokens = self._read(raw[0])
        _repeat_passages(tokens, raw[1] < self.repeat_share * 2.0**64, raw[2:])
        if self._pairs is not None and self.pair_share:
            rows = np.flatnonzero(raw[1] >= (1 - self.pair_share) * 2.0**64)
            for row, elsewhere in zip(rows, self._read(raw[2, rows])):
                stream = self._stream(step, 1 + share.start + int(row))
                self._pairs.write(tokens[row], elsewhere, stream)
        return tokens

    def _read(self, raw: np.ndarray) -> np.ndarray:
        """Returns the windows at random positions, int32 `[len(raw), length + 1]`."""
        positions = _below(raw, self._ends[-1])
        shards = np.searchsorted(self._ends, positions, side="right") - 1
        tokens = np.empty((len(positions), self.length + 1), np.int32)
        for row, shard, start in zip(tokens, shards, positions - self._ends[shards]):
            row[:] = self.split.shards[shard][start : start + self.length + 1]
        return tokens

    def _random(self, step: int) -> np.ndarray:
        """Returns the numbers that decide a batch, uint64 `[5, batch_size]`, positions first."""
        raw = self._stream(step).random_raw(5 * self.batch_size)
        return raw.reshape(5, self.batch_size)

    def _stream(self, step: int, row: int = 0) -> np.random.Philox:
        """Returns raw random numbers for a batch; from 1 on, for one of its windows."""
        # Raw numbers: those of a Generator may differ between versions of numpy.
        key = np.array([self.seed, step], np.uint64)
        return np.random.Philox(counter=np.array([0, 0, 0, row], np.uint64), key=key)


def _repeat_passages(tokens: np.ndarray, is_chosen: np.ndarray, raw: np.ndarray) -> None:
    """Writes a passage of each chosen window over a later part of it, in place.

    Args:
        tokens: int32 `[batch, tokens]`.
        is_chosen: bool `[batch]`.
        raw: uint64 `[3, batch]`, which decide the passage's length, and its two places.
    """
    length = tokens.shape[1]
    shortest, longest = max(1, length // 16), length // 2
    sizes = shortest + _below(raw[0], longest - shortest + 1)
    firsts = _below(raw[1], length - 2 * sizes + 1)
    seconds = firsts + sizes + _below(raw[2], length - firsts - 2 * sizes + 1)
    for row in np.flatnonzero(is_chosen):
        size, first, second = sizes[row], firsts[row], seconds[row]
        tokens[row, second : second + size] = tokens[row, first : first + size]


def _below(raw: np.ndarray, limit: int | np.ndarray) -> np.ndarray:
    """Returns raw numbers as int64 in [0, limit)."""
    # The bias of a remainder is at most one part in 2^64 / limit.
    return (raw % np.asarray(limit, np.uint64)).astype(np.int64)


class SequentialWindows:
    """Windows of a split one after another in batches, for validation.

    Every token of the split, except the first of each shard, is predicted exactly once. A batch is
    `(tokens, weights)`: int32 `[batch_size, length + 1]` and float32 `[batch_size, length]`. The
    weight of a target `tokens[:, 1:]` is 1, or 0 where a window or the last batch is padded with
    zeros.
    """

    def __init__(self, split: Split, length: int, batch_size: int) -> None:
        self.length, self.batch_size = length, batch_size
        self._starts = [
            (shard, start) for shard in split.shards for start in range(0, len(shard) - 1, length)
        ]

    def __len__(self) -> int:
        return -(-len(self._starts) // self.batch_size)

    def __getitem__(self, step: int) -> tuple[np.ndarray, np.ndarray]:
        if step >= len(self):
            raise IndexError(f"There are {len(self)} batches. Received: {step}.")
        tokens = np.zeros((self.batch_size, self.length + 1), np.int32)
        weights = np.zeros((self.batch_size, self.length), np.float32)
        first = step * self.batch_size
        for row, (shard, start) in enumerate(self._starts[first : first + self.batch_size]):
            window = shard[start : start + self.length + 1]
            tokens[row, : len(window)] = window
            weights[row, : len(window) - 1] = 1
        return tokens, weights

    def count_tokens(self, batches: int) -> int:
        """Counts the tokens that are predicted in the first `batches` batches."""
        windows = self._starts[: batches * self.batch_size]
        return sum(min(self.length, len(shard) - 1 - start) for shard, start in windows)
