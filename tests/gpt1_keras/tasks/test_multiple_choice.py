"""Multiple choice: any number of choices, read after a shared prefix."""

import json
import os
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
import torch
from transformers import OpenAIGPTDoubleHeadsModel

import gpt1_keras
from gpt1_keras.optimization.optimizer import finetuning_optimizer

TEXTS = {
    "context": ["a good film and a lovely one", "a dull film", "the staff were kind and lovely"],
    "question": ["the staff were?", "a film", ""],
    "choices": [["kind", "bad and dull staff", "lovely"], ["good", "a bad film"], ["one"]],
}
LABELS = [1, 0, 0]


def make_chooser(tokenizer, backbone, sequence_length=64, **arguments):
    """A model, run eagerly, whose weights are far from the initial ones."""
    preprocessor = gpt1_keras.GPT1MultipleChoicePreprocessor(tokenizer, sequence_length)
    keras.utils.set_random_seed(0)
    model = gpt1_keras.GPT1MultipleChoice(backbone, preprocessor, **arguments)
    random = np.random.default_rng(4)
    for variable in model.weights:
        variable.assign(variable + random.normal(0.0, 0.3, variable.shape))
    model.compile(run_eagerly=True)
    return model


def make_backbone(tokenizer, **config):
    keras.utils.set_random_seed(0)
    sizes = {"num_heads": 2, "hidden_dim": 32, "intermediate_dim": 128, "max_sequence_length": 64}
    return gpt1_keras.GPT1Backbone(
        tokenizer.vocabulary_size(), **({"num_layers": 2} | sizes | config)
    )


@pytest.fixture(scope="module")
def chooser(tiny_tokenizer):
    """A model of two blocks: the second reads what the first made of other choices."""
    return make_chooser(tiny_tokenizer, make_backbone(tiny_tokenizer))


def sequences(tokenizer, context, question, choices):
    """The paper's sequences of an example, each its own list of ids."""
    start, delimiter = tokenizer.start_token_id, tokenizer.delimiter_token_id
    extract = tokenizer.extract_token_id
    prefix = [start, *tokenizer(context).numpy(), *tokenizer(question).numpy()]
    return [[*prefix, delimiter, *tokenizer(choice).numpy(), extract] for choice in choices]


def unfold(inputs, row):
    """The sequences of an example, from what the preprocessor returns."""
    ids, positions, branches, extracts = (
        inputs[name].numpy()[row]
        for name in ("token_ids", "positions", "branches", "extract_indices")
    )
    found = []
    for branch in range(1, branches.max() + 1):
        indices = np.flatnonzero((branches == 0) | (branches == branch))
        assert positions[indices].tolist() == list(range(len(indices)))
        assert extracts[branch - 1] == indices[-1]
        found.append(ids[indices].tolist())
    assert np.all(extracts[branches.max() :] == -1)
    return found


def test_the_token_ids_of_an_example(tiny_tokenizer):
    preprocessor = gpt1_keras.GPT1MultipleChoicePreprocessor(tiny_tokenizer)
    inputs = preprocessor(TEXTS)
    for row, texts in enumerate(zip(*TEXTS.values())):
        assert unfold(inputs, row) == sequences(tiny_tokenizer, *texts)


def independent_scores(chooser, row):
    """The logits of an example's choices, each read in its own sequence."""
    texts = [TEXTS[field][row] for field in chooser.preprocessor.fields]
    scores = []
    for ids in sequences(chooser.preprocessor.tokenizer, *texts):
        state = np.array(chooser.backbone({"token_ids": np.array([ids])}))[0, -1]
        scores.append(state @ np.array(chooser.head.kernel)[:, 0] + float(chooser.head.bias[0]))
    return scores


@pytest.mark.slow
def test_choices_are_scored_as_if_each_were_read_alone(chooser):
    scores = chooser.predict(TEXTS, verbose=0)
    assert scores.shape == (3, 3)
    for row, choices in enumerate(TEXTS["choices"]):
        found = scores[row, : len(choices)]
        np.testing.assert_allclose(found, independent_scores(chooser, row), rtol=0, atol=1e-5)
        assert np.all(scores[row, len(choices) :] == -1e9)


