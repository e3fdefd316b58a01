"""Writes files whole or not at all; reading a damaged file raises an error that names it."""

import contextlib
import csv
import difflib
import errno
import glob
import hashlib
import io
import json
import os
import pathlib
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TextIO

_PREFIX = ".tmp-"
_MOST_LISTED = 10  # names in a message
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # errors in which the system names no file
# What renaming a folder to a path raises where a file is, or a folder that is not empty.
_IS_TAKEN = (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR)


@contextlib.contextmanager
def atomic_path(path: str | os.PathLike[str]) -> Iterator[str]:
    """Yields a temporary path beside `path`, and renames it to `path` when the block succeeds.

    The temporary path has the suffix of `path`, because writers choose the format by it. The block
    may create a file or a directory there; a directory replaces, as a whole, one that was there
    when the block began. If the block raises, what it wrote is removed, and `path` stays as it was.
    The content reaches the disk before its name does, so a power cut never leaves a truncated file.

    Raises:
        FileNotFoundError: the block succeeds without writing anything.
        FileExistsError: a directory has appeared at `path` since the block began.
        OSError: the disk is full, or a directory would replace a file. It names `path`.
    """
    path = os.path.abspath(path)
    parent, name = os.path.split(path)
    before = _identity(path)
    with temporary_path(parent, name, path) as temporary:
        yield temporary
        _sync_tree(temporary)
        replaced = f"{temporary}.replaced"
        try:
            if os.path.isdir(path) and os.path.exists(temporary):
                if _identity(path) != before:
                    reason = "A folder has appeared there meanwhile, and is not replaced"
                    raise FileExistsError(errno.EEXIST, reason, path)
                # A directory cannot be renamed over one that is not empty: that is moved first.
                os.rename(path, replaced)
            os.replace(temporary, path)
        except BaseException:  # such as Ctrl-C between the two
            if os.path.lexists(replaced) and not os.path.lexists(path):
                os.rename(replaced, path)
            raise
        _sync(parent)


@contextlib.contextmanager
def temporary_path(
    folder: str | os.PathLike[str], name: str, blamed: str | os.PathLike[str] | None = None
) -> Iterator[str]:
    """Yields a temporary path of this name, in a folder, and removes what the block leaves there.

    Raises:
        OSError: the disk is full, or writing fails. It names `blamed`, by default the folder.
    """
    folder = os.path.abspath(folder)
    _make_folder(folder)
    temporary = tempfile.mkdtemp(prefix=_PREFIX, dir=folder)
    try:
        yield os.path.join(temporary, name)
    except OSError as error:
        named = error.filename is not None and os.fspath(error.filename).startswith(temporary)
        if named or error.errno in _NO_ROOM:
            raise OSError(error.errno, error.strerror, os.fspath(blamed or folder)) from error
        raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def move_to_next_number(temporary: str, folder: str | os.PathLike[str]) -> str:
    """Moves a folder, not empty, into another one, under the number after the highest there.

    Of several programs that do so at once, each gets a number of its own. Nothing that exists is
    replaced, and nobody sees the number before all its content. Returns the path.
    """
    folder = os.path.abspath(folder)
    _sync_tree(temporary)
    numbers = [int(name) for name in os.listdir(folder) if name.isascii() and name.isdecimal()]
    number = max(numbers, default=0)
    while True:
        number += 1
        path = os.path.join(folder, str(number))
        if os.path.lexists(path):  # renaming would replace an empty folder
            continue
        try:
            os.rename(temporary, path)
        except OSError as error:
            if error.errno not in _IS_TAKEN:
                raise
        else:
            _sync(folder)
            return path


def leftovers(folder: str | os.PathLike[str]) -> list[str]:
    """Returns the paths of a folder's unfinished files: still being written, or left by a kill."""
    return sorted(glob.glob(os.path.join(glob.escape(os.fspath(folder)), _PREFIX + "*")))


def remove_leftovers(folder: str | os.PathLike[str]) -> None:
    """Removes unfinished files from a folder, which killed processes leave there."""
    for path in leftovers(folder):
        shutil.rmtree(path, ignore_errors=True)


def check_writable(folder: str | os.PathLike[str]) -> None:
    """Checks that files can be written to a folder, or that it can be made. It leaves nothing.

    A program calls it before its work, because results that cannot be written are lost. Raises
    OSError if the folder is a file, or nothing can be written there.
    """
    path = pathlib.Path(folder).absolute()
    nearest = next(each for each in (path, *path.parents) if os.path.lexists(each))
    if not nearest.is_dir():
        raise _not_a_folder(nearest)
    try:
        with tempfile.TemporaryFile(prefix=_PREFIX, dir=nearest) as file:
            file.write(b" ")
    except OSError as error:
        raise OSError(error.errno, error.strerror, os.fspath(folder)) from error


