"""Exports of scores, choices and language models answer in the C++ runtime as Keras does."""

import json

import numpy as np
import pytest
import tensorflow as tf

from gpt1_keras.tokenization.padding import bucket_lengths
from serving import check
from serving.server.inference import read_warmup
from serving.server.models.servable import ServingError
from tests.helpers.eager import eagerly
from tests.helpers.tf_examples import serialized_examples

CONTEXT = 48
KINDS = ["scorer", "chooser", "lm"]


PAIRS = {
    "text1": ["a good film", "", "the staff were kind " * 12, "lovely"],
    "text2": ["a bad one", "a film", "dull", "lovely"],
}


@pytest.mark.slow
def test_scores(scorer, path_of, ask):
    expected = scorer.predict(tuple(PAIRS.values()), verbose=0)
    found = ask("scorer", "serving_default", **PAIRS)
    np.testing.assert_allclose(found["score"], expected, atol=1e-5)
    assert found["truncated"] == [False, False, True, False]
    assert found["blank"] == [False, True, False, False]
    assert set(found) == {"score", "num_tokens", "truncated", "blank"}
    found = ask("scorer", "regress", inputs=serialized_examples(**PAIRS))
    np.testing.assert_allclose(found["outputs"], expected, atol=1e-5)
    tokens = without_offsets(ask("scorer", "tokenize", **PAIRS))
    found = ask("scorer", "tokens", **tokens)
    np.testing.assert_allclose(found["score"], expected, atol=1e-5)
    metadata = json.loads((path_of("scorer") / "assets.extra/gpt1_keras.json").read_text())
    assert (metadata["score_range"], metadata["class_names"]) == ([0, 5], None)


def without_offsets(tokens):
    """The model's inputs."""
    others = ("truncated", "starts", "ends")
    return {name: values for name, values in tokens.items() if name not in others}


@pytest.mark.slow
def test_offsets(ask, scorer, lm):
    """Ranges are those of the tokens in their own texts, in both orders, or after a prefix."""
    found = ask("scorer", "tokenize", **PAIRS)
    tokenizer = scorer.preprocessor.tokenizer
    for number, texts in enumerate(zip(*PAIRS.values())):
        for order, pair in enumerate((texts, texts[::-1])):
            columns = (found[name][number][order] for name in ("token_ids", "starts", "ends"))
            assert_words(tokenizer, list(zip(*columns)), pair)
    stories = {name: column[:2] for name, column in STORIES.items()}
    found = ask("chooser", "tokenize", **stories)
    for number, (context, question, choices) in enumerate(zip(*stories.values())):
        columns = (found[name][number] for name in ("token_ids", "starts", "ends"))
        row = list(zip(*columns))
        prefix = len(tokenizer(context)) + len(tokenizer(question))
        for id, start, end in row[1 : 1 + len(tokenizer(context))]:
            assert context[start:end].lower() == word(tokenizer, id)
        # A delimiter before each choice, and the extract token after it.
        branches = [text for choice in choices if choice for text in (choice, "")]
        assert_words(tokenizer, row[1 + prefix :], branches)
    found = ask("lm", "tokenize", text=(texts := PAIRS["text1"]))
    for text, *columns in zip(texts, *(found[name] for name in ("token_ids", "starts", "ends"))):
        rows = [row for row in zip(*columns) if row[1] >= 0]
        assert len(rows) == len(lm.preprocessor.tokenizer(text))
        assert all(text[start:end] == word(tokenizer, id) for id, start, end in rows)


def assert_words(tokenizer, row, texts):
    """Compares ranges with a sequence of texts, separated by special tokens."""
    texts, specials, text = iter(texts), set(tokenizer.special_token_ids), None
    for id, start, end in row:
        if id in specials:
            assert (start, end) == (-1, -1)
            text = next(texts, None)
        elif start >= 0:
            assert text[start:end] == word(tokenizer, id)
        else:
            assert not text  # padding


def word(tokenizer, id):
    return tokenizer.id_to_token(id).removesuffix("</w>")


STORIES = {
    "context": ["a good film and a lovely one", "a dull film", "good " * 60],
    "question": ["the staff were?", "a film", ""],
    "choices": [["kind", "bad and dull staff", "lovely"], ["good", "a film", ""], ["one", "", ""]],
}