@pytest.mark.slow
def test_two_choices_by_hugging_face(chooser, tmp_path):
    """Their model with two heads, which reads each choice in its own sequence."""
    gpt1_keras.convert.save_hugging_face(
        gpt1_keras.GPT1CausalLM(chooser.backbone, _lm_preprocessor(chooser)), tmp_path
    )
    theirs = OpenAIGPTDoubleHeadsModel.from_pretrained(
        tmp_path, summary_first_dropout=0.0, summary_type="cls_index"
    ).eval()
    head = theirs.multiple_choice_head.summary
    head.weight.data = torch.tensor(np.array(chooser.head.kernel).T)
    head.bias.data = torch.tensor(np.array(chooser.head.bias))
    texts = {field: [values[1]] for field, values in TEXTS.items()}
    rows = sequences(chooser.preprocessor.tokenizer, *(values[0] for values in texts.values()))
    longest = max(map(len, rows))
    ids = torch.tensor([[row + [0] * (longest - len(row)) for row in rows]])
    last = torch.tensor([[len(row) - 1 for row in rows]])
    with torch.no_grad():
        output = theirs(ids, mc_token_ids=last, mc_labels=torch.tensor([1]), labels=None)
    found = chooser.predict(texts, verbose=0)
    np.testing.assert_allclose(found, output.mc_logits.numpy().reshape(1, 2), atol=2e-5)
    loss = chooser.evaluate(texts, [1], verbose=0)[0]  # L2, as everywhere but in `fit`
    assert loss == pytest.approx(float(output.mc_loss), abs=1e-5)


def _lm_preprocessor(chooser):
    return gpt1_keras.GPT1CausalLMPreprocessor(chooser.preprocessor.tokenizer)


def log_softmax(x):
    shifted = x - x.max()
    return shifted - np.log(np.exp(shifted).sum())


@pytest.mark.slow
def test_l3_by_hand(tiny_tokenizer):
    """Every choice with its shared prefix is a sequence of the auxiliary objective."""
    backbone = make_backbone(
        tiny_tokenizer, num_layers=1, hidden_dim=16, intermediate_dim=32, dropout=0.0
    )
    chooser = make_chooser(tiny_tokenizer, backbone, dropout=0.0)
    table = np.array(backbone.token_embedding.embeddings, np.float64)
    l1, l2 = [], []
    for row, texts in enumerate(zip(*TEXTS.values())):
        losses = []
        for ids in sequences(tiny_tokenizer, *texts):
            states = np.array(backbone({"token_ids": np.array([ids])}), np.float64)[0]
            terms = [-log_softmax(table @ states[i])[ids[i + 1]] for i in range(len(ids) - 1)]
            losses.append(np.mean(terms))
        l1.append(np.mean(losses))
        l2.append(-log_softmax(np.array(independent_scores(chooser, row)))[LABELS[row]])
    chooser.compile("sgd", lm_coefficient=0.5, run_eagerly=True)
    assert chooser.evaluate(TEXTS, LABELS, verbose=0)[0] == pytest.approx(np.mean(l2), abs=1e-5)
    history = chooser.fit(TEXTS, LABELS, batch_size=3, verbose=0).history
    assert history["loss"][0] == pytest.approx(np.mean(l2) + 0.5 * np.mean(l1), abs=1e-4)


def test_all_choices_of_an_example_share_the_head_s_dropout(chooser):
    """Two equal choices keep the same score, whatever is dropped."""
    inputs = chooser.preprocessor({**TEXTS, "choices": [["kind", "kind"]] * 3})
    states = np.random.default_rng(0).normal(size=(3, 2, 32)).astype("float32")
    states[:, 1] = states[:, 0]
    dropped = np.array(chooser.extract_dropout(states, training=True))
    np.testing.assert_array_equal(dropped[:, 0], dropped[:, 1])
    assert (dropped == 0).any() and (dropped[0] != dropped[1]).any()
    assert inputs["extract_indices"].shape == (3, 2)


@pytest.mark.slow
def test_fit_learns(tiny_tokenizer):
    chooser = make_chooser(tiny_tokenizer, make_backbone(tiny_tokenizer, num_layers=1))
    chooser.compile(finetuning_optimizer(1e-2), lm_coefficient=0.0, jit_compile=False)
    texts = {**TEXTS, "choices": tf.ragged.constant(TEXTS["choices"])}
    chooser.fit(tf.data.Dataset.from_tensors((texts, LABELS)).repeat(30), verbose=0)
    loss, accuracy = chooser.evaluate(TEXTS, LABELS, verbose=0)
    assert (loss < 0.3, accuracy) == (True, 1.0)


# --- what users give ---


@pytest.mark.slow
def test_tensors_tuples_and_datasets(chooser):
    expected = chooser.predict(TEXTS, verbose=0)
    ragged = tf.ragged.constant(TEXTS["choices"])
    dense = ragged.to_tensor("")
    for choices in (ragged, dense, dense.numpy()):
        as_tuple = (TEXTS["context"], TEXTS["question"], choices)
        np.testing.assert_allclose(chooser.predict_on_batch(as_tuple), expected, atol=1e-5)
    data = tf.data.Dataset.from_tensor_slices({**TEXTS, "choices": ragged}).batch(2)
    np.testing.assert_allclose(chooser.predict(data, verbose=0), expected, atol=1e-5)


