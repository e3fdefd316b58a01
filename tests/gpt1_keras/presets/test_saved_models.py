"""Presets and `.keras` files that earlier code saved load; a `.keras` file trains on as it was."""

import json
import pathlib

import keras
import numpy as np
import pytest

import gpt1_keras
from gpt1_keras.optimization.optimizer import FinetuningSchedule, GPT1Adam
from gpt1_keras.presets import load_task
from tests.helpers.eager import eagerly
from tests.helpers.make_saved_models import INPUTS, PRESETS

FOLDER = pathlib.Path(__file__).with_name("saved_models")
EXPECTED = json.loads((FOLDER / "predictions.json").read_text())


@pytest.fixture(scope="module", params=sorted(EXPECTED))
def name(request):
    return request.param


@pytest.fixture(scope="module")
def task(name):
    if name in PRESETS:
        return load_task(FOLDER / name)
    return keras.saving.load_model(FOLDER / f"{name}.keras")


@pytest.mark.slow
def test_it_predicts_what_it_did(name, task):
    task.compile(run_eagerly=True)
    found = task.predict(INPUTS[name], verbose=0)
    np.testing.assert_allclose(found, EXPECTED[name], atol=1e-6)


def test_the_weights_have_their_paths(name, task):
    paths = [variable.path for variable in task.weights]
    if name != "lm":
        assert paths[-2:] == ["head/kernel", "head/bias"]
        assert isinstance(task.head, keras.layers.Dense)
        assert isinstance(task.extract_dropout, keras.layers.Dropout)
        assert task.auxiliary.token_embedding is task.backbone.token_embedding
    if name != "lstm":
        block = [path for path in paths if path.startswith("block_1/")]
        assert block == [
            "block_1/attention/qkv/kernel",
            "block_1/attention/qkv/bias",
            "block_1/attention/output_projection/kernel",
            "block_1/attention/output_projection/bias",
            "block_1/attention_norm/gamma",
            "block_1/attention_norm/beta",
            "block_1/expand/kernel",
            "block_1/expand/bias",
            "block_1/contract/kernel",
            "block_1/contract/bias",
            "block_1/feedforward_norm/gamma",
            "block_1/feedforward_norm/beta",
        ]


@pytest.mark.parametrize("name", PRESETS)
def test_it_has_its_arguments(name):
    saved = json.loads((FOLDER / name / "task.json").read_text())["config"]
    found = json.loads(json.dumps(load_task(FOLDER / name).get_config()))
    assert found.keys() == saved.keys()
    for argument in saved.keys() - {"backbone", "preprocessor"}:
        assert found[argument] == saved[argument]


def test_metadata_names_the_tasks(tmp_path):
    load_task(FOLDER / PRESETS[0]).save_to_preset(tmp_path)
    tasks = json.loads((tmp_path / "metadata.json").read_text())["tasks"]
    assert {name for name in gpt1_keras.__all__ if hasattr(getattr(gpt1_keras, name), "fit")} <= {
        *tasks,
        "GPT1Backbone",
        "LSTMBackbone",
    }
    assert "Task" not in tasks


# === Training that goes on from a `.keras` file ===

DATA = {"batch_size": 2, "shuffle": False, "verbose": 0}
CLASSIFIER = (["a good film", "a bad film", "kind", "dull"], [0, 1, 0, 1])


@keras.saving.register_keras_serializable("tests")
class OptimizerOfAUser(keras.optimizers.SGD):
    pass


def make_trainable(tokenizer, name="classifier", **arguments):
    """A small task without dropout, whose seeds Keras does not save."""
    keras.utils.set_random_seed(0)
    size = tokenizer.vocabulary_size()
    backbone = gpt1_keras.GPT1Backbone(size, 1, 2, 8, 16, dropout=0.0, max_sequence_length=16)
    if name == "lm":
        preprocessor = gpt1_keras.GPT1CausalLMPreprocessor(tokenizer, 16)
        task = gpt1_keras.GPT1CausalLM(backbone, preprocessor)
    else:
        preprocessor = gpt1_keras.GPT1TextClassifierPreprocessor(tokenizer, 16)
        task = gpt1_keras.GPT1TextClassifier(backbone, 2, preprocessor, dropout=0.0)
    task.compile(**arguments)
    return task


