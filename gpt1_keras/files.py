"""Files that are written whole or not at all."""

import contextlib
import glob
import os
import shutil
import tempfile
from collections.abc import Iterator

_PREFIX = ".tmp-"


@contextlib.contextmanager
def atomic_path(path: str | os.PathLike[str]) -> Iterator[str]:
    """Yields a temporary path beside `path`, and renames it to `path` when the block succeeds.

    The temporary path keeps `path`'s suffix, by which writers choose the format. The block may
    create a file or a directory there; a directory replaces an existing one as a whole. If the
    block raises, what it wrote is removed and `path` stays as it was. The content reaches the disk
    before its name does, so a power cut never leaves a truncated file.

    Raises:
        FileNotFoundError: the block succeeds without writing anything.
        OSError: the disk is full, or a directory would replace a file.
    """
    path = os.path.abspath(path)
    parent, name = os.path.split(path)
    os.makedirs(parent, exist_ok=True)
    folder = tempfile.mkdtemp(prefix=_PREFIX, dir=parent)
    temporary = os.path.join(folder, name)
    try:
        yield temporary
        _sync_tree(temporary)
        if os.path.isdir(path) and os.path.exists(temporary):
            # A directory cannot be renamed over one that is not empty, so that is moved first.
            os.rename(path, os.path.join(folder, "replaced"))
        os.replace(temporary, path)
        _sync(parent)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def remove_leftovers(folder: str | os.PathLike[str]) -> None:
    """Removes what killed processes had started to write into the folder."""
    for path in glob.glob(os.path.join(glob.escape(os.fspath(folder)), _PREFIX + "*")):
        shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def reading_weights(path: str | os.PathLike[str]) -> Iterator[None]:
    """Raises ValueError in place of what Keras and h5py raise if a file lacks the model's weights.

    A missing file stays a FileNotFoundError.
    """
    try:
        yield
    except FileNotFoundError:
        raise
    except (OSError, KeyError, ValueError) as error:
        raise ValueError(
            f"The weights file {path} is damaged, or holds another model's weights: {error}"
        ) from error


def _sync_tree(path: str) -> None:
    """Waits until a file, or a directory with all its content, is on the disk."""
    for folder, _, names in os.walk(path):
        for name in names:
            _sync(os.path.join(folder, name))
        _sync(folder)
    if os.path.isfile(path):
        _sync(path)


def _sync(path: str) -> None:
    """Waits until a file or a directory's entries are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
