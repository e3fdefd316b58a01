"""LoRA weights that are saved and loaded give the model that was trained."""

import h5py
import keras
import keras_hub
import numpy as np
import pytest

import gpt1_keras

IDS = {"token_ids": np.random.default_rng(0).integers(0, 20, (2, 8))}


def make():
    keras.utils.set_random_seed(0)
    return gpt1_keras.GPT1Backbone(20, 2, 2, 8, 16)


@pytest.fixture
def trained():
    """A backbone all of whose trainable weights were changed."""
    backbone = make()
    backbone.enable_lora(2)
    random = np.random.default_rng(1)
    for weight in backbone.trainable_variables:
        weight.assign(weight + random.normal(size=weight.shape))
    return backbone


def test_all_that_was_trained_is_saved(trained, tmp_path):
    trained.save_lora_weights(tmp_path / "a.lora.h5")
    copy = make()
    copy.load_lora_weights(tmp_path / "a.lora.h5")
    assert np.abs(np.array(copy(IDS)) - np.array(make()(IDS))).max() > 0.1
    np.testing.assert_array_equal(copy(IDS), trained(IDS))
    assert [path.name for path in tmp_path.iterdir()] == ["a.lora.h5"]


def test_files_of_kerashub(trained, tmp_path):
    """Each reads the other's, which has no biases."""
    theirs = tmp_path / "theirs.lora.h5"
    keras_hub.models.Backbone.save_lora_weights(trained, theirs)
    copy = make()
    copy.load_lora_weights(theirs)
    for kernel, expected in zip(copy.trainable_variables, trained.trainable_variables):
        is_bias = "bias" in kernel.path
        np.testing.assert_array_equal(kernel, np.zeros(kernel.shape) if is_bias else expected)
    trained.save_lora_weights(tmp_path / "ours.lora.h5")
    keras_hub.models.Backbone.load_lora_weights(make(), tmp_path / "ours.lora.h5")


def test_what_is_refused(trained, tmp_path):
    with pytest.raises(ValueError, match="no lora-enabled layers"):
        make().save_lora_weights(tmp_path / "a.lora.h5")
    with pytest.raises(ValueError, match="must end in `.lora.h5`"):
        trained.save_lora_weights(tmp_path / "a.h5")
    assert not list(tmp_path.iterdir())
    trained.save_lora_weights(tmp_path / "a.lora.h5")
    with h5py.File(tmp_path / "a.lora.h5", "a") as file:
        next(iter(file["lora"].values()))["vars/bias"][0] = np.nan
    with pytest.raises(ValueError, match="a.lora.h5 is damaged.* NaN or infinite"):
        make().load_lora_weights(tmp_path / "a.lora.h5")
