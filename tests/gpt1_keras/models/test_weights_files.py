"""Files of weights: written whole or not at all, equal to Keras's, and read whole or refused."""

import builtins
import json
import os
import zipfile

import h5py
import keras
import keras_hub
import numpy as np
import pytest

import gpt1_keras
from gpt1_keras.presets import load_task
from tests.helpers.small_disk import fill, small_disk

SIZES = {
    "num_layers": 3,
    "num_heads": 2,
    "hidden_dim": 8,
    "intermediate_dim": 8,
    "max_sequence_length": 16,
}


def assert_same_weights(model, expected):
    """Compares a model's weights with another's, or with a list of arrays."""
    expected = expected if isinstance(expected, list) else expected.get_weights()
    for ours, theirs in zip(model.get_weights(), expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)


# Written


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
            with pytest.raises(OSError, match="small/a.weights.h5"):
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
    assert_same_weights(tiny_backbone, before)


@pytest.mark.parametrize(
    ("method", "name", "noun"),
    [
        ("save_weights", "a.h5", r"`\.weights\.h5`"),
        ("save", "model.h5", r"\.keras"),  # from HDF5, Keras loads only its own classes
        ("save", "model.hdf5", r"\.keras"),
    ],
)
def test_names_that_are_refused(tiny_backbone, tmp_path, method, name, noun):
    with pytest.raises(ValueError, match=rf"{noun}.*{name}"):
        getattr(tiny_backbone, method)(tmp_path / name)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_keras_callback(tiny_backbone, tiny_tokenizer, tmp_path):
    preprocessor = gpt1_keras.GPT1TextClassifier.preprocessor_cls(tiny_tokenizer)
    task = gpt1_keras.GPT1TextClassifier(tiny_backbone, 2, preprocessor=preprocessor)
    path = tmp_path / "a.weights.h5"
    task.compile(run_eagerly=True)
    saved = keras.callbacks.ModelCheckpoint(str(path), save_weights_only=True)
    task.fit(["one", "two"], [0, 1], callbacks=[saved], verbose=0)
    trained = task.get_weights()
    task.head.kernel.assign(keras.ops.zeros_like(task.head.kernel))
    task.load_weights(path)
    assert_same_weights(task, trained)
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(ValueError, match="a.weights.h5"):
        task.load_weights(path)


# Read: all that the file holds, or it is refused


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
        with pytest.raises(ValueError, match=f"transformer_block_{number},"):
            load_with(num_layers=number)


def test_the_right_file(load_with, classifier):
    """Also of a model that is compiled, whose file holds an optimizer too."""
    classifier.optimizer.build(classifier.trainable_variables)
    assert_same_weights(load_with(), classifier)


def test_weights_that_are_not_finite(load_with, classifier):
    bias = np.zeros(8, "float32")
    bias[3] = np.nan
    classifier.backbone.blocks[1].contract.bias.assign(bias)
    with pytest.raises(ValueError, match=" 1 weights of 8"):
        load_with()


def test_weights_in_bfloat16_that_are_not_finite(tmp_path):
    """HDF5 does not know the type."""
    backbone = gpt1_keras.GPT1Backbone(9, **SIZES, dtype="bfloat16")
    path = tmp_path / "a.weights.h5"
    backbone.save_weights(path)
    backbone.load_weights(path)
    backbone.blocks[0].expand.bias.assign(np.full(8, np.inf))
    backbone.save_weights(path)
    with pytest.raises(ValueError, match=" 8 weights of 8"):
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
        ({"data": [b"a"] * 8}, "numbers"),
        ({"shape": (10**12,), "dtype": "float32", "chunks": (1000,)}, "declares"),
    ],
)
def test_arrays_of_strangers(stored, array, message):
    backbone, path, name = stored
    with h5py.File(path, "a") as file:
        del file[name]
        file.create_dataset(name, **array)
    with pytest.raises(ValueError, match=f"(?s)a.weights.h5.*{message}"):
        backbone.load_weights(path)


