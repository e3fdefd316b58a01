"""Files that are written whole or not at all."""

import contextlib
import glob
import os
import shutil
import tempfile

_PREFIX = ".tmp-"


@contextlib.contextmanager
def atomic_path(path):
    """Gives a temporary path beside `path`, and renames it to `path` when the block succeeds.

    The temporary path keeps `path`'s ending, as writers choose the format by it. The block may
    create a file or a directory there; a directory replaces an existing one as a whole. When the
    block raises, what it wrote is removed and `path` is left as it was. What bears the name `path`
    has reached the disk, so that a power cut leaves none of it cut short.
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
            # A directory cannot be renamed over a filled one, so the old one steps aside first.
            os.rename(path, os.path.join(folder, "replaced"))
        os.replace(temporary, path)
        _sync(parent)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def remove_leftovers(folder):
    """Removes what processes that were killed had begun to write into the folder."""
    for path in glob.glob(os.path.join(glob.escape(folder), _PREFIX + "*")):
        shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def reading_weights(path):
    """Turns what Keras and h5py raise on a file that does not hold these weights into ValueError.

    A file that is not there stays FileNotFoundError.
    """
    try:
        yield
    except FileNotFoundError:
        raise
    except (OSError, KeyError, ValueError) as error:
        raise ValueError(
            f"The weights file {path} is damaged, or holds another model's weights: {error}"
        ) from error


def _sync_tree(path):
    """Waits until a file, or a directory with all in it, is on the disk."""
    for folder, _, names in os.walk(path):
        for name in names:
            _sync(os.path.join(folder, name))
        _sync(folder)
    if os.path.isfile(path):
        _sync(path)


def _sync(path):
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
