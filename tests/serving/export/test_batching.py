"""The graph merges requests in the C++ runtime, and their answers stay the same."""

import concurrent.futures

import numpy as np
import pytest
import tensorflow as tf
from grpc import StatusCode

import gpt1_keras
from serving.export.batching import merged
from serving.export.export_options import Batching
from serving.export.exported_tasks import signatures_of
from serving.export.signature import ExportSpec
from serving.export.stored_weights import StoredWeights
from serving.server.models.servable import Servable, ServingError
from tests.helpers.tf_examples import serialized_examples

FOREVER = 600_000.0  # milliseconds: a batch that waits for more is answered once it is full
STORIES = {
    "context": ["a good film and a lovely one", "a dull film", "good " * 40],
    "question": ["the staff were?", "a film", ""],
    "choices": [["kind", "bad and dull", "é lovely"], ["good", "a film", ""], ["one", "", ""]],
}
TEXTS = ["a good film", "", "good " * 30, "the staff were kind " * 4, b"a g\xffood", "good " * 60]


def save(model, folder, batching):
    """Saves a model's signatures and loads them in the C++ runtime."""
    spec = ExportSpec(model, batching)
    weights = StoredWeights(spec)
    with weights.vectors:
        functions = {name: each.saved for name, each in signatures_of(spec).by_name.items()}
        tf.saved_model.save(weights, str(folder), signatures=functions)
    return Servable("model", 1, folder)


@pytest.fixture(scope="module")
def plain(exported_classifier):
    return Servable("model", 1, exported_classifier("single").path)


@pytest.fixture(scope="module")
def greedy(exported_classifier, tmp_path_factory):
    """Four at once, of what has come."""
    model = exported_classifier("single").model
    return save(model, tmp_path_factory.mktemp("greedy"), Batching(4, 0.0, 100))


@pytest.fixture(scope="module")
def patient(exported_classifier, tmp_path_factory):
    """Waits until a batch of three is full, and lets no second batch wait."""
    model = exported_classifier("single").model
    return save(model, tmp_path_factory.mktemp("patient"), Batching(3, FOREVER, 1))


def ask(servable, texts, signature="serving_default"):
    if signature == "serving_default":
        return servable.predict(signature, {"text": tf.make_tensor_proto(np.array(texts, object))})
    return servable.predict(
        signature, {"inputs": tf.make_tensor_proto(serialized_examples(text=texts))}
    )


def assert_same(found, expected):
    assert set(found) == set(expected)
    for name, array in expected.items():
        if array.dtype.kind == "f":
            np.testing.assert_allclose(found[name], array, atol=1e-5, rtol=0)
        else:
            assert found[name].tolist() == array.tolist()


@pytest.mark.slow
def test_answers_are_those_without_batching(plain, greedy):
    for signature in "serving_default", "classify":
        assert_same(ask(greedy, TEXTS, signature), ask(plain, TEXTS, signature))


def test_an_empty_batch(greedy):
    shapes = {
        name: array.shape
        for name, array in greedy.predict(
            "serving_default", {"text": tf.make_tensor_proto(np.array([], object), tf.string)}
        ).items()
    }
    others = dict.fromkeys(("label", "score", "num_tokens", "truncated", "blank"), (0,))
    assert shapes == {"classes": (0, 3), "scores": (0, 3), **others}


def test_many_clients_with_requests_of_any_size(plain, greedy):
    requests = [(TEXTS * 2)[start : start + 1 + start % 5] for start in range(6)] * 6
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        found = list(pool.map(lambda texts: ask(greedy, texts), requests))
    for texts, answers in zip(requests, found):
        assert_same(answers, ask(plain, texts))


@pytest.mark.parametrize(
    ("columns", "count"),
    [
        ([["a", "b", "a", "", "a", ""]], 3),
        ([["a b", "a", "a b", "1 a"], ["c", "b c", "c", ""]], 3),  # the first two, joined, are one
        ([["1 1", "1", ""], ["1", "1 1", "1 1 1"]], 3),
        ([[], []], 0),
    ],
)
def test_repeated_examples_are_computed_once(columns, count):
    names = ["first", "second"][: len(columns)]

    def spell(**strings):
        rows = tf.stack(list(strings.values()), axis=1)
        spelled = tf.strings.reduce_join(rows, axis=1, separator="|")
        return {"spelled": spelled, "count": tf.fill(tf.shape(spelled), tf.size(spelled))}

    call = merged(spell, names, Batching(8))
    texts = {name: tf.constant(column, tf.string) for name, column in zip(names, columns)}
    found = tf.function(call, autograph=False)(**texts)
    assert found["spelled"].numpy().tolist() == [
        "|".join(row).encode() for row in zip(*columns, strict=True)
    ]
    assert found["count"].numpy().tolist() == [count] * len(columns[0])


