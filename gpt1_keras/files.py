"""Files that are written whole or not at all."""

import contextlib
import os
import shutil
import tempfile


@contextlib.contextmanager
def atomic_path(path):
    """Gives a temporary path beside `path`, and renames it to `path` when the block succeeds.

    The temporary path keeps `path`'s ending, as writers choose the format by it. The block may
    create a file or a directory there; a directory replaces an existing one as a whole. When the
    block raises, what it wrote is removed and `path` is left as it was.
    """
    path = os.path.abspath(path)
    parent, name = os.path.split(path)
    os.makedirs(parent, exist_ok=True)
    folder = tempfile.mkdtemp(prefix=".tmp-", dir=parent)
    temporary = os.path.join(folder, name)
    try:
        yield temporary
        if os.path.isdir(path) and os.path.exists(temporary):
            # A directory cannot be renamed over a filled one, so the old one steps aside first.
            os.rename(path, os.path.join(folder, "replaced"))
        os.replace(temporary, path)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
