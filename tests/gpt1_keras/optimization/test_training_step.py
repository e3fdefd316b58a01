"""The training step: the same on one replica, two replicas, two workers and on JAX."""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys

import keras
import numpy as np
import pytest

import gpt1_keras
from gpt1_keras.optimization.optimizer import GPT1Adam
from tests.helpers import forked
from tests.helpers.train_under import train_under

TESTS = pathlib.Path(__file__).parents[2]
TRAINED = ("plain", "xla_in_slices", "sgd", "lora", "float16")
DIVIDED = ("odd", "classifier", "odd_classifier", "generator")
AMONG_WORKERS = ("xla_in_slices", "sgd", "float16")
SAME_ON_JAX = {"plain": "plain", "lora": "lora", "xla_in_slices": "in_slices"}
HAS_JAX = importlib.util.find_spec("jax") is not None
TOLERANCES = {"float16": 1e-3}  # as each replica's share is rounded by itself; else 1e-5


# Most of it is compiling, and small functions need no optimization.
QUICKLY = {"XLA_FLAGS": "--xla_backend_optimization_level=0"}


def start_on_jax(path):
    helpers = TESTS / "helpers"
    command = [sys.executable, helpers / "without_tensorflow.py", helpers / "train_under.py"]
    with open(path.with_suffix(".log"), "w") as log:
        return subprocess.Popen(
            [*command, path, "jax", *SAME_ON_JAX.values()],
            stderr=log,
            cwd=TESTS.parent,
            env={**os.environ, **QUICKLY},
        )


@pytest.fixture(scope="module")
def result_of(free_ports, tmp_path_factory):
    """What a process returns; all train side by side, as most of each is tracing, on one core."""
    folder = tmp_path_factory.mktemp("training_step")

    def start(name, strategy, scenarios, environment=None):
        path = folder / f"{name}.json"
        return forked.start(
            train_under,
            *(path, strategy, *scenarios),
            log=path.with_suffix(".log"),
            environment={**QUICKLY, **(environment or {})},
        )

    scenarios = (*TRAINED, *DIVIDED, "dropout")
    processes = {
        "one": start("one", "one", scenarios),
        "mirrored": start("mirrored", "mirrored", (*scenarios, "measured")),
    }
    cluster = {"worker": [f"localhost:{port}" for port in free_ports(2)]}
    for index in range(2):
        task = {"cluster": cluster, "task": {"type": "worker", "index": index}}
        name, environment = f"worker_{index}", {"TF_CONFIG": json.dumps(task)}
        processes[name] = start(name, "workers", AMONG_WORKERS, environment)
    if HAS_JAX:
        processes["jax"] = start_on_jax(folder / "jax.json")

    def result_of(name):
        path, process = folder / f"{name}.json", processes[name]
        if name == "jax":
            status = process.wait(600)
        else:
            process.join(600)
            status = process.exitcode
        assert status == 0, path.with_suffix(".log").read_text()
        return json.loads(path.read_text())

    yield result_of
    for process in processes.values():
        process.kill()


@pytest.fixture(scope="module")
def one(result_of):
    return result_of("one")


@pytest.fixture(scope="module")
def mirrored(result_of):
    return result_of("mirrored")


@pytest.fixture(scope="module")
def workers(result_of):
    """The results of both workers."""
    return [result_of(f"worker_{index}") for index in range(2)]


def assert_same(found, expected, scenario):
    tolerance = TOLERANCES.get(scenario, 1e-5)
    assert len(found["losses"]) == len(expected["losses"]) > 1
    assert np.all(np.isfinite(expected["losses"]))
    assert np.std(expected["losses"]) > 1e-3
    np.testing.assert_allclose(found["losses"], expected["losses"], rtol=0, atol=tolerance)
    for name in expected.keys() & {"loss", "accuracy", "mae"}:
        assert found[name] == pytest.approx(expected[name], abs=tolerance)
    if "norms" in expected:
        np.testing.assert_allclose(found["norms"], expected["norms"], rtol=10 * tolerance)


@pytest.mark.slow
@pytest.mark.parametrize("scenario", TRAINED)
def test_two_replicas_train_as_one(scenario, one, mirrored):
    assert_same(mirrored[scenario], one[scenario], scenario)