def test_a_task_that_only_keras_computes(exported_classifier, plain):
    """It goes bucket by bucket."""

    class OtherClassifier(gpt1_keras.GPT1TextClassifier):
        def predict_outputs(self, inputs):
            return super().predict_outputs(inputs)

    model = exported_classifier("single").model
    other = OtherClassifier(
        model.backbone, class_names=model.class_names, preprocessor=model.preprocessor
    )
    other.head.set_weights(model.head.get_weights())
    answer = signatures_of(ExportSpec(other, Batching(4))).by_name["serving_default"].compiled
    found = {name: each.numpy() for name, each in answer(text=tf.constant(TEXTS)).items()}
    assert_same(found, ask(plain, TEXTS))


@pytest.mark.slow
def test_requests_are_merged_over_signatures(plain, patient):
    """Neither of two requests is enough for the batch that both have to wait for."""
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        first = pool.submit(ask, patient, TEXTS[:2], "classify")
        with pytest.raises(concurrent.futures.TimeoutError):
            first.result(timeout=2.0)
        second = ask(patient, TEXTS[2:3])
        assert_same(first.result(timeout=60), ask(plain, TEXTS[:2], "classify"))
    assert_same(second, ask(plain, TEXTS[2:3]))


@pytest.mark.slow
def test_a_full_queue_is_unavailable_at_once(plain, patient):
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(ask, patient, TEXTS[:2])
        with pytest.raises(concurrent.futures.TimeoutError):
            waiting.result(timeout=2.0)
        with pytest.raises(ServingError, match="queue .* is full") as caught:
            ask(patient, TEXTS[:2])
        assert caught.value.code == StatusCode.UNAVAILABLE
        ask(patient, TEXTS[:1])  # for one there is room
        assert_same(waiting.result(timeout=60), ask(plain, TEXTS[:2]))


@pytest.mark.parametrize(
    ("signature", "inputs"),
    [
        ("serving_default", {"text": [["a"], ["b"]]}),
        ("serving_default", {"text": "a"}),
        ("serving_default", {"text": ["a"] * 401}),  # a queue holds 400
        ("classify", {"inputs": ["no example"]}),
    ],
)
def test_a_bad_request_is_refused_before_it_is_merged(greedy, signature, inputs):
    protos = {name: tf.make_tensor_proto(value) for name, value in inputs.items()}
    with pytest.raises(ServingError) as caught:
        greedy.predict(signature, protos)
    assert caught.value.code == StatusCode.INVALID_ARGUMENT


@pytest.mark.slow
def test_choices_of_different_numbers(chooser, path_of, tmp_path):
    plain = Servable("model", 1, path_of("chooser"))
    patient = save(chooser, tmp_path / "patient", Batching(3, FOREVER, 2))
    requests = [
        {name: tf.make_tensor_proto(column[row : row + 1]) for name, column in STORIES.items()}
        for row in range(2)
    ]
    requests[1]["choices"] = tf.make_tensor_proto([["good", "a film"]])
    rows = {name: column[2:] for name, column in STORIES.items()}
    rows["choices"] = [["one"]]
    requests.append({"inputs": tf.make_tensor_proto(serialized_examples(**rows))})
    names = ["serving_default", "serving_default", "classify"]
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        found = list(pool.map(patient.predict, names, requests))
    for name, request, answers in zip(names, requests, found):
        assert_same(answers, plain.predict(name, request))
    # More than a batch holds; of the second half, no example has more than one choice.
    split = {
        name: tf.make_tensor_proto([column[row] for row in (0, 1, 1, 2, 2, 2)])
        for name, column in STORIES.items()
    }
    whole = "serving_default", split
    assert_same(patient.predict(*whole), plain.predict(*whole))
    empty = {name: tf.make_tensor_proto([], tf.string) for name in STORIES}
    empty["choices"].tensor_shape.dim.add(size=3)
    for servable in plain, patient:
        assert not any(each.size for each in servable.predict("serving_default", empty).values())
    nothing = {**requests[1], "choices": tf.make_tensor_proto([["", ""]])}
    for servable in plain, patient:
        with pytest.raises(ServingError, match="Every example needs a choice"):
            servable.predict("serving_default", nothing)


@pytest.mark.parametrize(
    ("name", "value"),
    [("max_batch_size", 0), ("max_queue", -1), ("timeout_ms", -0.5), ("timeout_ms", float("nan"))],
)
def test_bad_sizes(name, value):
    with pytest.raises(ValueError, match=rf"{name}.*Received: {value}"):
        Batching(**{name: value})