@pytest.mark.slow
def test_choices(chooser, ask):
    # In a tensor, empty strings at the end are no choices.
    texts = {name: tf.constant(column) for name, column in STORIES.items()}
    logits = chooser.predict(texts, verbose=0)
    expected = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
    numbers = expected.argmax(axis=-1).tolist()
    labels = [row[number] for row, number in zip(STORIES["choices"], numbers)]
    found = ask("chooser", "serving_default", **STORIES)
    np.testing.assert_allclose(found["scores"], expected, atol=1e-5)
    assert (found["label"], found["choice"]) == (labels, numbers)
    assert found["score"] == [row[number] for row, number in zip(found["scores"], numbers)]
    assert found["truncated"] == [False, False, True]
    assert found["scores"][2] == [1.0, 0.0, 0.0]
    # As many choices as each has.
    choices = [[choice for choice in row if choice] for row in STORIES["choices"]]
    found = ask("chooser", "classify", inputs=serialized_examples(**STORIES | {"choices": choices}))
    np.testing.assert_allclose(found["scores"], expected, atol=1e-5)
    assert found["classes"] == STORIES["choices"]
    tokens = without_offsets(ask("chooser", "tokenize", **STORIES))
    found = ask("chooser", "tokens", **tokens)
    np.testing.assert_allclose(found["scores"], expected, atol=1e-5)


def test_an_empty_choice_has_its_own_index(chooser, ask):
    """As in Keras, whether choices come as lists or as an array; at the end, it is absent."""
    rows = [["", "kind", "bad"], ["kind", "", "bad"], ["", "", "bad"], ["kind", "bad", ""]]
    texts = {"context": ["a film"] * 4, "question": ["the staff"] * 4}
    with eagerly():
        of_lists = chooser.classify({**texts, "choices": [*rows[:3], rows[3][:2]]})
        of_arrays = chooser.classify({**texts, "choices": np.array(rows)})
    assert len({answer["choice"] for answer in of_lists}) > 1
    found = ask("chooser", "serving_default", **texts, choices=rows)
    for row, (answer, of_array) in enumerate(zip(of_lists, of_arrays)):
        count = len(answer["scores"])
        np.testing.assert_allclose(of_array.pop("scores"), answer["scores"], atol=1e-5)
        np.testing.assert_allclose(found["scores"][row][:count], answer["scores"], atol=1e-5)
        assert found["scores"][row][count:] == [0.0] * (3 - count)
        for name in ("choice", "label"):
            assert found[name][row] == of_array[name] == answer[name]
    assert found["blank"] == [True, True, True, False]


@pytest.mark.parametrize(
    ("context", "question", "choices", "is_blank"),
    [
        ("a film", "", ["kind", "bad"], False),
        ("", "the staff", ["kind", "bad"], False),
        ("", "\x01", ["kind", "bad"], True),
        ("a film", "the staff", ["kind", " ", ""], True),
        ("a film", "the staff", ["kind", "bad", ""], False),
    ],
)
def test_context_and_question_are_one_text(ask, context, question, choices, is_blank):
    texts = {"context": [context], "question": [question], "choices": [choices]}
    assert ask("chooser", "serving_default", **texts)["blank"] == [is_blank]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["scorer", "chooser", "lm"])
def test_every_signature_runs_without_python_tensorflow(path_of, kind, capsys):
    """In a process of its own, without XLA, from another folder, for each warm-up request."""
    assert check.main([str(path_of(kind))]) == 0, capsys.readouterr().out
    assert "made up" not in capsys.readouterr().out


SEQUENCE = {
    "token_ids": [[[5, 6, 7, 0]] * 2],
    "padding_mask": [[[1, 1, 1, 0]] * 2],
}
BRANCHES = {
    "token_ids": [[4, 5, 6, 7]],
    "positions": [[0, 1, 2, 3]],
    "branches": [[0, 1, 1, 1]],
    "extract_indices": [[3]],
}
BAD_TOKENS = [
    ("scorer", {"token_ids": [[[5, -6, 7, 0]] * 2]}, "token_ids"),
    ("scorer", {"token_ids": [[[5, 6, 7, -1]] * 2]}, "token_ids"),
    ("scorer", {"token_ids": [[[5, 10**6, 7, 0]] * 2]}, "token_ids"),
    ("scorer", {"padding_mask": [[[1, 1, -7, 0]] * 2]}, "padding_mask"),
    ("scorer", {"padding_mask": [[[0, 1, 1, 1]] * 2]}, "padding_mask"),
    ("scorer", {"padding_mask": [[[1, 0, 1, 0]] * 2]}, "padding_mask"),
    ("scorer", {"padding_mask": [[[2, 0, 0, 0]] * 2]}, "padding_mask"),
    ("scorer", {"padding_mask": [[[0, 0, 0, 0]] * 2]}, "padding_mask"),
    ("scorer", {"padding_mask": [[[1], [1]]]}, "token_ids"),
    ("scorer", {name: [[[1] * (CONTEXT + 1)] * 2] for name in SEQUENCE}, "48 columns"),
    ("scorer", {name: [value[0][:1]] for name, value in SEQUENCE.items()}, "shape"),
    ("chooser", {"token_ids": [[4, -5, 6, 7]]}, "token_ids"),
    ("chooser", {"positions": [[0, 1, -2, 3]]}, "positions"),
    ("chooser", {"positions": [[0, 1, 48, 3]]}, "positions"),
    ("chooser", {"positions": [[0, 1, 2]]}, "token_ids"),
    ("chooser", {"branches": [[0, 1, 1, -2]]}, "branches"),
    ("chooser", {"extract_indices": [[-1]]}, "extract_indices"),
    ("chooser", {"extract_indices": [[3, -2]]}, "extract_indices"),
    ("chooser", {"extract_indices": [[4]]}, "extract_indices"),
    ("chooser", {"extract_indices": [[3], [3]]}, "token_ids"),
    (
        "chooser",
        {name: [[1] * (8 * CONTEXT + 1)] for name in BRANCHES if name != "extract_indices"},
        "384 columns",
    ),
]


