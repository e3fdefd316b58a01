"""Exports answer in TensorFlow's C++ runtime as the Keras model does, and load anywhere."""

import base64
import json

import grpc
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.framework.types_pb2 import DataType
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel
from tensorflow_serving.apis.prediction_log_pb2 import PredictionLog

import gpt1_keras
from gpt1_keras.tokenization.padding import bucket_lengths
from serving import check
from serving.export.exported_tasks import signatures_of
from serving.export.exporter import warmup_requests
from serving.export.signature import ExportSpec
from serving.server.calls.inference import classify, predict
from serving.server.models.servable import Servable, ServingError

CLASS_NAMES = ["negative", "neutral", "positive"]
SEQUENCE_LENGTH = 40


def encode(text):
    return text.encode() if isinstance(text, str) else text


def json_texts(exported):
    return {
        field: [text if isinstance(text, str) else {"b64": b64(text)} for text in texts]
        for field, texts in zip(exported.fields, exported.texts)
    }


def b64(content):
    return base64.b64encode(content).decode()


def example(**texts):
    """A tf.Example with a text for each field."""
    features = {
        name: tf.train.Feature(bytes_list=tf.train.BytesList(value=[encode(text)]))
        for name, text in texts.items()
    }
    return tf.train.Example(features=tf.train.Features(feature=features))


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


def test_the_graph_has_core_ops_only(exported):
    graph = SavedModel.FromString((exported.path / "saved_model.pb").read_bytes()).meta_graphs[0]
    functions = graph.graph_def.library.function
    assert not any(function.attr["_XlaMustCompile"].b for function in functions)
    nodes = [*graph.graph_def.node, *(node for each in functions for node in each.node_def)]
    assert not any(node.attr["_XlaMustCompile"].b for node in nodes if node.attr)
    ops = {node.op for node in nodes} - {function.signature.name for function in functions}
    assert not [op for op in ops if "PyFunc" in op or "Xla" in op]


@pytest.mark.slow
def test_serving_default(exported, run_cpp):
    found = run_cpp(exported.path, "serving_default", **json_texts(exported))
    np.testing.assert_allclose(found["scores"], exported.scores, atol=1e-5, rtol=0)
    assert found["label"] == exported.labels
    assert len(set(exported.labels)) > 1
    assert found["num_tokens"] == exported.num_tokens
    assert found["truncated"] == exported.truncated
    assert found["blank"] == exported.blank
    assert set(exported.truncated) == set(exported.blank) == {True, False}


def test_classify(exported, servable):
    rows = [dict(zip(exported.fields, row)) for row in zip(*exported.texts)]
    examples = [example(**row).SerializeToString() for row in rows]
    found = servable.predict("classify", tensor_protos(inputs=examples))
    np.testing.assert_allclose(found["scores"], exported.scores, atol=1e-5, rtol=0)
    assert decoded(found["classes"]) == [CLASS_NAMES] * len(rows)


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
    """In a process of its own, without XLA, from another folder, for each warm-up request.

    And the graph has no ops but those of the runtime in that process.
    """
    assert check.main([str(exported.path)]) == 0, capsys.readouterr().out
    assert "made up" not in capsys.readouterr().out


@pytest.mark.slow
def test_scores_are_probabilities_whatever_the_activation(make_classifier):
    model = make_classifier("single")
    softmax = make_classifier("single", activation="softmax")
    ids = model.preprocessor(["a good film", "dull"])
    found, expected = (
        signatures_of(ExportSpec(each)).by_name["tokens"].function(**ids)["scores"]
        for each in (softmax, model)
    )
    np.testing.assert_allclose(found, expected, atol=1e-6)
    np.testing.assert_allclose(np.sum(found, axis=1), 1.0, atol=1e-6)


# --- in the embedded server ---


def tensor_protos(**tensors):
    return {name: tf.make_tensor_proto(tensor) for name, tensor in tensors.items()}


def test_an_empty_batch(exported, servable):
    texts = {field: tf.constant([], tf.string) for field in exported.fields}
    found = servable.predict("serving_default", tensor_protos(**texts))
    shapes = {name: array.shape for name, array in found.items()}
    others = dict.fromkeys(("label", "num_tokens", "truncated", "blank"), (0,))
    assert shapes == {"scores": (0, 3), **others}


