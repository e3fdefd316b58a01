"""Files of weights are written whole or not at all, and equal those that Keras writes."""

import builtins
import os

import h5py
import keras
import numpy as np
import pytest

import gpt1_keras
from tests.helpers.small_disk import fill, small_disk


def arrays(path):
    found = {}
    with h5py.File(path) as file:
        file.visititems(lambda name, item: found.update({name: item}))
        return {name: i[()] for name, i in found.items() if isinstance(i, h5py.Dataset)}


def change(backbone):
    table = backbone.token_embedding.embeddings
    table.assign_add(keras.ops.ones_like(table))


def test_keras_would_have_written_the_same(tiny_backbone, tmp_path):
    ours, theirs = tmp_path / "ours.weights.h5", tmp_path / "theirs.weights.h5"
    tiny_backbone.save_weights(ours)
    keras.saving.save_weights(tiny_backbone, theirs)
    expected = arrays(theirs)
    assert expected
    found = arrays(ours)
    assert list(found) == list(expected)
    for name in expected:
        np.testing.assert_array_equal(found[name], expected[name])
    assert sorted(path.name for path in tmp_path.iterdir()) == [ours.name, theirs.name]


def test_a_disk_that_is_full_leaves_the_earlier_file(tiny_backbone, tmp_path):
    """HDF5 itself, writing there, would end this process by a signal."""
    with small_disk(tmp_path / "small", "1m") as folder:
        path = folder / "a.weights.h5"
        tiny_backbone.save_weights(path)
        before = path.read_bytes()
        change(tiny_backbone)
        others = fill(folder)
        for free in (0, len(before) - 1):
            os.truncate(others, others.stat().st_size - free)
            with pytest.raises(OSError, match="No space left on device: '.*/small/a.weights.h5'"):
                tiny_backbone.save_weights(path)
            assert path.read_bytes() == before
        others.unlink()
        tiny_backbone.save_weights(path)
        assert path.read_bytes() != before


def test_a_file_is_kept_if_the_user_says_so(tiny_backbone, tmp_path, monkeypatch):
    path = tmp_path / "a.weights.h5"
    tiny_backbone.save_weights(path)
    before = path.read_bytes()
    change(tiny_backbone)
    for answer, is_kept in (("n", True), ("y", False)):
        monkeypatch.setattr(builtins, "input", lambda prompt, answer=answer: answer)
        tiny_backbone.save_weights(path, overwrite=False)
        assert (path.read_bytes() == before) == is_kept


def test_several_files(tiny_backbone, tmp_path):
    tiny_backbone.save_weights(tmp_path / "a.weights.json", max_shard_size=1e-4)
    assert len(list(tmp_path.glob("a*.weights.h5"))) > 1
    before = tiny_backbone.get_weights()
    change(tiny_backbone)
    tiny_backbone.load_weights(tmp_path / "a.weights.json")
    for ours, theirs in zip(tiny_backbone.get_weights(), before, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_another_name(tiny_backbone, tmp_path):
    with pytest.raises(ValueError, match=r"must end in `.weights.h5`. Received: filepath=.*a\.h5"):
        tiny_backbone.save_weights(tmp_path / "a.h5")
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_keras_callback(tiny_backbone, tiny_tokenizer, tmp_path):
    preprocessor = gpt1_keras.GPT1TextClassifier.preprocessor_cls(tiny_tokenizer)
    task = gpt1_keras.GPT1TextClassifier(tiny_backbone, 2, preprocessor=preprocessor)
    path = tmp_path / "a.weights.h5"
    task.compile(run_eagerly=True)
    task.fit(
        ["one", "two"], [0, 1], callbacks=[keras.callbacks.ModelCheckpoint(
            str(path), save_weights_only=True)], verbose=0,
    )  # fmt: skip
    trained = task.get_weights()
    task.head.kernel.assign(keras.ops.zeros_like(task.head.kernel))
    task.load_weights(path)
    for ours, theirs in zip(task.get_weights(), trained, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(ValueError, match="a.weights.h5 is damaged, or holds another model"):
        task.load_weights(path)


@pytest.mark.parametrize("name", ["model.h5", "model.hdf5"])
def test_a_model_in_hdf5_could_not_be_loaded(tiny_backbone, tmp_path, name):
    with pytest.raises(ValueError, match=r"Save the model as \.keras, .* Received: .*model\."):
        tiny_backbone.save(tmp_path / name)
    assert not list(tmp_path.iterdir())
