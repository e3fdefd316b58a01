"""Text files as documents, their splits, and groups of similar size."""

import codecs
import dataclasses
import gzip
import hashlib
import io
import itertools
import os
import pathlib
import zlib
from collections.abc import Iterator
from typing import NoReturn

from gpt1_keras.cli import warn
from gpt1_keras.files import contents_of
from training.corpus.corpus_options import count_to_hold_back, share_to_hold_back

# From the names of folders, in any case, to the names of splits.
_SPLITS = {
    "train": "train",
    "training": "train",
    "valid": "validation",
    "validation": "validation",
    "val": "validation",
    "dev": "validation",
    "test": "test",
    "testing": "test",
}
_SUFFIXES = (".txt", ".text")  # of documents, in any case
_COMPRESSED = ".gz"  # may follow one of them
_NO_DOCUMENT = "holds no .txt or .text file"
_MOST_SHOWN = 5  # names in a message


@dataclasses.dataclass(frozen=True)
class TextFiles:
    """Text files, each a document: an iterable of iterables of lines.

    Attributes:
        start, stop: the lines of each that count, from 0; None is the end.
    """

    paths: tuple[str, ...]
    start: int = 0
    stop: int | None = None

    def __iter__(self) -> Iterator[Iterator[bytes]]:
        return (itertools.islice(_read_lines(path), self.start, self.stop) for path in self.paths)

    def __str__(self) -> str:
        if self.start or self.stop is not None:
            return f"{self.paths[0]}, lines[{self.start}:{'' if self.stop is None else self.stop}]"
        return self.paths[0] if len(self.paths) == 1 else f"{self.paths[0]} to {self.paths[-1]}"


def _read_lines(path: str) -> Iterator[bytes]:
    """Yields a file's lines in UTF-8, up to and including the line feed.

    Args:
        path: of a file in UTF-8, or in UTF-16 with a byte-order mark; or of such a file compressed,
            if the name ends in .gz.

    Raises:
        ValueError: the file has another encoding, or is damaged.
    """
    number = 1
    is_compressed = path.lower().endswith(_COMPRESSED)
    try:
        with gzip.open(path) if is_compressed else open(path, "rb") as file:
            is_utf_16 = file.peek(2)[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
            # Malformed bytes become surrogates, which `encode` refuses: a decoder, which reads
            # ahead, would not know their line.
            lines = io.TextIOWrapper(
                file,
                encoding="utf-16" if is_utf_16 else "utf-8-sig",
                errors="surrogatepass" if is_utf_16 else "surrogateescape",
                newline="\n",
            )
            for line in lines:
                if "\0" in line:  # as in UTF-16 without a mark, and in files that are no text
                    raise UnicodeError
                yield line.encode()
                number += 1
    except UnicodeError:
        raise ValueError(
            f"{path}, line {number}: is neither UTF-8 nor UTF-16 with a byte-order mark. Convert "
            "the file to UTF-8."
        ) from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"{path} is damaged: {error}.") from None


def find_groups(
    source: str | os.PathLike[str], group_bytes: int, validation_share: float | None = 0.0
) -> dict[str, list[TextFiles]]:
    """Finds text files, and groups consecutive ones.

    Args:
        source: path of a text file, or of a folder: every `.txt` and `.text` file in it, in its
            subfolders and in linked folders is a document, also compressed as `.txt.gz`, in the
            order of their names. Other files are left out, with a warning. Subfolders called train
            (or training), valid (or validation, val, dev) and test (or testing), in any case, are
            splits; without any, all files are train.
        group_bytes: approximate maximum of bytes in a group.
        validation_share: share of train that becomes validation; see
            `training.corpus.corpus_options`. The hash of a document's name decides, so adding
            documents moves no other document, unless it would leave one of the two without. A
            single document gives its last lines.
    """
    source = pathlib.Path(source)
    left_out: list[pathlib.Path] = []
    if source.is_file():
        files = [source]
    elif source.is_dir():
        files, left_out = _find_documents(source)
    else:
        raise FileNotFoundError(f"The input {source} does not exist. {contents_of(source)}")
    if not files:
        raise ValueError(f"The folder {source} {_NO_DOCUMENT}.")
    folders = _split_folders(source) if source.is_dir() else []
    splits = _by_folder(files, source, folders) if folders else {"train": files}
    _warn_of(left_out, source)
    groups = {split: _group(paths, group_bytes) for split, paths in splits.items()}
    share = share_to_hold_back(splits, validation_share, source)
    if share:
        groups |= _hold_back(splits["train"], source, share, group_bytes)
    return groups