@pytest.mark.parametrize("exported", ["single"], indirect=True)
def test_texts_of_which_nothing_is_read(exported, servable):
    texts = ["", " ", "\t\r\n", "\u3000\u2028", "\x00\x01\x7f", "\ufeff\u200b", b"\xff\xfe", "."]
    found = servable.predict("serving_default", tensor_protos(text=np.array(texts, object)))
    assert found["blank"].tolist() == [True] * 7 + [False]


def test_tokens_that_the_model_does_not_have(servable):
    """A client that sends ids gets an error, not an answer about other tokens."""
    for ids in ([[5] * (SEQUENCE_LENGTH + 1)], [[77]], [[-78]]):
        inputs = tensor_protos(token_ids=ids, padding_mask=np.ones_like(ids, np.int32))
        with pytest.raises(ServingError) as caught:
            servable.predict("tokens", inputs)
        assert caught.value.code == grpc.StatusCode.INVALID_ARGUMENT


def test_an_example_without_a_text(exported, servable):
    examples = tf.constant([example(other="a good film").SerializeToString()])
    with pytest.raises(ServingError, match="is required but could not be found") as caught:
        servable.predict("classify", tensor_protos(inputs=examples))
    assert caught.value.code == grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize("exported", ["pair"], indirect=True)
def test_a_pair_of_batches_of_different_sizes(exported, servable):
    texts = tensor_protos(premise=["a", "b"], hypothesis=["c"])
    with pytest.raises(ServingError) as caught:
        servable.predict("serving_default", texts)
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


def read_warmup(path):
    records = tf.data.TFRecordDataset(str(path / "assets.extra" / "tf_serving_warmup_requests"))
    return [PredictionLog.FromString(record.numpy()) for record in records]


def test_warmup_asks_every_signature_for_every_bucket(exported, servable):
    buckets = bucket_lengths(SEQUENCE_LENGTH)
    logs = read_warmup(exported.path)
    assert len(logs) <= 1000
    asked = {"serving_default": [], "tokenize": [], "tokens": [], "classify": []}
    pairs = ["serving_default", "classify", "tokenize"]  # ids of two lengths are no batch
    alone, of_two = logs[: -len(pairs)], logs[-len(pairs) :]
    for log, name in zip(of_two, pairs):
        request = getattr(log, log.WhichOneof("log_type")).request
        assert request.model_spec.signature_name == name
        if name != "classify":
            assert all(tensor.tensor_shape.dim[0].size == 2 for tensor in request.inputs.values())
    for log in alone:
        kind = log.WhichOneof("log_type")
        request = getattr(log, kind).request
        assert request.model_spec.name == "sentiment"
        name = request.model_spec.signature_name
        if kind == "classify_log":
            [result] = classify(servable, request).result.classifications
            assert [each.label for each in result.classes] == CLASS_NAMES
            [row] = request.input.example_list.examples
            inputs = tensor_protos(
                **{f: [row.features.feature[f].bytes_list.value[0]] for f in exported.fields}
            )
            [length] = servable.predict("tokenize", inputs)["padding_mask"].shape[1:]
        else:
            outputs = predict(servable, request).outputs
            if name == "tokens":
                length = request.inputs["token_ids"].tensor_shape.dim[1].size
            elif name == "tokenize":
                length = outputs["token_ids"].tensor_shape.dim[1].size
            else:
                [tokens] = outputs["num_tokens"].int_val
                length = next(bucket for bucket in buckets if bucket >= tokens)
        asked[name].append(length)
    assert asked == dict.fromkeys(asked, buckets)


def test_warmup_of_the_papers_context_is_short(make_classifier):
    model = make_classifier("pair")
    model.preprocessor.sequence_length = 512
    logs = warmup_requests(signatures_of(ExportSpec(model)), "name")
    assert len(logs) == 4 * 11 + 3
    assert sum(log.ByteSize() for log in logs) < 100_000
