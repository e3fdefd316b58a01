"""A vocabulary and its merges, which must fit each other, and their files."""

import contextlib
import json
import os
import pathlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from gpt1_keras.files import read_json

END_OF_WORD = "</w>"
UNKNOWN = "<unk>"
_HEADER = "#version: 0.2"


class Vocabulary:
    """The tokens and merges of a byte-pair encoding over characters.

    Args:
        tokens: path of a JSON file, or a mapping, from token to id: `<unk>`, single characters with
            and without `</w>`, and the products of the merges. The ids are 0 to n - 1.
        merges: path of a text file with one merge per line, or list of `"left right"` strings, in
            order of rank. A first line that starts with `#version` is skipped.

    Attributes:
        token_to_id, tokens: dict from token to id, and list in the order of the ids.
        merges: list of the merges, `(left, right)`, in order of rank.
        left, right, product: int32 arrays `[merges]`, the ids of each merge's two sides and of what
            it makes.

    Raises:
        FileNotFoundError: a path does not exist.
        ValueError: the ids are not 0 to n - 1, `<unk>` is missing, or a merge does not fit.
    """

    def __init__(
        self,
        tokens: str | os.PathLike[str] | Mapping[str, int],
        merges: str | os.PathLike[str] | Iterable[str],
    ) -> None:
        self.token_to_id = _read_tokens(tokens)
        with _naming(merges):
            self.merges = _read_merges(merges)
        with _naming(tokens, merges):
            self._fit()

    def _fit(self) -> None:
        """Sets the tokens and the merges' ids. Raises ValueError if they do not fit."""
        ids = list(self.token_to_id.values())
        strange = [id for id in ids if type(id) is not int]
        if strange or sorted(ids) != list(range(len(ids))):
            received = f"the id {strange[0]!r}" if strange else f"ids from {min(ids)} to {max(ids)}"
            raise ValueError(
                f"A vocabulary of {len(ids)} tokens needs the ids 0 to {len(ids) - 1}, each once. "
                f"Received {received}."
            )
        self.tokens = sorted(self.token_to_id, key=self.token_to_id.__getitem__)
        if UNKNOWN not in self.token_to_id:
            raise ValueError(f"The vocabulary needs the token '{UNKNOWN}'; it has none.")
        # Raises ValueError for a token with half a surrogate pair, which no text holds.
        "".join(self.tokens).encode()
        pairs = [self._merge_ids(rank, merge) for rank, merge in enumerate(self.merges)]
        self.left, self.right, self.product = np.array(pairs, np.int32).reshape(-1, 3).T

    def _merge_ids(self, rank: int, merge: tuple[str, str]) -> list[int]:
        """Returns the ids of a merge's sides and product. ValueError if the merge does not fit."""
        left, right = merge
        if left.endswith(END_OF_WORD):
            raise ValueError(
                f"Merge {rank} joins '{left}' and '{right}', but '{left}' ends a word, and no "
                "merge may cross words."
            )
        try:
            return [self.token_to_id[symbol] for symbol in (left, right, left + right)]
        except KeyError as error:
            raise ValueError(
                f"The vocabulary does not fit the merges: merge {rank} joins '{left}' and "
                f"'{right}', and the vocabulary has no token {error}."
            ) from None

    @property
    def merges_are_ordered(self) -> bool:
        """Whether every merge that makes a symbol ranks before every merge that uses it.

        Then merging only makes pairs of higher ranks, so all pairs of the lowest rank may be merged
        at once.
        """
        ranks = np.arange(len(self.product))
        last_made = np.full(len(self.tokens), -1)
        np.maximum.at(last_made, self.product, ranks)
        return bool(np.all(last_made[self.left] < ranks) and np.all(last_made[self.right] < ranks))

    @property
    def merges_are_unique(self) -> bool:
        """Whether no two merges make the same token."""
        return len(np.unique(self.product)) == len(self.product)

    def save(
        self, tokens_path: str | os.PathLike[str], merges_path: str | os.PathLike[str]
    ) -> None:
        """Writes both files in the original format."""
        with open(tokens_path, "w", encoding="utf-8") as file:
            json.dump(self.token_to_id, file, ensure_ascii=False)
        with open(merges_path, "w", encoding="utf-8") as file:
            file.write(self.merges_text())

    def merges_text(self) -> str:
        """Returns the content of the merges file."""
        return "\n".join([_HEADER, *map(" ".join, self.merges)]) + "\n"


@contextlib.contextmanager
def _naming(*sources: Any) -> Iterator[None]:
    """Adds to a ValueError about the content of sources the paths of those that are files."""
    try:
        yield
    except ValueError as error:
        paths = [os.fspath(source) for source in sources if isinstance(source, (str, os.PathLike))]
        if not paths:
            raise
        raise ValueError(f"{' or '.join(paths)} is damaged: {error}") from None


def _read_tokens(tokens: str | os.PathLike[str] | Mapping[str, int]) -> dict[str, int]:
    if not isinstance(tokens, (str, os.PathLike, Mapping)):
        raise ValueError(
            "A vocabulary is a path, or a mapping from token to id. Received: a "
            f"{type(tokens).__name__}."
        )
    if isinstance(tokens, Mapping):
        return {str(token): int(id) for token, id in tokens.items()}
    _check_file(tokens, "vocabulary")
    return read_json(tokens)


def _read_merges(merges: str | os.PathLike[str] | Iterable[str]) -> list[tuple[str, str]]:
    if isinstance(merges, (str, os.PathLike)):
        _check_file(merges, "merges")
        # Not splitlines, which also splits at other characters, and merges may hold these.
        merges = pathlib.Path(merges).read_text("utf-8").split("\n")
    lines = list(merges)
    if lines and lines[0].startswith("#version"):
        lines = lines[1:]
    pairs = []
    for rank, line in enumerate(filter(None, lines)):
        left, _, right = line.partition(" ")
        if not left or not right or " " in right:
            raise ValueError(
                f"Merge {rank} must be two symbols separated by a space. Received: {line!r}."
            )
        pairs.append((left, right))
    return pairs


def _check_file(path: str | os.PathLike[str], content: str) -> None:
    if not os.path.isfile(path):
        raise FileNotFoundError(f"The {content} file {os.fspath(path)!r} does not exist.")