def test_what_is_outside_the_file(stored, tmp_path):
    backbone, path, name = stored
    (tmp_path / "outside").write_bytes(bytes(32))
    with h5py.File(path, "a") as file:
        del file[name]
        outside = [(str(tmp_path / "outside"), 0, 32)]
        file.create_dataset(name, (8,), "float32", external=outside)
    with pytest.raises(ValueError, match="external"):
        backbone.load_weights(path)


def test_deep_groups(stored):
    backbone, path, _ = stored
    with h5py.File(path, "a") as file:
        group = file["layers"]
        for _ in range(100):
            group = group.create_group("deep")
    with pytest.raises(ValueError, match="layers/deep"):
        backbone.load_weights(path)


def test_groups_of_layers_that_the_model_lacks(stored):
    """One without weights, such as Keras writes of an activation, changes nothing."""
    backbone, path, _ = stored
    with h5py.File(path, "a") as file:
        file.create_group("layers/activation/vars")
    backbone.load_weights(path)
    with h5py.File(path, "a") as file:
        file["layers/activation/vars/0"] = np.zeros(8, "float32")
    with pytest.raises(ValueError, match="layers/activation"):
        backbone.load_weights(path)


def test_a_mismatch_that_is_asked_for_is_a_warning(stored):
    _, path, _ = stored
    smaller = gpt1_keras.GPT1Backbone(9, **(SIZES | {"num_layers": 2}))
    with pytest.warns(UserWarning, match="transformer_block_2"):
        smaller.load_weights(path, skip_mismatch=True)


# LoRA

IDS = {"token_ids": np.random.default_rng(0).integers(0, 20, (2, 8))}


def make_backbone():
    keras.utils.set_random_seed(0)
    return gpt1_keras.GPT1Backbone(20, 2, 2, 8, 16)


@pytest.fixture
def trained():
    """A backbone all of whose trainable weights were changed."""
    backbone = make_backbone()
    backbone.enable_lora(2)
    random = np.random.default_rng(1)
    for weight in backbone.trainable_variables:
        weight.assign(weight + random.normal(size=weight.shape))
    return backbone


def test_all_that_lora_trained_is_saved(trained, tmp_path):
    trained.save_lora_weights(tmp_path / "a.lora.h5")
    copy = make_backbone()
    copy.load_lora_weights(tmp_path / "a.lora.h5")
    assert np.abs(np.array(copy(IDS)) - np.array(make_backbone()(IDS))).max() > 0.1
    np.testing.assert_array_equal(copy(IDS), trained(IDS))
    assert [path.name for path in tmp_path.iterdir()] == ["a.lora.h5"]


def test_lora_files_of_kerashub(trained, tmp_path):
    """Each reads the other's, which has no biases."""
    theirs = tmp_path / "theirs.lora.h5"
    keras_hub.models.Backbone.save_lora_weights(trained, theirs)
    copy = make_backbone()
    copy.load_lora_weights(theirs)
    for kernel, expected in zip(copy.trainable_variables, trained.trainable_variables):
        is_bias = "bias" in kernel.path
        np.testing.assert_array_equal(kernel, np.zeros(kernel.shape) if is_bias else expected)
    trained.save_lora_weights(tmp_path / "ours.lora.h5")
    keras_hub.models.Backbone.load_lora_weights(make_backbone(), tmp_path / "ours.lora.h5")


def test_files_of_lora_that_are_refused(trained, tmp_path):
    with pytest.raises(ValueError, match="lora-enabled"):
        make_backbone().save_lora_weights(tmp_path / "a.lora.h5")
    with pytest.raises(ValueError, match="`.lora.h5`"):
        trained.save_lora_weights(tmp_path / "a.h5")
    assert not list(tmp_path.iterdir())
    trained.save_lora_weights(tmp_path / "a.lora.h5")
    with h5py.File(tmp_path / "a.lora.h5", "a") as file:
        next(iter(file["lora"].values()))["vars/bias"][0] = np.nan
    with pytest.raises(ValueError, match="a.lora.h5.* NaN"):
        make_backbone().load_lora_weights(tmp_path / "a.lora.h5")
