"""Checkpoints: whole or missing, the last few kept, and clear errors when they do not fit."""

import errno
import json

import keras
import numpy as np
import pytest

from training.runs import checkpoints as module
from training.runs.checkpoints import Checkpoints


def make_model(width=4):
    keras.utils.set_random_seed(width)
    model = keras.Sequential(
        [keras.Input((3,)), keras.layers.Dropout(0.5), keras.layers.Dense(width)]
    )
    model.compile("adam", "mse")
    model.fit(np.ones((8, 3)), np.ones((8, width)), epochs=2, verbose=0)
    return model


def state(model):
    return [np.array(variable) for variable in (*model.variables, *model.optimizer.variables)]


@pytest.fixture
def checkpoints(tmp_path):
    return Checkpoints(tmp_path / "checkpoints", {"seed": 3}, keep=2)


def names(checkpoints):
    return sorted(path.name for path in checkpoints.folder.iterdir())


def test_all_that_training_changes_comes_back(checkpoints):
    model = make_model()
    expected = state(model)
    checkpoints.save(model, 2)
    for variable in (*model.variables, *model.optimizer.variables):
        variable.assign(np.zeros(variable.shape, variable.dtype))
    assert checkpoints.restore(model) == 2
    for found, wanted in zip(state(model), expected, strict=True):
        np.testing.assert_array_equal(found, wanted)
    with np.load(checkpoints.folder / "step-00000002.npz", allow_pickle=False) as arrays:
        assert arrays["header"].tobytes() == b'{"step": 2, "options": {"seed": 3}, "note": {}}'


def test_only_the_last_few_are_kept(checkpoints):
    model = make_model()
    assert checkpoints.restore(model) == 0
    for step in (5, 10, 100):
        checkpoints.save(model, step)
    assert names(checkpoints) == ["step-00000010.npz", "step-00000100.npz"]
    assert checkpoints.restore(model) == 100
    checkpoints.clear()
    assert not checkpoints.folder.exists()


@pytest.mark.parametrize("share", [0.0, 0.4, 0.99])
def test_a_truncated_checkpoint_is_named_and_so_is_the_one_before(checkpoints, share):
    model = make_model()
    checkpoints.save(model, 1)
    checkpoints.save(model, 2)
    damaged = checkpoints.folder / "step-00000002.npz"
    damaged.write_bytes(damaged.read_bytes()[: int(share * damaged.stat().st_size)])
    with pytest.raises(ValueError, match="00002.npz is damaged.*00001.npz"):
        checkpoints.restore(model)
    damaged.unlink()
    assert checkpoints.restore(model) == 1


def test_a_bit_that_flipped(checkpoints):
    model = make_model()
    checkpoints.save(model, 1)
    path = checkpoints.folder / "step-00000001.npz"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match="damaged.*from the start"):
        checkpoints.restore(model)


@pytest.mark.slow
def test_a_checkpoint_of_another_model(checkpoints):
    checkpoints.save(make_model(), 1)
    with pytest.raises(ValueError, match=r"another model.*\(3, 4\).*\(3, 5\)"):
        checkpoints.restore(make_model(5))


def test_a_full_disk_costs_no_checkpoint(checkpoints, monkeypatch):
    model = make_model()
    checkpoints.save(model, 1)

    def fill_up(path, *arrays, **named):
        with open(path, "wb") as file:
            file.write(b"half of it")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(module.np, "savez", fill_up)
    message = "00002.npz: No space.*00001.npz"
    with pytest.raises(OSError, match=message):
        checkpoints.save(model, 2)
    assert names(checkpoints) == ["step-00000001.npz"]
    assert checkpoints.restore(model) == 1


def rewrite(path, **changes):
    """Replaces arrays of a checkpoint, and its header."""
    with np.load(path, allow_pickle=False) as arrays:
        content = dict(arrays) | changes
    np.savez_compressed(path, **content)


def header(content):
    return {"header": np.frombuffer(content, np.uint8)}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        *((header(json.dumps({"step": step, "options": {}}).encode()), "updates")
          for step in ("x", -3, 1e300, None, [1], 3)),
        *((header(content), "") for content in (b"[" * 100_000, b"[]", b"{}", b"3")),
        ({"arr_0": np.array([{}], object)}, "Object arrays"),
        ({"arr_0": np.zeros(2**22, np.float32)}, "unpacks to 16,.* bytes"),
        ({"bias": np.array(["a"] * 4)}, "its array"),
        ({"bias": np.full(4, np.nan, np.float32)}, "its array"),
    ],
)  # fmt: skip
def test_checkpoints_of_strangers(checkpoints, changes, message):
    """Nothing is unpickled, and no bomb is unpacked."""
    model = make_model()
    checkpoints.save(model, 2)
    index = [value.shape for value in state(model)].index((4,))
    path = checkpoints.folder / "step-00000002.npz"
    rewrite(path, **{name.replace("bias", f"arr_{index}"): each for name, each in changes.items()})
    assert path.stat().st_size < 2**18
    with pytest.raises(ValueError, match=f"00002.npz is damaged: .*{message}"):
        checkpoints.restore(model)
