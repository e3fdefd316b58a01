"""All that a file of weights holds is read, or the file is refused."""

import json
import zipfile

import h5py
import keras
import numpy as np
import pytest

import gpt1_keras
from gpt1_keras.presets import load_task

SIZES = {
    "num_layers": 3,
    "num_heads": 2,
    "hidden_dim": 8,
    "intermediate_dim": 8,
    "max_sequence_length": 16,
}


@pytest.fixture
def classifier(tiny_tokenizer):
    backbone = gpt1_keras.GPT1Backbone(tiny_tokenizer.vocabulary_size(), **SIZES)
    preprocessor = gpt1_keras.GPT1TextClassifierPreprocessor(tiny_tokenizer, sequence_length=16)
    return gpt1_keras.GPT1TextClassifier(backbone, 2, preprocessor=preprocessor)


@pytest.fixture(params=["preset", "shards", "keras", "weights"])
def load_with(request, classifier, tmp_path):
    """A function that saves the classifier, and loads it into one of other arguments."""
    path = tmp_path / f"a.{request.param}.{'h5' if request.param == 'weights' else 'keras'}"

    def load(**changes):
        if request.param == "weights":
            classifier.save_weights(path)
            config = {**classifier.backbone.get_config(), **changes}
            copy = gpt1_keras.GPT1TextClassifier(gpt1_keras.GPT1Backbone.from_config(config), 2)
            copy.load_weights(path)
            return copy
        if request.param == "keras":
            classifier.save(path)
            rewrite(path, lambda config: config["config"]["backbone"]["config"].update(changes))
            return keras.saving.load_model(path)
        # Shards of 3 KB.
        shards = {"max_shard_size": 3e-6} if request.param == "shards" else {}
        classifier.save_to_preset(path, **shards)
        assert (path / "model.weights.h5").exists() == (not shards)
        for name in ("config.json", "task.json"):
            content = json.loads((path / name).read_text())
            config = content["config"]
            (config if name == "config.json" else config["backbone"]["config"]).update(changes)
            (path / name).write_text(json.dumps(content))
        return load_task(path)

    return load


def rewrite(path, change):
    """Changes the configuration in a `.keras` file."""
    with zipfile.ZipFile(path) as archive:
        content = {name: archive.read(name) for name in archive.namelist()}
    config = json.loads(content["config.json"])
    change(config)
    content["config.json"] = json.dumps(config).encode()
    with zipfile.ZipFile(path, "w") as archive:
        for name, each in content.items():
            archive.writestr(name, each)


@pytest.mark.slow
def test_weights_that_no_layer_reads(load_with):
    for number in (2, 1):
        with pytest.raises(ValueError, match=f"transformer_block_{number}, which no layer of this"):
            load_with(num_layers=number)


@pytest.mark.parametrize("number", [0, -1, True, "3", 3.0, None])
def test_less_than_a_layer(classifier, number):
    config = {**classifier.backbone.get_config(), "num_layers": number}
    with pytest.raises(ValueError, match=f"num_layers must be a whole .* num_layers={number!r}"):
        gpt1_keras.GPT1Backbone.from_config(config)