def contents_of(path: str | os.PathLike[str]) -> str:
    """Says what is in a folder, or beside a path that does not exist, for an error's message."""
    given = pathlib.Path(path)
    folder = given if given.is_dir() else given.parent
    try:
        entries = sorted(each for each in folder.iterdir() if not each.name.startswith("."))
    except OSError as error:
        return f"{folder}: {error.strerror}."
    shown = [f"{each.name}/" if each.is_dir() else each.name for each in entries[:_MOST_LISTED]]
    more = f" and {len(entries) - _MOST_LISTED} more" if len(entries) > _MOST_LISTED else ""
    place = "The current folder" if folder == pathlib.Path() else folder
    listed = f"{place} holds {', '.join(shown) or 'nothing'}{more}."
    near = difflib.get_close_matches(given.name, [each.name for each in entries], 1)
    is_missing = folder != given
    return f"{listed} Did you mean {folder / near[0]}?" if near and is_missing else listed


@contextlib.contextmanager
def writing_weights(path: str | os.PathLike[str]) -> Iterator[io.BytesIO]:
    """Yields a buffer for Keras to save weights to, and then writes `path` whole or not at all.

    HDF5 would crash the process if the disk fills up while it writes. So it writes into memory, and
    Python writes to the disk. Nothing is written if nothing was saved: Keras may have asked whether
    to overwrite a file, or have saved to a remote path itself. Raises OSError if `path` cannot be
    written; it stays as it was.
    """
    memory = _PathInMemory(path)
    yield memory
    with memory.getbuffer() as content:
        if content:
            with atomic_path(path) as temporary:
                pathlib.Path(temporary).write_bytes(content)


def digest_of(path: str | os.PathLike[str]) -> str:
    """Returns the SHA-256 of a file, or of all files in a folder, in hexadecimal digits."""
    found = hashlib.sha256()
    whole = pathlib.Path(path)
    for part in sorted(whole.rglob("*")) if whole.is_dir() else [whole]:
        if part.is_file():
            with open(part, "rb") as file:
                found.update(hashlib.file_digest(file, "sha256").digest())
    return found.hexdigest()


def read_json(path: str | os.PathLike[str], kind: type = dict) -> Any:
    """Reads a file of JSON, which must hold a dict, or a list if this is its `kind`.

    Raises:
        FileNotFoundError: it does not exist.
        ValueError: it is no file, is damaged, or holds something else.
    """
    path = pathlib.Path(path)
    if path.exists() and not path.is_file():  # reading a named pipe would wait
        raise ValueError(f"{path} is not a file.")
    try:
        content = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not JSON: {error}.") from None
    if not isinstance(content, kind):
        expected = "an object" if kind is dict else "a list"
        raise ValueError(f"{path} must hold {expected}. Received: {type(content).__name__}.")
    return content


def write_json(path: str | os.PathLike[str], value: Any) -> None:
    """Writes a file of JSON, whole or not at all.

    Raises:
        ValueError: a number is NaN or infinite, which JSON does not have. Nothing is written.
        OSError: the file cannot be written.
    """
    try:
        text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
    except ValueError as error:
        raise ValueError(f"{path} cannot be written: {error}.") from None
    write_text(path, f"{text}\n")


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Writes a file of text in UTF-8, whole or not at all. Raises OSError if it cannot."""
    with atomic_path(path) as temporary:
        pathlib.Path(temporary).write_text(text, encoding="utf-8")


def csv_writer(file: TextIO, separator: str = ",") -> Callable[[Iterable[Iterable[Any]]], object]:
    """Returns a function that writes rows of cells to a file; each row ends in a line feed.

    Cells may hold any text, also line ends: csv puts those that it must into quotation marks.
    """
    return csv.writer(_LineFeeds(file), delimiter=separator, lineterminator="\r\n").writerows


@contextlib.contextmanager
def reading_weights(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turns the errors of Keras and h5py about a file without the model's weights into ValueError.

    A missing file stays a FileNotFoundError.
    """
    try:
        yield
    except FileNotFoundError:
        raise
    except (OSError, LookupError, TypeError, AttributeError, RuntimeError, ValueError) as error:
        raise ValueError(
            f"The weights file {path} is damaged, or holds another model's weights: {error}"
        ) from error


class _LineFeeds:
    """A file for csv, which writes a row at a time. It ends rows in a line feed alone.

    Python before 3.11.9 leaves a carriage return without quotation marks, unless rows end in one.
    """

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def write(self, row: str) -> int:
        return self._file.write(row.removesuffix("\r\n") + "\n")


class _PathInMemory(io.BytesIO):
    """A buffer that Keras treats as a path: it has the path's name."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__()
        self._path = os.fspath(path)

    def __str__(self) -> str:
        return self._path

    def __fspath__(self) -> str:
        return self._path


def _identity(path: str) -> tuple[int, int] | None:
    """Returns what tells a folder from others that have the same path; None if there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return (found.st_dev, found.st_ino) if stat.S_ISDIR(found.st_mode) else None


def _make_folder(path: str | os.PathLike[str]) -> None:
    try:
        os.makedirs(path, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise _not_a_folder(error.filename) from None


def _not_a_folder(path: str | os.PathLike[str]) -> NotADirectoryError:
    return NotADirectoryError(errno.ENOTDIR, "Expected a folder, and found a file", os.fspath(path))


def _sync_tree(path: str) -> None:
    for folder, _, names in os.walk(path):
        for name in names:
            _sync(os.path.join(folder, name))
        _sync(folder)
    if os.path.isfile(path):
        _sync(path)


def _sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
