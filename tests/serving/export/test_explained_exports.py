"""Exports that explain: in the C++ runtime, with the other options, and served."""

import json

import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis.prediction_log_pb2 import PredictionLog

from gpt1_keras.presets import load_task
from serving import check, query
from serving.export import export
from serving.export.__main__ import main
from serving.export.export_options import LEAVE_ONE_OUT, Batching, Explanation
from serving.export.exported_tasks import signatures_of
from serving.export.signature import ExportSpec
from serving.server import Server

TEXTS = ["A good film", "", "the Staff were  KIND, and a na\u00efve film!", "good bad " * 30]
WORDS = ["words", "word_fields", "word_starts", "word_ends", "word_shares", "num_words"]
STORY = {
    "context": ["a good film and a lovely one", "a dull film"],
    "question": ["the staff were?", ""],
    "choices": [["kind", "bad and dull staff"], ["", "good"]],
}


@pytest.fixture(scope="module")
def path(make_classifier, tmp_path_factory):
    """The path of an export by the program, whose answers are explained by gradients."""
    folder = tmp_path_factory.mktemp("explained")
    make_classifier("single").save_to_preset(folder / "preset")
    arguments = [f"--model={folder / 'preset'}", f"--output={folder / 'model'}", "--batching"]
    assert main([*arguments, "--explain=integrated-gradients", "--explain-steps=5"]) == 0
    return folder / "model" / "1"


def expected_of(model, explanation, texts):
    signatures = signatures_of(ExportSpec(model, explanation=explanation))
    texts = {name: tf.constant(values) for name, values in texts.items()}
    return signatures.by_name["explain"].function(**texts)


def assert_same(found, expected):
    assert set(found) == set(expected)
    for name, tensor in expected.items():
        if tensor.dtype.is_floating:
            np.testing.assert_allclose(found[name], tensor, atol=2e-5, rtol=0)
        else:
            values = tensor.numpy()
            if tensor.dtype == tf.string:
                values = np.vectorize(bytes.decode, otypes=[object])(values)
            assert found[name] == values.tolist(), name


@pytest.mark.slow
def test_without_python_tensorflow(path, run_cpp):
    """Beside words and shares come the outputs of `serving_default`."""
    model = load_task(path.parents[1] / "preset")
    found = run_cpp(path, "explain", text=TEXTS)
    answers = run_cpp(path, "serving_default", text=TEXTS)
    assert set(found) == {*answers, *WORDS, "completeness_error"}
    np.testing.assert_allclose(found["scores"], answers.pop("scores"), atol=1e-6, rtol=0)
    assert {name: found[name] for name in answers} == answers
    expected = expected_of(model, Explanation(steps=5), {"text": TEXTS})
    for name in set(WORDS) - {"words", "word_fields"}:
        np.testing.assert_allclose(found[name], expected[name], atol=2e-5, rtol=0)


@pytest.mark.slow
def test_what_comes_with_it(path, capsys):
    extra = path / "assets.extra"
    metadata = json.loads((extra / "gpt1_keras.json").read_text())
    explanation = {"method": "integrated-gradients", "steps": 5, "max_words": 128}
    assert metadata["explanation"] == explanation
    readme = (extra / "README.md").read_text()
    assert "### explain" in readme and "| out | word_shares | float32 | any, any |" in readme
    assert "by integrated gradients, 5 steps from embeddings of zeros" in readme
    logs = tf.data.TFRecordDataset(str(extra / "tf_serving_warmup_requests"))
    requests = [PredictionLog.FromString(log.numpy()).predict_log.request for log in logs]
    asked = [request.model_spec.signature_name for request in requests]
    assert asked.count("explain") == 1 and asked.count("serving_default") > 1
    assert check.main([str(path)]) == 0
    assert "  explain, requests from the warm-up: 1" in capsys.readouterr().out


@pytest.mark.slow
def test_it_is_served(path, capsys, free_ports):
    """Over both protocols alike, bytes that are not UTF-8 included."""
    [rest_api_port] = free_ports(1)
    with Server("m", str(path.parent), port=0, rest_api_port=rest_api_port) as server:
        outputs = []
        for target in (f"localhost:{server.port}", f"http://localhost:{rest_api_port}"):
            arguments = [f"--target={target}", "--model=m", "--explain"]
            texts = ["A good film", "the st\udcffaff"]
            assert query.main([*arguments, "--json", *texts]) == 0
            outputs.append([json.loads(line) for line in capsys.readouterr().out.splitlines()])
            assert query.main([*arguments, "A good film"]) == 0
            lines = capsys.readouterr().out.splitlines()
            assert [line.split()[-1] for line in lines] == ["text", "film", "A", "good", "film"]
        over_grpc, over_rest = outputs
        assert over_grpc == over_rest
        assert over_grpc[1]["words"][:2] == ["the", "st\ufffdaff"]


@pytest.mark.slow
def test_choices_by_leaving_words_out(chooser, run_cpp, tmp_path):
    explanation = Explanation(LEAVE_ONE_OUT)
    path = export(chooser, tmp_path, explain=explanation, batching=Batching())
    found = run_cpp(path, "explain", **STORY)
    assert_same(found, expected_of(chooser, explanation, STORY))
    assert check.main([path]) == 0
