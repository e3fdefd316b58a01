"""Whatever computes, examples have the same answers: Keras, a preset's graph, the C++ runtime."""

import pathlib

import numpy as np
import pytest

import gpt1_keras
from gpt1_keras.answers import Engine, answer, answer_each
from gpt1_keras.examples import Examples
from gpt1_keras.presets import load_task
from gpt1_keras.tasks.classify import task_engine
from serving.engines import open_engine
from serving.export import export

SAVED = pathlib.Path(__file__).parents[1] / "gpt1_keras" / "presets" / "saved_models"
TEXTS = {"text": ["a good film", "bad", "", "schön; and\n“kind”", " \x01"]}
QUESTIONS = {
    "context": ["The sun.", "", "Rain.", ""],
    "question": ["What?", "Why?", "", " "],
    "choices": [["It rained.", "Fine.", "Snow."], ["Yes.", "No."], ["Yes."], ["Yes.", "No."]],
}


def assert_same(found, expected):
    assert len(found) == len(expected)
    for mine, other in zip(found, expected):
        assert {name: mine[name] for name in ("label", "blank")} == {
            name: other[name] for name in ("label", "blank")
        }
        assert mine.get("is_sure") == other.get("is_sure")
        assert mine["score"] == pytest.approx(other["score"], abs=1e-4)
        scores = [
            list(each["scores"].values()) if isinstance(each["scores"], dict) else each["scores"]
            for each in (mine, other)
        ]
        np.testing.assert_allclose(*scores, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("texts", [TEXTS, QUESTIONS], ids=["classes", "choices"])
def test_one_way_to_answer(texts, calibrated_classifier, tmp_path):
    """The order of fields does not count."""
    model = calibrated_classifier if texts is TEXTS else load_task(SAVED / "chooser")
    model.save_to_preset(str(tmp_path / "preset"))
    export(model, tmp_path / "export")
    examples, expected = Examples(texts), model.classify(texts)
    engines = [task_engine(model), *(open_engine(str(tmp_path / n)) for n in ("preset", "export"))]
    for engine in engines:
        assert_same(answer(engine, examples), expected)
        in_another_order = dict(reversed(texts.items()))
        assert_same(answer(engine, Examples(in_another_order)), expected)
        assert engine.columns == engines[0].columns
    problems = [each.get("problem", "") for each in answer_each(engines[-1], examples)]
    assert [bool(problem) for problem in problems] == [each["blank"] for each in expected]
    assert {problem for problem in problems if problem} <= {"text is blank", "context is blank"}


@pytest.mark.slow
def test_the_normalization_says_what_is_blank(tiny_backbone, tmp_path):
    """The original one has a token for a new line, and for a character that was damaged."""
    texts = ["a good film and a lovely one"] * 3
    tokenizer = gpt1_keras.GPT1Tokenizer.learn(texts, 40, normalization="original")
    preprocessor = gpt1_keras.GPT1TextClassifierPreprocessor(tokenizer, 16)
    backbone = gpt1_keras.GPT1Backbone(tokenizer.vocabulary_size(), 1, 2, 8, 16, 0.0, 16)
    model = gpt1_keras.GPT1TextClassifier(backbone, 2, preprocessor)
    texts = ["a", "", "\n", " ", "\ufffd", "\u200b", "\x01"]
    expected = [not len(ids) for ids in tokenizer(texts)]
    assert [each["blank"] for each in model.classify(texts)] == expected
    assert 1 < sum(expected) < 6
    model.save_to_preset(str(tmp_path))
    answers = answer_each(open_engine(str(tmp_path)), Examples({"text": texts}))
    assert ["problem" in each for each in answers] == expected


@pytest.mark.parametrize("outputs", [["label"], ["scores"], ["embedding"]])
def test_what_is_no_answer(outputs):
    with pytest.raises(ValueError, match=outputs[0]):
        Engine(["text"], None, outputs, lambda examples: {})
