"""The folder of a run: what it keeps, refuses and goes on from; full disks."""

import dataclasses
import os
import pathlib

import h5py
import keras
import numpy as np
import pytest

import gpt1_keras
from gpt1_keras import files
from tests.helpers.small_disk import fill, small_disk
from training.runs import newest_saved
from training.runs.finetune_options import FinetuneOptions
from training.runs.run_folder import Run


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


def test_a_full_disk(tmp_path, tiny_backbone):
    with small_disk(tmp_path / "small", "64k") as folder:
        run = Run(folder / "run", {})
        run.prepare()
        with pytest.raises(OSError, match=r"No space.*/00000003.weights.h5'$"):
            run.save_snapshot(tiny_backbone, 3)
        with pytest.raises(OSError, match="No space.*/run/file'$"):
            with files.atomic_path(folder / "run" / "file") as path:
                pathlib.Path(path).write_bytes(bytes(2**20))
        names = {path.name for path in (folder / "run").rglob("*")}
        assert names == {"snapshots"}


@pytest.mark.slow
def test_a_disk_that_others_fill_leaves_the_last_preset(tmp_path, tiny_backbone, tiny_tokenizer):
    preprocessor = gpt1_keras.GPT1TextClassifier.preprocessor_cls(tiny_tokenizer)
    task = gpt1_keras.GPT1TextClassifier(tiny_backbone, 2, preprocessor=preprocessor)
    with small_disk(tmp_path / "small", "2m") as folder:
        run = Run(folder / "run", {})
        run.save_preset(task, "best")
        saved = task.get_weights()
        tiny_backbone.token_embedding.embeddings.assign_add(
            keras.ops.ones_like(tiny_backbone.token_embedding.embeddings)
        )
        # From no room at all to some for all but the last file.
        for free in (0, 20_000, 60_000, 100_000):
            others = fill(folder)
            os.truncate(others, others.stat().st_size - free)
            with pytest.raises(OSError, match=r"No space.*/run/best'$"):
                run.save_preset(task, "best")
            others.unlink()
            assert [path.name for path in run.folder.iterdir()] == ["best"]
            loaded = gpt1_keras.GPT1TextClassifier.from_preset(str(run.folder / "best"))
            for ours, theirs in zip(loaded.get_weights(), saved, strict=True):
                np.testing.assert_array_equal(ours, theirs)
        run.save_preset(task, "best")


def test_a_preset_holds_no_state_of_the_optimizer(tmp_path, tiny_backbone, tiny_tokenizer, recwarn):
    preprocessor = gpt1_keras.GPT1TextClassifier.preprocessor_cls(tiny_tokenizer)
    task = gpt1_keras.GPT1TextClassifier(tiny_backbone, 2, preprocessor=preprocessor)
    task.compile()
    task.optimizer.build(task.trainable_variables)
    Run(tmp_path, {}).save_preset(task, "best")
    with h5py.File(tmp_path / "best" / "task.weights.h5") as file:
        assert "optimizer" not in file
    sizes = [path.stat().st_size for path in (tmp_path / "best").glob("*.h5")]
    assert sum(sizes) < 6 * task.count_params() + 50_000  # Adam's two moments would make it 12
    loaded = gpt1_keras.GPT1TextClassifier.from_preset(str(tmp_path / "best"))
    for ours, theirs in zip(loaded.get_weights(), task.get_weights(), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert not [warning for warning in recwarn if "optimizer" in str(warning.message)]


def test_a_run_that_would_replace_what_it_reads(tmp_path):
    (tmp_path / "run" / "best").mkdir(parents=True)
    with pytest.raises(ValueError, match="best is read"):
        Run(tmp_path / "run", {}).prepare(tmp_path / "run" / "best")
    Run(tmp_path / "other", {}).prepare(tmp_path / "run" / "best")


def test_options_are_kept_once_the_run_has_started(tmp_path):
    options = dataclasses.asdict(FinetuneOptions("rte", config="gpt1_micro"))
    run = Run(tmp_path, options)
    run.prepare()
    Run(tmp_path, options | {"seed": 1})
    run.start()
    with pytest.raises(ValueError, match="seed was 0, not 1"):
        Run(tmp_path, options | {"seed": 1})
