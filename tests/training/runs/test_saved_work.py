"""What an interrupted program goes on from."""

import os

import pytest

from training.runs import newest_saved


@pytest.fixture
def write(tmp_path):
    """Writes an empty file, each later than the one before."""
    names = []

    def write(name):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        names.append(name)
        os.utime(path, (len(names), len(names)))

    return write


def test_the_newest_of_a_run_or_of_several(write, tmp_path):
    assert newest_saved(tmp_path / "nowhere") is None
    write("run/options.json")
    write("run/checkpoints/.tmp-1/step-00000009.npz")  # not written to its end
    assert newest_saved(tmp_path / "run") is None
    for name in ("checkpoints/step-00000009.npz", "checkpoints/step-00000010.npz"):
        write(f"run/{name}")
        assert newest_saved(tmp_path / "run") == str(tmp_path / "run" / name)
    write("grid/runs/a/result.json")
    write("grid/runs/b/checkpoints/step-00000003.npz")
    assert newest_saved(tmp_path / "grid") == str(
        tmp_path / "grid/runs/b/checkpoints/step-00000003.npz"
    )
