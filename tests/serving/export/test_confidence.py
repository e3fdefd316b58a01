"""Exports answer with calibrated probabilities, and say which answers are sure."""

import json
import pathlib

import numpy as np
import pytest
import scipy.special
import tensorflow as tf

import gpt1_keras
from gpt1_keras.tasks.heads import Calibration
from serving.export import export
from serving.export.export_options import Batching
from serving.export.exported_tasks import signatures_of
from serving.export.signature import ExportSpec
from serving.server.models.servable import Servable
from tests.helpers.eager import eagerly

TEXTS = ["a good film", "the staff were kind", "dull", "a bad one and a lovely film", "good " * 50]


@pytest.fixture(scope="module")
def calibrated(make_classifier):
    """A classifier, its logits of the texts, and a threshold that some of them reach."""
    model = make_classifier("single")
    with eagerly():
        logits = model.predict(np.array(TEXTS, object), verbose=0)
    best = np.sort(scipy.special.softmax(logits / 3.0, axis=1).max(axis=1))
    model.calibration = Calibration(3.0, float(best[1:3].mean()))
    return model, logits


@pytest.mark.slow
@pytest.mark.parametrize("batching", [None, Batching()])
def test_scores_of_a_classifier(calibrated, tmp_path, batching):
    model, logits = calibrated
    path = pathlib.Path(export(model, tmp_path, batching=batching))
    servable = Servable("model", 1, path)
    texts = {"text": tf.make_tensor_proto(TEXTS)}
    tokenized = servable.predict("tokenize", texts)
    tokens = {name: tokenized[name] for name in ("token_ids", "padding_mask")}
    answers = [
        servable.predict("serving_default", texts),
        servable.predict("tokens", {n: tf.make_tensor_proto(x) for n, x in tokens.items()}),
    ]
    expected = scipy.special.softmax(logits / 3.0, axis=1)
    for found in answers:
        np.testing.assert_allclose(found["scores"], expected, atol=1e-5)
        assert found["is_sure"].dtype == bool and found["is_sure"].sum() == 3
        is_sure = expected.max(axis=1) >= model.calibration.sure_threshold
        np.testing.assert_array_equal(found["is_sure"], is_sure)
        labels = [model.class_names[each].encode() for each in logits.argmax(axis=1)]
        assert found["label"].tolist() == labels
    metadata = json.loads((path / "assets.extra/gpt1_keras.json").read_text())
    assert metadata["temperature"] == 3.0
    assert metadata["sure_threshold"] == model.calibration.sure_threshold
    readme = (path / "assets.extra/README.md").read_text()
    assert "by a temperature of 3." in readme and "`is_sure` says whether the best" in readme


@pytest.mark.slow
def test_scores_of_choices(chooser, scorer, lm):
    copy = gpt1_keras.GPT1MultipleChoice(
        chooser.backbone, chooser.preprocessor, temperature=4.0, sure_threshold=0.5
    )
    copy.head.set_weights(chooser.head.get_weights())
    texts = {
        "context": tf.constant(["a good film", "the staff"]),
        "question": tf.constant(["which?", ""]),
        "choices": tf.constant([["kind", "bad", "a lovely one"], ["dull", "good film", ""]]),
    }
    with eagerly():
        logits = chooser.predict(texts, verbose=0)
        found = signatures_of(ExportSpec(copy)).by_name["serving_default"].compiled(**texts)
    expected = scipy.special.softmax(logits / 4.0, axis=1)
    np.testing.assert_allclose(found["scores"], expected, atol=1e-5)
    np.testing.assert_array_equal(found["is_sure"], expected.max(axis=1) >= 0.5)
    np.testing.assert_array_equal(found["choice"], logits.argmax(axis=1))
    assert found["scores"][1, 2] == 0.0