@pytest.mark.parametrize(("kind", "changes", "message"), BAD_TOKENS)
def test_tokens_that_tokenize_does_not_return(ask, kind, changes, message):
    inputs = SEQUENCE if kind == "scorer" else BRANCHES
    assert ask(kind, "tokens", **inputs)["num_tokens"] == [3 if kind == "scorer" else 4]
    with pytest.raises(ServingError, match=message) as caught:
        ask(kind, "tokens", **{**inputs, **changes})
    assert caught.value.code.name == "INVALID_ARGUMENT"


STRINGS = {
    "scorer": ("text1", "text2"),
    "chooser": ("context", "question"),
    "lm": ("text",),
}


@pytest.mark.parametrize("value", ["a", [["a", "b"]], [["a"]]])
@pytest.mark.parametrize("kind", KINDS)
def test_texts_of_another_shape(ask, kind, value):
    """Two texts in one row would be two answers to one instance."""
    more = {"choices": [["a", "b"]]} if kind == "chooser" else {}
    for signature in ("serving_default", "tokenize"):
        with pytest.raises(ServingError, match="shape") as caught:
            ask(kind, signature, **dict.fromkeys(STRINGS[kind], value), **more)
        assert caught.value.code.name == "INVALID_ARGUMENT"


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_an_empty_batch(ask, kind):
    texts = {name: np.zeros(0, object) for name in STRINGS[kind]}
    if kind == "chooser":
        texts["choices"] = np.zeros((0, 3), object)
    found = ask(kind, "serving_default", **texts)
    assert found and not any(found.values())
    tokens = ask(kind, "tokenize", **texts)
    assert not any(tokens.values())
    if kind == "lm":
        return
    [name] = {"scorer": ["regress"], "chooser": ["classify"]}[kind]
    assert not any(ask(kind, name, inputs=np.zeros(0, object)).values())
    tokens = without_offsets(tokens)
    empty = {name: np.zeros((0, *([2] * (kind == "scorer")), 16), np.int32) for name in tokens}
    assert not any(ask(kind, "tokens", **empty).values())


def test_choices_as_long_as_many_sequences(ask):
    """Attention's memory grows with the square of their length."""
    texts = {"context": ["a film"], "question": ["a"]}
    ask("chooser", "serving_default", **texts, choices=[["good " * 99] * 7])
    with pytest.raises(ServingError, match="336 tokens of all choices"):
        ask("chooser", "serving_default", **texts, choices=[["a"] * 125])


def test_a_few_bytes_cannot_ask_for_many_choices(ask):
    """One value stands for all: 88 bytes would take minutes and gigabytes."""
    texts = {"context": ["a"] * 64, "question": ["a"] * 64}
    found = ask("chooser", "serving_default", **texts, choices=[["a"] * 20] * 64)
    np.testing.assert_allclose(found["scores"], np.full((64, 20), 0.05), atol=1e-5)
    with pytest.raises(ServingError, match="12288 tokens"):
        ask("chooser", "serving_default", **texts, choices=[["a"] * 100] * 64)
    rows, columns = 64, 8 * CONTEXT
    row = [[0] + [1] * (columns - 1)] * rows
    inputs = dict.fromkeys(BRANCHES, row) | {"extract_indices": [[columns - 1]] * rows}
    with pytest.raises(ServingError, match="12288 tokens"):
        ask("chooser", "tokens", **inputs)


@pytest.mark.parametrize("kind", KINDS)
def test_warmup_has_every_bucket(path_of, ask, kind):
    lengths = []
    for request in read_warmup(path_of(kind)):
        if request.model_spec.signature_name == "tokenize":
            inputs = {name: tf.make_ndarray(proto) for name, proto in request.inputs.items()}
            lengths.append(np.shape(ask(kind, "tokenize", **inputs)["token_ids"])[-1])
    # Several choices after a long context are often more than a sequence of the longest.
    more = [2 * CONTEXT] if kind == "chooser" else []
    two_examples = bucket_lengths(CONTEXT)[1]
    assert lengths == [*bucket_lengths(CONTEXT), *more, two_examples]
