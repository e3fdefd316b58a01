"""TextModel: strings in, names and probabilities out, as the Keras model gives them."""

import pathlib
import sys

import numpy as np
import pytest

from gpt1_keras.answers import answer_each
from gpt1_keras.examples import Examples
from serving.engines import open_engine
from serving.tflite import TextModel

TEXTS = [
    "a good film",
    "the Staff were KIND, and a film",
    "",
    "good bad " * 20,
    "d\u00e9j\u00e0 \U0001f600",
]


@pytest.mark.slow
def test_a_classifier_answers_as_in_python(single):
    model, path = single
    answer_of = TextModel(path)
    for text in TEXTS:
        answer, [expected] = answer_of(text), model.classify([text])
        assert (answer["label"], answer["is_sure"]) == (expected["label"], expected["is_sure"])
        assert answer["score"] == pytest.approx(expected["score"], abs=1e-4)
        assert list(answer["scores"]) == list(expected["scores"])
        np.testing.assert_allclose(
            [*answer["scores"].values()], [*expected["scores"].values()], atol=1e-4
        )
    assert answer_of("good bad " * 20)["truncated"] and not answer_of("good")["truncated"]
    assert answer_of("good")["num_tokens"] == 3
    assert [answer_of(text)["blank"] for text in ("good", "", "\x01")] == [False, True, True]
    engine = open_engine(str(path))
    answers = answer_each(engine, Examples({"text": TEXTS}))
    assert [each.get("problem") for each in answers] == [None, None, "text is blank", None, None]
    for text, found in zip(TEXTS, answers):
        assert not text or found == answer_of(text)
    assert engine.columns == [
        "label",
        "score",
        *(f"score_{n}" for n in model.class_names),
        "is_sure",
    ]


@pytest.mark.parametrize(
    ("texts", "noun"),
    [
        ([], r"\['text'\]"),
        (["a", "b"], r"\['text'\]"),
        ([b"a"], "string"),
        ([["a", "b"]], "string"),
        (["\ud83d"], "surrogates"),
    ],
)
def test_bad_texts(single, texts, noun):
    with pytest.raises(ValueError, match=noun):
        TextModel(single[1])(*texts)


def test_a_damaged_file(single, tmp_path):
    with pytest.raises(FileNotFoundError):
        TextModel(tmp_path / "nothing.tflite")
    content = pathlib.Path(single[1]).read_bytes()
    for length in (10, 1000, len(content) // 2, len(content) - 1):
        (tmp_path / "a.tflite").write_bytes(content[:length])
        with pytest.raises(ValueError, match=r"a\.tflite is damaged: "):
            TextModel(tmp_path / "a.tflite")


def test_where_there_is_no_litert(single, monkeypatch):
    monkeypatch.setitem(sys.modules, "ai_edge_litert.interpreter", None)
    with pytest.raises(ImportError, match="LiteRT"):
        TextModel(single[1])
