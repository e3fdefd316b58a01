"""Exports answer in TensorFlow's C++ runtime as the Keras model does, and load anywhere."""

import base64
import collections
import json

import grpc
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.framework.types_pb2 import DataType

import gpt1_keras
from gpt1_keras.tokenization.padding import bucket_lengths
from serving import check
from serving.export.exported_tasks import signatures_of
from serving.export.signature import ExportSpec
from serving.export.warmup import warmup_requests
from serving.server.inference import read_warmup
from serving.server.models.servable import Servable, ServingError
from tests.helpers.tf_examples import serialized_example, serialized_examples

CLASS_NAMES = ["negative", "neutral", "positive"]
SEQUENCE_LENGTH = 40


def encode(text):
    return text.encode() if isinstance(text, str) else text


def json_texts(exported):
    return {
        field: [
            text if isinstance(text, str) else {"b64": base64.b64encode(text).decode()}
            for text in texts
        ]
        for field, texts in zip(exported.fields, exported.texts)
    }


@pytest.fixture(scope="module", params=["single", "pair"])
def exported(request, exported_classifier):
    return exported_classifier(request.param)


@pytest.fixture(scope="module")
def servable(exported):
    return Servable("sentiment", 1, exported.path)


# --- in the C++ runtime ---


@pytest.mark.slow
def test_signatures(exported, servable):
    texts = dict.fromkeys(exported.fields, "DT_STRING [-1]")
    ids = dict.fromkeys(["token_ids", "padding_mask"], "DT_INT32 [-1, -1]")
    answers = {
        "label": "DT_STRING [-1]",
        "score": "DT_FLOAT [-1]",
        "classes": "DT_STRING [-1, 3]",
        "scores": "DT_FLOAT [-1, 3]",
        "num_tokens": "DT_INT32 [-1]",
    }
    truncated = {"truncated": "DT_BOOL [-1]"}
    blank = {"blank": "DT_BOOL [-1]"}
    expected = {
        "serving_default": (texts, answers | truncated | blank),
        "tokens": (ids, answers),
        "tokenize": (texts, ids | dict.fromkeys(["starts", "ends"], ids["token_ids"]) | truncated),
        "classify": (
            {"inputs": "DT_STRING [-1]"},
            {"classes": "DT_STRING [-1, 3]", "scores": "DT_FLOAT [-1, 3]"},
        ),
    }
    found = {
        name: (described(signature.inputs), described(signature.outputs))
        for name, signature in servable.signature_defs.items()
        if not name.startswith("__")
    }
    assert found == expected


def described(tensors):
    return {
        alias: f"{DataType.Name(info.dtype)} {[dim.size for dim in info.tensor_shape.dim]}"
        for alias, info in tensors.items()
    }


@pytest.mark.slow
def test_serving_default(exported, run_cpp):
    found = run_cpp(exported.path, "serving_default", **json_texts(exported))
    np.testing.assert_allclose(found["scores"], exported.scores, atol=1e-5, rtol=0)
    assert found["label"] == exported.labels
    assert found["score"] == [max(scores) for scores in found["scores"]]
    assert found["classes"] == [CLASS_NAMES] * len(exported.labels)
    assert len(set(exported.labels)) > 1
    assert found["num_tokens"] == exported.num_tokens
    assert found["truncated"] == exported.truncated
    assert found["blank"] == exported.blank
    assert set(exported.truncated) == set(exported.blank) == {True, False}


def test_classify(exported, servable):
    examples = serialized_examples(**dict(zip(exported.fields, exported.texts)))
    found = servable.predict("classify", tensor_protos(inputs=examples))
    np.testing.assert_allclose(found["scores"], exported.scores, atol=1e-5, rtol=0)
    assert decoded(found["classes"]) == [CLASS_NAMES] * len(examples)


@pytest.mark.slow
def test_tokenize_and_tokens(exported, servable):
    x = tuple(np.array([encode(text) for text in texts], object) for texts in exported.texts)
    texts = dict(zip(exported.fields, x))
    found = servable.predict("tokenize", tensor_protos(**texts))
    inputs = exported.model.preprocessor(texts)
    for name in ("token_ids", "padding_mask"):
        assert found[name].tolist() == inputs[name].numpy().tolist()
    assert found.pop("truncated").tolist() == exported.truncated
    tokenizer = exported.model.preprocessor.tokenizer
    _, *offsets = (each.to_list() for each in tokenizer.tokenize_with_offsets(x[0]))
    limit = max(exported.num_tokens) - 2 if len(x) == 1 else SEQUENCE_LENGTH // 2 - 1
    for name, expected in zip(("starts", "ends"), offsets):
        assert found[name].shape == found["token_ids"].shape
        for row, first in zip(found.pop(name).tolist(), expected):
            count = min(len(first), limit)
            assert row[: count + 2] == [-1, *first[:count], -1]

    answers = servable.predict("tokens", tensor_protos(**found))
    np.testing.assert_allclose(answers["scores"], exported.scores, atol=1e-5, rtol=0)
    assert decoded(answers["label"]) == exported.labels
    assert answers["num_tokens"].tolist() == exported.num_tokens


