"""Requests of a language model are merged, whatever their lengths and options, with their answers.

The C++ runtime runs them. Batches wait until they are full, so that who is merged is no chance.
"""

import concurrent.futures
import itertools

import numpy as np
import pytest
import tensorflow as tf
from grpc import StatusCode
from tensorflow.core.protobuf.config_pb2 import RunOptions

from serving.export.export_options import Batching
from serving.export.exported_tasks import signatures_of
from serving.export.signature import ExportSpec
from serving.export.stored_weights import StoredWeights
from serving.runtime import StatusError
from serving.server.limits import UNLIMITED, Budget
from serving.server.models.servable import Servable, ServingError

CONTEXT = 48
FOREVER = 600_000.0  # milliseconds
RTOL = 2e-6  # these weights are random and large: some tokens have -20 nats
TYPES = {"length": np.int32, "temperature": np.float32, "top_k": np.int32, "seed": np.int32}
TYPES["top_p"] = np.float32  # the last column, which most rows leave to 1
# Prompts of 1 to 48 tokens; continued by 1 to 47; by each way to choose, alone and together.
ROWS = [
    ("a good film", 40, 0.0, 0, 0),
    ("a", 1, 1.0, 0, 5),
    ("good " * 60, 8, 0.7, 3, 7),
    ("the staff were kind, and one", 17, 1.5, 0, -2),
    ("a", 47, 2.0, 2**31 - 1, 3),
    ("a good film", 40, 1.0, 0, 11),
    ("a good film", 40, 1.0, 0, 12),
    ("lovely", 20, 1e-45, 5, 1),
]
ROWS = [(*row, 0.8 if row[-1] == 11 else 1.0) for row in ROWS]
# 8 rows in requests of these sizes, which come in any order, fill two batches of 4.
SIZES = [1, 5, 2]
TEXTS = [row[0] for row in ROWS[:4]] + ["", "good " * 10, "lovely", "é a"]


@pytest.fixture(scope="module")
def plain(path_of):
    return Servable("lm", 1, path_of("lm"))


@pytest.fixture(scope="module")
def merging(lm, tmp_path_factory):
    """In the graph, until there are 4 rows; and scores a few tokens at a time."""
    path = tmp_path_factory.mktemp("merging")
    spec = ExportSpec(lm, Batching(4, FOREVER, 8))
    weights = StoredWeights(spec)
    with pytest.MonkeyPatch.context() as patch, weights.vectors:
        patch.setattr("serving.export.language_model_signatures._ROWS_OF_LOGITS", 5)
        functions = {name: each.saved for name, each in signatures_of(spec).by_name.items()}
        tf.saved_model.save(weights, str(path), signatures=functions)
    return Servable("lm", 1, path)


def ask(servable, signature, rows, budget=UNLIMITED):
    if signature == "score":
        inputs = {"text": np.array(rows, object)}
    else:
        text, *options = zip(*rows)
        inputs = {"text": np.array(text, object)}
        inputs |= {name: np.array(o, TYPES[name]) for name, o in zip(TYPES, options)}
    protos = {name: tf.make_tensor_proto(value) for name, value in inputs.items()}
    return servable.predict(signature, protos, budget=budget)


def ask_at_once(servable, signature, rows):
    """The answers to requests of several rows, from as many clients."""
    ends = list(itertools.accumulate(SIZES))
    requests = [rows[end - size : end] for end, size in zip(ends, SIZES)]
    with concurrent.futures.ThreadPoolExecutor(len(requests)) as pool:
        found = list(pool.map(lambda each: ask(servable, signature, each), requests))
    return zip(requests, found)


@pytest.mark.slow
def test_generation(plain, merging):
    for rows, found in ask_at_once(merging, "generate", ROWS):
        for index, row in enumerate(rows):
            for name, values in ask(plain, "generate", [row]).items():
                assert values.tolist() == [found[name][index]]


@pytest.mark.slow
def test_scores(plain, merging):
    for rows, found in ask_at_once(merging, "score", TEXTS):
        expected = ask(plain, "score", rows)
        assert set(found) == set(expected)
        for name, values in expected.items():  # in the same shapes, whoever else was longer
            np.testing.assert_allclose(found[name], values, atol=1e-5, rtol=RTOL)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("row", "message"),
    [
        (("a", CONTEXT, 0.0, 0, 0), "length"),
        ((" ", 1, 0.0, 0, 0), "token"),
    ],
)
def test_a_bad_request_is_refused_while_others_wait(plain, merging, row, message):
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(ask, merging, "generate", ROWS[:3])
        with pytest.raises(ServingError, match=message) as caught:
            ask(merging, "generate", [ROWS[3], row])
        assert caught.value.code == StatusCode.INVALID_ARGUMENT
        ask(merging, "generate", ROWS[3:4])  # which fills the batch
        expected = ask(plain, "generate", ROWS[:3])
        assert waiting.result(60)["text"].tolist() == expected["text"].tolist()


class EndedSession:
    """Ends so many runs as if the last request of their batch had run out of time."""

    def __init__(self, session, times):
        self.session, self.times, self.limits = session, times, []

    def run(self, feeds, fetches, options):
        self.limits.append(RunOptions.FromString(options).timeout_in_ms)
        if len(self.limits) <= self.times:
            raise StatusError(StatusCode.CANCELLED.value[0], "Loop execution was cancelled.")
        return self.session.run(feeds, fetches, options)


def test_a_batch_that_a_neighbour_ends_is_run_again(plain, monkeypatch):
    expected = ask(plain, "generate", ROWS[:1])["text"].tolist()
    session = plain._session
    monkeypatch.setattr(plain, "_session", EndedSession(session, 3))
    assert ask(plain, "generate", ROWS[:1])["text"].tolist() == expected
    assert plain._session.limits == [0] * 4
    monkeypatch.setattr(plain, "_session", EndedSession(session, 4))
    with pytest.raises(ServingError) as caught:
        ask(plain, "generate", ROWS[:1], Budget(seconds=60))
    assert caught.value.code == StatusCode.CANCELLED
    assert len(plain._session.limits) == 4 and 0 < min(plain._session.limits) <= 60_000


def test_more_rows_than_a_queue_holds(merging):
    with pytest.raises(ServingError) as caught:
        ask(merging, "generate", [("a", 1, 0.0, 0, 0)] * 33)
    assert caught.value.code == StatusCode.INVALID_ARGUMENT
