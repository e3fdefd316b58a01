"""Text files as documents, their splits, and groups of similar size."""

import dataclasses
import hashlib
import io
import os
import pathlib
from collections.abc import Iterator

# From the names of folders to the names of splits.
_SPLITS = {"train": "train", "valid": "validation", "validation": "validation", "test": "test"}


@dataclasses.dataclass(frozen=True)
class TextFiles:
    """Text files, each a document: an iterable of iterables of lines."""

    paths: tuple[str, ...]

    def __iter__(self) -> Iterator[io.BufferedReader]:
        for path in self.paths:
            with open(path, "rb") as lines:
                yield lines

    def __str__(self) -> str:
        return self.paths[0] if len(self.paths) == 1 else f"{self.paths[0]} to {self.paths[-1]}"


def find_groups(
    source: str | os.PathLike[str], group_bytes: int, validation_share: float = 0.0
) -> dict[str, list[TextFiles]]:
    """Finds text files, and groups consecutive ones.

    Args:
        source: path of a text file, or of a folder: every `*.txt` in it and its subfolders is a
            document, in the order of their names. Subfolders called train, valid, validation or
            test are splits; without any, all files are train.
        group_bytes: approximate maximum of bytes in a group.
        validation_share: share of a folder without splits that becomes validation. The hash of a
            document's name decides, so adding documents moves no other document.

    Returns:
        dict from split to groups.

    Raises:
        FileNotFoundError: the source does not exist.
        ValueError: a split is empty, or a file lies outside the splits.
    """
    source = pathlib.Path(source)
    if not 0 <= validation_share < 1:
        raise ValueError(f"The validation share must be in [0, 1). Received: {validation_share}.")
    if source.is_file():
        files = [source]
    elif source.is_dir():
        files = [path for path in source.rglob("*.txt") if not path.is_dir()]
        files.sort(key=lambda path: _name(path, source))
    else:
        raise FileNotFoundError(f"The input {source} does not exist.")
    if not files:
        raise ValueError(f"The folder {source} holds no .txt file.")
    folders = [name for name in _SPLITS if (source / name).is_dir()]
    if not folders:
        splits = _divide(files, source, validation_share)
    elif validation_share:
        raise ValueError(
            f"{source} has the splits {folders}; a validation share is for a folder without any."
        )
    else:
        splits = _by_folder(files, source, folders)
    return {split: _group(paths, group_bytes) for split, paths in splits.items()}


def _by_folder(
    files: list[pathlib.Path], source: pathlib.Path, folders: list[str]
) -> dict[str, list[pathlib.Path]]:
    """Returns the files of each split, by the folders that are splits."""
    if {"valid", "validation"} <= set(folders):
        raise ValueError(f"{source} must have one of valid/ and validation/; it has both.")
    splits = {name: [path for path in files if source / name in path.parents] for name in folders}
    for name, paths in splits.items():
        if not paths:
            raise ValueError(f"The folder {source / name} holds no .txt file.")
    outside = set(files).difference(*splits.values())
    if outside:
        raise ValueError(f"{min(outside)} lies outside the splits of {source}, {folders}.")
    return {_SPLITS[name]: paths for name, paths in splits.items()}


def _divide(
    files: list[pathlib.Path], source: pathlib.Path, validation_share: float
) -> dict[str, list[pathlib.Path]]:
    """Returns the files of train, and of validation if it has a share."""
    if not validation_share:
        return {"train": files}
    splits: dict[str, list[pathlib.Path]] = {"train": [], "validation": []}
    for path in files:
        digest = hashlib.sha256(_name(path, source).encode()).digest()
        fraction = int.from_bytes(digest[:8], "big") / 2**64
        splits["validation" if fraction < validation_share else "train"].append(path)
    for split, paths in splits.items():
        if not paths:
            raise ValueError(
                f"A validation share of {validation_share} leaves none of the {len(files)} "
                f"document(s) of {source} for the split {split!r}."
            )
    return splits


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
