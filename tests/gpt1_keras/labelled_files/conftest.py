import gzip

import pytest


@pytest.fixture
def write(tmp_path):
    """Writes a file, compressed if its name says so, and returns its path."""

    def write(name, content, encoding="utf-8"):
        path = tmp_path / name
        content = content if isinstance(content, bytes) else content.encode(encoding)
        path.write_bytes(gzip.compress(content) if name.lower().endswith(".gz") else content)
        return path

    return write