def _find_documents(source: pathlib.Path) -> tuple[list[pathlib.Path], list[pathlib.Path]]:
    """Returns the documents below a folder, in the order of their names, and the other files.

    It follows links, and reads no file or folder twice.
    """
    documents: list[pathlib.Path] = []
    left_out: list[pathlib.Path] = []
    seen = {os.path.realpath(source)}

    def is_new(path: pathlib.Path) -> bool:
        real = os.path.realpath(path)
        is_new = real not in seen
        seen.add(real)
        return is_new

    for name, folders, files in os.walk(source, onerror=_refuse, followlinks=True):
        folder = pathlib.Path(name)
        folders[:] = [each for each in sorted(folders) if is_new(folder / each)]
        for path in (folder / each for each in sorted(files)):
            is_text = path.name.lower().removesuffix(_COMPRESSED).endswith(_SUFFIXES)
            is_document = is_text and path.is_file() and is_new(path)
            (documents if is_document else left_out).append(path)
    return sorted(documents, key=lambda path: _name(path, source)), left_out


def _warn_of(left_out: list[pathlib.Path], source: pathlib.Path) -> None:
    """Says which files are no documents, if any."""
    if left_out:
        names = sorted(_name(path, source) for path in left_out)
        more = ", ..." if len(names) > _MOST_SHOWN else ""
        warn(
            f"{len(names)} file(s) of {source} are left out, which are not .txt or .text files or "
            f"are linked twice: {', '.join(names[:_MOST_SHOWN])}{more}"
        )


def _refuse(error: OSError) -> NoReturn:
    """Raises the error about a folder that cannot be read, which `os.walk` would leave out."""
    raise error


def _split_folders(source: pathlib.Path) -> list[str]:
    """Returns the names of the folders that are splits, in the order of `_SPLITS`."""
    names = [path.name for path in source.iterdir() if path.is_dir()]
    return [name for known in _SPLITS for name in sorted(names) if name.lower() == known]


def _by_folder(
    files: list[pathlib.Path], source: pathlib.Path, folders: list[str]
) -> dict[str, list[pathlib.Path]]:
    splits: dict[str, list[pathlib.Path]] = {}
    for name in folders:
        split = _SPLITS[name.lower()]
        if split in splits:
            raise ValueError(f"{source} must have one folder for {split}. Received: {folders}.")
        splits[split] = [path for path in files if source / name in path.parents]
        if not splits[split]:
            raise ValueError(f"The folder {source / name} {_NO_DOCUMENT} of its own.")
    outside = set(files).difference(*splits.values())
    if outside:
        raise ValueError(f"{min(outside)} lies outside the splits of {source}, {folders}.")
    return splits


def _hold_back(
    files: list[pathlib.Path], source: pathlib.Path, share: float, group_bytes: int
) -> dict[str, list[TextFiles]]:
    """Divides train's documents between train and validation, each of which gets some text."""
    fractions = {path: _fraction(_name(path, source)) for path in files}
    held = {path for path in files if fractions[path] < share}
    if len(held) in (0, len(files)):
        texts = [path for path in sorted(files, key=fractions.__getitem__) if _has_text(path)]
        if len(texts) < 2:
            return _cut_lines(texts[0], share) if texts else {}
        held = {texts[0]}
    print(f"Held back for validation: {len(held):,} of {len(files):,} documents of train.")
    return {
        "train": _group([path for path in files if path not in held], group_bytes),
        "validation": _group([path for path in files if path in held], group_bytes),
    }


def _cut_lines(path: pathlib.Path, share: float) -> dict[str, list[TextFiles]]:
    """Divides a document's lines; a document of one line stays whole, with a warning."""
    name = str(path)
    total = sum(1 for line in _read_lines(name) if line.strip())
    held = count_to_hold_back(total, share)
    if not held:
        warn(f"{path} has one line: nothing can be held back for validation.")
        return {}
    filled = (number for number, line in enumerate(_read_lines(name)) if line.strip())
    first = next(itertools.islice(filled, total - held, None))
    print(f"Held back for validation: the last {held:,} of {total:,} lines of {path}.")
    return {
        "train": [TextFiles((name,), 0, first)],
        "validation": [TextFiles((name,), first)],
    }


def _fraction(name: str) -> float:
    """Returns a number from 0 to 1 that depends on a document's name alone."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") / 2**64


def _has_text(path: pathlib.Path) -> bool:
    return any(line.strip() for line in _read_lines(str(path)))


def _group(paths: list[pathlib.Path], group_bytes: int) -> list[TextFiles]:
    """Groups consecutive files: lays them end to end, cuts evenly, and looks for each middle."""
    sizes = [path.stat().st_size for path in paths]
    total, before = max(1, sum(sizes)), 0
    count = -(-total // group_bytes)
    groups: dict[int, list[str]] = {}
    for path, size in zip(paths, sizes):
        groups.setdefault((2 * before + size) * count // (2 * total), []).append(str(path))
        before += size
    return [TextFiles(tuple(group)) for group in groups.values()]


def _name(path: pathlib.Path, source: pathlib.Path) -> str:
    return path.name if path == source else path.relative_to(source).as_posix()