def decoded(strings):
    return np.char.decode(strings.astype(bytes)).tolist()


@pytest.mark.slow
def test_every_signature_runs_without_python_tensorflow(exported, capsys):
    """In a process of its own, without XLA, from another folder, for each warm-up request."""
    assert check.main([str(exported.path)]) == 0, capsys.readouterr().out
    assert "made up" not in capsys.readouterr().out


# --- in the embedded server ---


def tensor_protos(**tensors):
    return {name: tf.make_tensor_proto(tensor) for name, tensor in tensors.items()}


def test_an_empty_batch(exported, servable):
    texts = {field: tf.constant([], tf.string) for field in exported.fields}
    found = servable.predict("serving_default", tensor_protos(**texts))
    shapes = {name: array.shape for name, array in found.items()}
    others = dict.fromkeys(("label", "score", "num_tokens", "truncated", "blank"), (0,))
    assert shapes == {"classes": (0, 3), "scores": (0, 3), **others}


@pytest.mark.parametrize("exported", ["single"], indirect=True)
def test_texts_of_which_nothing_is_read(exported, servable):
    texts = ["", " ", "\t\r\n", "\u3000\u2028", "\x00\x01\x7f", "\ufeff\u200b", b"\xff\xfe", "."]
    found = servable.predict("serving_default", tensor_protos(text=np.array(texts, object)))
    assert found["blank"].tolist() == [True] * 7 + [False]


@pytest.mark.parametrize("exported", ["pair"], indirect=True)
@pytest.mark.parametrize(
    ("signature", "inputs"),
    [
        ("classify", {"inputs": [serialized_example(other="a good film")]}),
        ("serving_default", {"premise": ["a", "b"], "hypothesis": ["c"]}),
    ],
)
def test_bad_texts(servable, signature, inputs):
    with pytest.raises(ServingError) as caught:
        servable.predict(signature, tensor_protos(**inputs))
    assert caught.value.code == grpc.StatusCode.INVALID_ARGUMENT


# --- what lies beside the graph ---


def test_metadata(exported):
    content = json.loads((exported.path / "assets.extra" / "gpt1_keras.json").read_text())
    assert content == {
        "task": "GPT1TextClassifier",
        "class_names": CLASS_NAMES,
        "score_range": None,
        "temperature": 1.0,
        "sure_threshold": None,
        "fields": list(exported.fields),
        "tokenizer": "GPT1Tokenizer",
        "tokenizer_fingerprint": exported.model.preprocessor.tokenizer.fingerprint,
        "normalization": "bert",
        "vocabulary_size": 77,
        "sequence_length": SEQUENCE_LENGTH,
        "dtype": "float32",
        "weights": "float32",
        "products": None,
        "requires": None,
        "calibration": None,
        "batching": None,
        "embedding": None,
        "explanation": None,
        "validation": None,
        "gpt1_keras": gpt1_keras.__version__,
        "tensorflow": tf.__version__,
    }


def test_warmup_asks_every_signature_for_every_bucket(exported, servable):
    """One example of each length, and two, unless they are ids of two lengths, which are no batch.

    `check` runs these requests.
    """
    asked = collections.defaultdict(list)
    for request in read_warmup(exported.path):
        name = request.model_spec.signature_name
        assert request.model_spec.name == "sentiment"
        if name == "classify":
            rows = [row.features.feature for row in request.input.example_list.examples]
            texts = {f: [row[f].bytes_list.value[0] for row in rows] for f in exported.fields}
        else:
            texts = {alias: tf.make_ndarray(proto) for alias, proto in request.inputs.items()}
        if name != "tokens":
            texts = servable.predict("tokenize", tensor_protos(**texts))
        asked[name].append(texts["token_ids"].shape)
    buckets = bucket_lengths(SEQUENCE_LENGTH)
    alone = [(1, length) for length in buckets]
    with_two = [*alone, (2, buckets[1])]
    from_texts = dict.fromkeys(("serving_default", "classify", "tokenize"), with_two)
    assert asked == {**from_texts, "tokens": alone}


def test_warmup_of_the_papers_context_is_short(make_classifier):
    model = make_classifier("pair")
    model.preprocessor.sequence_length = 512
    logs = warmup_requests(signatures_of(ExportSpec(model)), "name")
    assert len(logs) == 4 * 11 + 3
    assert sum(log.ByteSize() for log in logs) < 100_000