COMPILED = {
    "all": (
        "classifier",
        lambda: {
            "optimizer": GPT1Adam(
                FinetuningSchedule(1e-2), layer_decay=0.5, gradient_accumulation_steps=2
            ),
            "lm_coefficient": 0.2,
            "accumulation_steps": 2,
            "metrics": ["accuracy"],
            "weighted_metrics": [keras.metrics.SparseCategoricalCrossentropy(from_logits=True)],
        },
    ),
    "a user's optimizer": ("classifier", lambda: {"optimizer": OptimizerOfAUser(0.1, 0.9)}),
    "a language model": (
        "lm",
        lambda: {
            "optimizer": GPT1Adam(1e-2),
            "sampler": "greedy",
            "weighted_metrics": ["accuracy"],
        },
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("compiled", COMPILED)
def test_a_loaded_task_trains_on_as_it_was(compiled, tiny_tokenizer, tmp_path):
    """KerasHub's tasks forget what `compile` was given."""
    name, arguments = COMPILED[compiled]
    data = CLASSIFIER[:1] if name == "lm" else CLASSIFIER
    with eagerly():
        task = make_trainable(tiny_tokenizer, name, **arguments())
        task.fit(*data, **DATA)
        task.save(tmp_path / "task.keras")
        loaded = keras.saving.load_model(tmp_path / "task.keras")
        expected = [task.fit(*data, **DATA).history for _ in range(2)]
        assert [loaded.fit(*data, **DATA).history for _ in range(2)] == expected
    assert type(loaded.optimizer) is type(task.optimizer)
    if name == "lm":
        assert type(loaded.sampler) is type(task.sampler)


@pytest.mark.slow
def test_checkpoints_and_backups_of_keras(tiny_tokenizer, tmp_path):
    class Interruption(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            if epoch == 1:
                raise KeyboardInterrupt

    def train(task, *callbacks, **epochs):
        return task.fit(*CLASSIFIER, **DATA, callbacks=callbacks, **epochs).history["loss"]

    with eagerly():
        checkpoint = keras.callbacks.ModelCheckpoint(tmp_path / "{epoch}.keras")
        expected = train(make_trainable(tiny_tokenizer), checkpoint, epochs=3)
        loaded = keras.saving.load_model(tmp_path / "2.keras")
        assert train(loaded, epochs=3, initial_epoch=2) == expected[2:]
        backup = keras.callbacks.BackupAndRestore(tmp_path / "backup")
        with pytest.raises(KeyboardInterrupt):
            train(make_trainable(tiny_tokenizer), backup, Interruption(), epochs=3)
        assert train(make_trainable(tiny_tokenizer), backup, epochs=3) == expected[2:]


def test_what_is_not_compiled_as_it_was(tiny_tokenizer, tmp_path, recwarn):
    task = make_trainable(tiny_tokenizer, optimizer="sgd", lm_coefficient=0.0)
    task.save(tmp_path / "task.keras")
    loaded = keras.saving.load_model(tmp_path / "task.keras")
    assert isinstance(loaded.optimizer, keras.optimizers.SGD)
    assert loaded.auxiliary.coefficient == 0.0
    assert not [each for each in recwarn if each.category is UserWarning]
    loaded = keras.saving.load_model(tmp_path / "task.keras", compile=False)
    assert isinstance(loaded.optimizer, GPT1Adam)  # as after the constructor
    with pytest.warns(UserWarning, match="earlier version.*GPT1TextSimilarity"):
        keras.saving.load_model(FOLDER / "similarity.keras")
