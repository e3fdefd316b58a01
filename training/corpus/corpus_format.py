"""The format of a pre-training corpus on disk, read with numpy alone.

A corpus is a folder of `index.json`, the shards that it lists (`.npy`, one array of token ids each)
and the tokenizer that made them. Neither TensorFlow nor Keras is imported here, so that a machine
with another backend can train too.
"""

import dataclasses
import hashlib
import json
import os
import pathlib
from typing import Any

import numpy as np

from gpt1_keras.files import contents_of, read_json

INDEX_FILE = "index.json"
TOKENIZER_FOLDER = "tokenizer"
FORMAT = 1
_DTYPES = ("uint16", "uint32")


@dataclasses.dataclass(frozen=True)
class Split:
    """A split of a corpus.

    Attributes:
        name: such as `"train"`.
        shards: memory-mapped uint16 or uint32 arrays `[tokens]`.
    """

    name: str
    shards: tuple[np.ndarray, ...]

    @property
    def tokens(self) -> int:
        """The number of tokens in all shards."""
        return sum(len(shard) for shard in self.shards)


class Corpus:
    """A folder that `gpt1 corpus` wrote.

    Attributes:
        index: dict, the content of `index.json`.
        vocabulary_size: the number of ids, special tokens included.
        fingerprint: 16 hexadecimal digits that change if and only if the tokenizer or the content
            of a shard changes.
        splits: dict from name to `Split`.

    Raises:
        FileNotFoundError: there is no index, or a shard is missing.
        ValueError: the index is damaged or of another format, or a shard does not match it.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
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
    def tokenizer_folder(self) -> pathlib.Path:
        """The folder of the tokenizer, as `gpt1_keras.presets.load_tokenizer` takes it."""
        return self.folder / TOKENIZER_FOLDER

    def split(self, name: str) -> Split:
        """Returns the split of that name. Raises ValueError, naming the existing ones."""
        if name not in self.splits:
            raise ValueError(
                f"The corpus {self.folder} has no split {name!r}; it has {sorted(self.splits)}."
            )
        return self.splits[name]

    def verify(self) -> None:
        """Reads every shard. Raises ValueError for one that has changed since it was written."""
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

    def _open(self, shard: dict[str, Any], dtype: str) -> np.ndarray:
        """Maps a shard into memory, and checks that its size is what the index says."""
        name, tokens = shard["file"], shard["tokens"]
        if pathlib.PurePath(name).name != name or name in ("", ".."):
            raise ValueError(
                f"{self.folder / INDEX_FILE} lists the shard {name!r}; expected a file's name "
                "without a folder."
            )
        path = self.folder / name
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


def _read_index(folder: pathlib.Path) -> dict[str, Any]:
    path = folder / INDEX_FILE
    if not path.is_file():
        raise FileNotFoundError(
            f"{folder} is not a corpus, as `gpt1 corpus` makes it: it has no {INDEX_FILE}. "
            f"{contents_of(folder)}"
        )
    index = read_json(path, object)
    found = index.get("format") if isinstance(index, dict) else None
    if found != FORMAT:
        raise ValueError(f"{path} has the format {found!r}; expected {FORMAT}.")
    return index


def _fingerprint(index: dict[str, Any]) -> str:
    """Returns a hash of the tokenizer and the shards' contents; no path changes it."""
    content = {
        "tokenizer": index["tokenizer"],
        "splits": {
            name: [shard["sha256"] for shard in split["shards"]]
            for name, split in index["splits"].items()
        },
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]