def test_the_right_file(load_with, classifier):
    """Also of a model that is compiled, whose file holds an optimizer too."""
    classifier.optimizer.build(classifier.trainable_variables)
    for found, expected in zip(load_with().get_weights(), classifier.get_weights(), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_weights_that_are_not_finite(load_with, classifier):
    bias = np.zeros(8, "float32")
    bias[3] = np.nan
    classifier.backbone.blocks[1].contract.bias.assign(bias)
    with pytest.raises(ValueError, match="has 1 weights of 8 that are NaN or infinite"):
        load_with()


def test_weights_in_bfloat16_that_are_not_finite(tmp_path):
    """HDF5 does not know the type."""
    backbone = gpt1_keras.GPT1Backbone(9, **SIZES, dtype="bfloat16")
    path = tmp_path / "a.weights.h5"
    backbone.save_weights(path)
    backbone.load_weights(path)
    backbone.blocks[0].expand.bias.assign(np.full(8, np.inf))
    backbone.save_weights(path)
    with pytest.raises(ValueError, match="has 8 weights of 8 that are NaN or infinite"):
        backbone.load_weights(path)


@pytest.fixture
def stored(tmp_path):
    """A backbone, the path of its file of weights, and the name of an array in it."""
    backbone, path = gpt1_keras.GPT1Backbone(9, **SIZES), tmp_path / "a.weights.h5"
    backbone.save_weights(path)
    return backbone, path, "layers/transformer_block/expand/vars/1"


@pytest.mark.parametrize(
    ("array", "message"),
    [
        ({"data": [b"a"] * 8}, "must hold numbers"),
        ({"shape": (10**12,), "dtype": "float32", "chunks": (1000,)}, "declares"),
    ],
)
def test_arrays_of_strangers(stored, array, message):
    backbone, path, name = stored
    with h5py.File(path, "a") as file:
        del file[name]
        file.create_dataset(name, **array)
    with pytest.raises(ValueError, match=f"(?s)a.weights.h5 is damaged.*{message}"):
        backbone.load_weights(path)


def test_what_is_outside_the_file(stored, tmp_path):
    backbone, path, name = stored
    (tmp_path / "outside").write_bytes(bytes(32))
    with h5py.File(path, "a") as file:
        del file[name]
        outside = [(str(tmp_path / "outside"), 0, 32)]
        file.create_dataset(name, (8,), "float32", external=outside)
    with pytest.raises(ValueError, match="Not allowed: H5 file with external"):
        backbone.load_weights(path)


def test_deep_groups(stored):
    backbone, path, _ = stored
    with h5py.File(path, "a") as file:
        group = file["layers"]
        for _ in range(100):
            group = group.create_group("deep")
    with pytest.raises(ValueError, match="It holds layers/deep, which no layer"):
        backbone.load_weights(path)


def test_a_mismatch_that_is_asked_for_is_a_warning(stored):
    _, path, _ = stored
    smaller = gpt1_keras.GPT1Backbone(9, **(SIZES | {"num_layers": 2}))
    with pytest.warns(UserWarning, match="transformer_block_2, which no layer"):
        smaller.load_weights(path, skip_mismatch=True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"dropout": 512}, "dropout must be a rate from 0 to 1. Received: dropout=512"),
        ({"max_sequence_length": 0.1}, "max_sequence_length must be a whole number"),
        ({"hidden_dim": 0}, "hidden_dim must be a whole number"),
        ({"vocabulary_size": "9"}, "vocabulary_size must be a whole number"),
    ],
)
@pytest.mark.parametrize("cls", [gpt1_keras.GPT1Backbone, gpt1_keras.LSTMBackbone])
def test_sizes(cls, arguments, message):
    with pytest.raises(ValueError, match=message):
        cls(**arguments)


def test_arguments_by_position_as_gpt2_has_them():
    backbone = gpt1_keras.GPT1Backbone(9, 1, 2, 8, 8, 0.5, 16)
    assert (backbone.dropout, backbone.max_sequence_length) == (0.5, 16)
    backbone = gpt1_keras.LSTMBackbone(9, 8, 8, 0.5, 16)
    assert (backbone.dropout, backbone.max_sequence_length) == (0.5, 16)


@pytest.mark.slow
@pytest.mark.parametrize("cls", [gpt1_keras.GPT1Backbone, gpt1_keras.LSTMBackbone])
def test_the_spec_of_outputs_without_a_mask(cls):
    backbone = cls(9, hidden_dim=24)
    ids = keras.KerasTensor((None, 5), "int32")
    assert backbone.compute_output_spec({"token_ids": ids}).shape == (None, 5, 24)
    with pytest.raises(ValueError, match="takes a dict of 'token_ids'"):
        backbone.compute_output_spec({"ids": ids})