@pytest.mark.slow
@pytest.mark.parametrize("scenario", AMONG_WORKERS)
def test_two_workers_train_as_one(scenario, one, workers):
    for worker in workers:
        assert_same(worker[scenario], one[scenario], scenario)


@pytest.mark.slow
def test_the_gradient_is_clipped_once_for_all(one, mirrored, workers):
    """With rate 1, plain descent moves by the clipped gradient itself."""
    for run in (one, mirrored, *workers):
        np.testing.assert_allclose(run["sgd"]["norms"], 0.1, rtol=1e-4)


@pytest.mark.slow
def test_xla_and_slices_of_a_batch_change_nothing(one):
    assert_same(one["xla_in_slices"], one["plain"], "xla_in_slices")


@pytest.mark.slow
def test_two_replicas_change_to_xla_while_they_train(one, mirrored):
    assert_same(mirrored["measured"], one["plain"], "measured")


@pytest.mark.slow
def test_float16_trains_nearly_as_float32(one):
    np.testing.assert_allclose(one["float16"]["losses"], one["plain"]["losses"], atol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("scenario", DIVIDED)
def test_data_sets_that_the_strategy_divides(scenario, one, mirrored):
    """A replica may get nothing of the last batch; labels and texts go with each other."""
    assert_same(mirrored[scenario], one[scenario], scenario)


@pytest.mark.slow
def test_replicas_drop_differently(one, mirrored):
    """Both have the same row: if they dropped alike, the mean would be one replica's loss."""
    assert abs(mirrored["dropout"]["losses"][0] - one["dropout"]["losses"][0]) > 1e-3


@pytest.mark.slow
@pytest.mark.skipif(not HAS_JAX, reason="JAX is not installed")
def test_jax_trains_as_tensorflow(one, result_of):
    found = result_of("jax")
    for on_tensorflow, on_jax in SAME_ON_JAX.items():
        assert_same(found[on_jax], one[on_tensorflow], on_tensorflow)


# === `fit` and its kin in this process ===


@pytest.fixture
def rows(tiny_tokenizer):
    random = np.random.default_rng(0)
    return random.integers(0, tiny_tokenizer.vocabulary_size(), (6, 12)).astype("int32")


@pytest.fixture
def lm(tiny_backbone):
    return gpt1_keras.GPT1CausalLM(tiny_backbone)


@pytest.mark.slow
def test_an_eager_step_is_the_same(lm, rows):
    weights = lm.get_weights()
    losses = []
    for run_eagerly in (False, True):
        lm.set_weights(weights)
        keras.utils.set_random_seed(0)
        for layer in lm.backbone._flatten_layers():
            if hasattr(layer, "rate"):
                layer.rate = 0.0
            if hasattr(layer, "dropout"):
                layer.dropout = 0.0
        lm.compile(GPT1Adam(1e-2), run_eagerly=run_eagerly)
        history = lm.fit(
            {"token_ids": rows}, rows, batch_size=2, epochs=2, shuffle=False, verbose=0
        )
        losses.append(history.history["loss"])
    np.testing.assert_allclose(*losses, atol=1e-5)


@pytest.mark.slow
def test_single_batches(lm, rows):
    lm.compile(GPT1Adam(1e-2), jit_compile=False)
    first = lm.test_on_batch({"token_ids": rows}, rows, return_dict=True)
    assert first["perplexity"] == pytest.approx(np.exp(first["loss"]), rel=1e-5)
    for _ in range(20):
        lm.reset_metrics()
        logs = lm.train_on_batch({"token_ids": rows}, rows, return_dict=True)
    assert logs["loss"] < first["loss"] - 0.5
    assert lm.predict_on_batch({"token_ids": rows}).shape == (6, 12, lm.backbone.vocabulary_size)


@pytest.mark.slow
def test_weights_of_tokens(lm, rows):
    """A mean over what counts: tokens of weight 0 change nothing."""
    lm.compile(GPT1Adam(1e-2), jit_compile=False)
    weights = np.zeros(rows.shape, "float32")
    weights[:, :5] = 1.0
    found = lm.evaluate({"token_ids": rows}, rows, batch_size=4, sample_weight=weights, verbose=0)
    cut = lm.evaluate({"token_ids": rows[:, :5]}, rows[:, :5], batch_size=4, verbose=0)
    assert found[0] == pytest.approx(cut[0], abs=1e-5)


@pytest.mark.slow
def test_a_user_s_loss_and_metrics_get_logits(lm, rows):
    lm.compile(
        "adam",
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        weighted_metrics=[keras.metrics.SparseCategoricalAccuracy()],
        jit_compile=False,
    )
    logs = lm.evaluate({"token_ids": rows}, rows, verbose=0, return_dict=True)
    logits = lm.predict({"token_ids": rows}, verbose=0)
    expected = keras.ops.sparse_categorical_crossentropy(rows, logits, from_logits=True)
    assert logs["loss"] == pytest.approx(float(keras.ops.mean(expected)), abs=1e-5)
    assert logs["sparse_categorical_accuracy"] == pytest.approx(np.mean(logits.argmax(-1) == rows))
    before = logs["loss"]
    lm.fit({"token_ids": rows}, rows, epochs=5, verbose=0)
    assert lm.evaluate({"token_ids": rows}, rows, verbose=0, return_dict=True)["loss"] < before


@pytest.mark.slow
def test_float16_skips_an_update_that_overflows(tiny_tokenizer, rows):
    backbone = gpt1_keras.GPT1Backbone(
        tiny_tokenizer.vocabulary_size(),
        1,
        2,
        16,
        32,
        max_sequence_length=64,
        dropout=0.0,
        dtype="mixed_float16",
    )
    lm = gpt1_keras.GPT1CausalLM(backbone)
    optimizer = keras.optimizers.LossScaleOptimizer(GPT1Adam(1e-2), initial_scale=2.0**40)
    lm.compile(optimizer, jit_compile=False)
    before = lm.get_weights()
    history = lm.fit({"token_ids": rows}, rows, verbose=0)
    assert np.isfinite(history.history["loss"][0])  # which is not scaled
    for old, new in zip(before, lm.get_weights()):
        np.testing.assert_array_equal(old, new)
    assert float(optimizer.dynamic_scale) == 2.0**39
    assert int(optimizer.inner_optimizer.iterations) == 0


@pytest.mark.slow
def test_more_slices_than_rows(lm, rows):
    """Some get nothing."""
    lm.compile(GPT1Adam(1e-2), jit_compile=False, accumulation_steps=4)
    history = lm.fit({"token_ids": rows[:3]}, rows[:3], verbose=0)
    assert np.isfinite(history.history["loss"][0])


TEXTS = ["a good film", "a bad film", "the staff were kind"]
EXAMPLES = {
    "TextClassifier": (TEXTS, [0, 1, 0], {"num_classes": 2}),
    "TextSimilarity": ((TEXTS, TEXTS[::-1]), [1.0, 5.0, 2.0], {"score_range": (1, 5)}),
    "MultipleChoice": ((TEXTS, TEXTS, [["good", "bad"]] * 3), [0, 1, 0], {}),
}


@pytest.mark.slow
@pytest.mark.parametrize("run_eagerly", [True, False])
@pytest.mark.parametrize("kind", EXAMPLES)
def test_a_last_batch_of_fewer_texts_than_slices(kind, run_eagerly, tiny_tokenizer):
    """Its empty slice was refused as a text without tokens."""
    texts, labels, arguments = EXAMPLES[kind]
    task_cls, weights = getattr(gpt1_keras, f"GPT1{kind}"), []
    for accumulation_steps in (1, 2):
        keras.utils.set_random_seed(0)
        backbone = gpt1_keras.GPT1Backbone(tiny_tokenizer.vocabulary_size(), 1, 2, 8, 16, 0.0, 24)
        preprocessor = task_cls.preprocessor_cls(tiny_tokenizer, 24)
        task = task_cls(backbone, preprocessor=preprocessor, dropout=0.0, **arguments)
        task.compile(
            keras.optimizers.SGD(0.1),
            accumulation_steps=accumulation_steps,
            run_eagerly=run_eagerly,
            jit_compile=False,
        )
        task.fit(texts, labels, batch_size=2, shuffle=False, verbose=0)
        weights.append(task.get_weights())
    for found, expected in zip(*weights, strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-6)