def test_a_context_without_a_question(tiny_tokenizer):
    preprocessor = gpt1_keras.GPT1MultipleChoicePreprocessor(
        tiny_tokenizer, 64, fields=("story", "endings")
    )
    inputs = preprocessor({"story": ["a film"], "endings": [["good", "the staff"]]})
    assert unfold(inputs, 0) == sequences(tiny_tokenizer, "a film", "", ["good", "the staff"])


@pytest.mark.parametrize("length", [16, 20, 32])
def test_what_is_too_long(tiny_tokenizer, length):
    """By halves: choices keep up to half the length, then the question, then the context."""
    context, question, choices = "good " * 40, "bad film", ["kind " * 3, "dull " * 30, "a"]
    preprocessor = gpt1_keras.GPT1MultipleChoicePreprocessor(
        tiny_tokenizer, length, truncate="halves"
    )
    texts = {"context": [context], "question": [question], "choices": [choices]}
    tree, truncated = preprocessor.transform(list(preprocessor.as_tensors(texts).values()))
    assert truncated.numpy().tolist() == [True]
    start, delimiter = tiny_tokenizer.start_token_id, tiny_tokenizer.delimiter_token_id
    extract = tiny_tokenizer.extract_token_id
    kept_choices = [
        tiny_tokenizer(choice).numpy().tolist()[: length // 2 - 2] for choice in choices
    ]
    room = length - 3 - max(map(len, kept_choices))
    asked = tiny_tokenizer(question).numpy().tolist()[:room]
    kept = tiny_tokenizer(context).numpy().tolist()[: room - len(asked)]
    expected = [[start, *kept, *asked, delimiter, *choice, extract] for choice in kept_choices]
    assert unfold(preprocessor(texts), 0) == expected
    assert max(map(len, expected)) == length


def test_a_choice_gets_what_the_context_leaves(tiny_tokenizer):
    """A long choice that fits is whole."""
    choices = ["dull " * 30, "a film"]
    texts = {"context": ["a film"], "question": ["good?"], "choices": [choices]}
    preprocessor = gpt1_keras.GPT1MultipleChoicePreprocessor(tiny_tokenizer, 40)
    expected = sequences(tiny_tokenizer, "a film", "good?", choices)
    assert unfold(preprocessor(texts), 0) == expected
    assert 36 <= max(map(len, expected)) <= 40


@pytest.mark.slow
def test_batches_that_differ_in_their_number_of_choices(chooser):
    """Keras joins them on TensorFlow; elsewhere the head does, see the next test."""
    expected = [
        chooser.predict({k: v[i : i + 1] for k, v in TEXTS.items()}, verbose=0) for i in range(3)
    ]
    found = chooser.predict(TEXTS, batch_size=1, verbose=0)
    apart = np.empty(3, object)
    apart[:] = expected
    for scores in (found, chooser.task_head.predictions(apart)):
        assert scores.shape == (3, 3) and scores.dtype == np.float32
        for row, alone in zip(scores, expected):
            width = alone.shape[1]
            np.testing.assert_allclose(row[:width], alone[0], atol=1e-5)
            assert np.all(row[width:] == -1e9)


PROGRAM = """
import json, sys
import keras
import gpt1_keras

assert keras.backend.backend() == "jax"
chooser = gpt1_keras.GPT1MultipleChoice.from_preset(sys.argv[1])
texts = json.loads(sys.argv[2])
print(json.dumps(chooser.predict(texts, batch_size=1, verbose=0).tolist()))
"""


@pytest.mark.slow
def test_batches_that_differ_in_their_number_of_choices_on_jax(chooser, tmp_path):
    chooser.save_to_preset(str(tmp_path))
    process = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path), json.dumps(TEXTS)],
        capture_output=True,
        text=True,
        env={**os.environ, "KERAS_BACKEND": "jax"},
        timeout=300,
    )
    assert process.returncode == 0, process.stderr
    found = np.array(json.loads(process.stdout.splitlines()[-1]))
    np.testing.assert_allclose(found, chooser.predict(TEXTS, verbose=0), atol=1e-5)


def test_more_choices_than_a_sequence_is_long(chooser):
    texts = {"context": ["a film"], "question": ["good?"], "choices": [["kind", "dull"] * 40]}
    scores = chooser.predict(texts, verbose=0)
    assert scores.shape == (1, 80)
    np.testing.assert_allclose(scores[0, ::2], scores[0, 0], atol=1e-5)
