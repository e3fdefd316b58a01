"""The choice between XLA and the graph, which changes no update; workers that are lost."""

import json
import types

import keras
import numpy as np
import pytest
import tensorflow as tf

import gpt1_keras
from gpt1_keras.optimization.optimizer import GPT1Adam
from training.runs import strategy_and_xla
from training.runs.strategy_and_xla import CompilationTrial, naming_lost_workers

STEPS = 15
ROWS = np.random.default_rng(0).integers(2, 50, (4 * STEPS, 9)).astype("int32")


class Clock:
    """Stands for the time: a step in each mode takes as long as the test says."""

    def __init__(self, graph, xla):
        self.now, self.seconds, self.model = 0.0, {False: graph, True: xla}, None
        self.modes = []

    def perf_counter(self):
        return self.now

    def on_train_batch_end(self, batch, logs=None):
        self.modes.append(self.model.jit_compile)
        is_first = self.modes.count(self.modes[-1]) == 1
        self.now += self.seconds[self.modes[-1]] + 20 * is_first


@pytest.fixture(scope="module")
def train():
    """Trains a small model; each `fit` of it takes the next of the rows."""

    def train(jit_compile, *fits, clock=None, steps=STEPS):
        keras.utils.set_random_seed(0)
        backbone = gpt1_keras.GPT1Backbone(50, 1, 2, 16, 32, max_sequence_length=16, dropout=0.1)
        lm = gpt1_keras.GPT1CausalLM(backbone)
        lm.compile(GPT1Adam(1e-2, global_clipnorm=1.0), jit_compile=jit_compile)
        callbacks = []
        if clock is not None:
            clock.model = lm
            tick = keras.callbacks.LambdaCallback(on_train_batch_end=clock.on_train_batch_end)
            callbacks = [tick, CompilationTrial(steps)]
        start = 0
        for count in fits:
            rows = ROWS[start : start + 4 * count]
            start += 4 * count
            inputs, targets = {"token_ids": rows[:, :-1]}, rows[:, 1:]
            lm.fit(inputs, targets, 4, shuffle=False, verbose=0, callbacks=callbacks)
        return lm

    return train


@pytest.fixture(scope="module")
def in_the_graph(train):
    return train(False, STEPS)


@pytest.fixture
def clock(monkeypatch):
    def make(graph, xla):
        clock = Clock(graph, xla)
        monkeypatch.setattr(
            strategy_and_xla, "time", types.SimpleNamespace(perf_counter=clock.perf_counter)
        )
        return clock

    return make


def assert_same_state(found, expected):
    """Weights, moments, the number of updates and dropout's seeds."""
    pairs = [(found.variables, expected.variables)]
    pairs.append((found.optimizer.variables, expected.optimizer.variables))
    for ours, theirs in pairs:
        for one, other in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(np.array(one), np.array(other), atol=1e-5, err_msg=one.path)


@pytest.mark.slow
@pytest.mark.parametrize(("seconds", "wins"), [((60, 50), True), ((60, 70), False)])
def test_the_faster_wins_and_no_update_differs(seconds, wins, train, in_the_graph, clock, capsys):
    """Over two `fit`s, the second of which begins while the steps are measured."""
    ours = clock(*seconds)
    lm = train(False, 6, STEPS - 6, clock=ours)
    assert ours.modes == [False] * 5 + [True] * 5 + [wins] * 5
    assert lm.jit_compile is wins
    assert_same_state(lm, in_the_graph)
    graph, xla = seconds
    figures = f"{xla} s a step in XLA, {graph} s in the graph."
    how = f"XLA, which took 20 s to compile: {figures}" if wins else f"the graph: {figures}"
    assert capsys.readouterr().out.strip() == f"Training in {how}"


@pytest.mark.slow
def test_a_run_that_is_nearly_over_stays_in_the_graph(train, clock, capsys):
    ours = clock(29, 1)  # ten steps are left after the measured ones: 290 seconds
    assert train(False, 6, clock=ours).jit_compile is False
    assert ours.modes == [False] * 6
    said = capsys.readouterr().out.strip()
    assert said.startswith("Training in the graph, at 29 s a step; the 10 that are left")


@pytest.mark.slow
def test_a_few_steps_are_not_measured(train, clock, capsys):
    ours = clock(1000, 1)
    assert train(False, 6, clock=ours, steps=10).jit_compile is False
    assert capsys.readouterr().out.strip().startswith("Training in the graph, as 10 steps are too")


def test_where_nothing_is_measured(monkeypatch):
    assert strategy_and_xla.can_try("none") and strategy_and_xla.can_try("mirrored")
    assert not strategy_and_xla.can_try("multi_worker")
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    assert not strategy_and_xla.can_try("none")


MESSAGE = """Collective ops is aborted by: recvmsg:Connection reset by peer
Additional GRPC error information from remote target /job:worker/replica:0/task:1 while calling it:
"""
OTHER = "No space on /job:worker/replica:0/task:11/device:CPU:0"


def raise_error(message):
    with naming_lost_workers():
        raise tf.errors.UnavailableError(None, None, message)


def test_a_lost_worker_is_named(monkeypatch):
    workers = ["first:2222", "second:2222"]
    config = {"cluster": {"worker": workers}, "task": {"type": "worker", "index": 0}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(config))
    with pytest.raises(ConnectionError, match="worker 1, second:2222"):
        raise_error(MESSAGE)
    with pytest.raises(tf.errors.UnavailableError, match="No space"):
        raise_error(OTHER)


def test_one_process_has_no_workers(monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    with pytest.raises(tf.errors.UnavailableError, match="Collective ops"):
        raise_error(MESSAGE)
