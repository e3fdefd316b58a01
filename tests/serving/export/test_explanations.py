"""Explanations equal captum's of Hugging Face's model, and answers without each word."""

import json

import captum.attr
import numpy as np
import pytest
import scipy.special
import tensorflow as tf
import torch
from tensorflow_serving.apis.prediction_log_pb2 import PredictionLog
from transformers import AutoTokenizer, OpenAIGPTConfig, OpenAIGPTForSequenceClassification

import gpt1_keras
from gpt1_keras.presets import load_task
from serving import check, query
from serving.export import explanation_methods, export
from serving.export.__main__ import main
from serving.export.export_options import INTEGRATED_GRADIENTS, LEAVE_ONE_OUT, Batching, Explanation
from serving.export.exported_tasks import signatures_of
from serving.export.signature import ExportSpec
from serving.export.task_answers import log_odds
from serving.server import Server

STEPS = 7
REVIEWS = ["A good film", "", "the Staff were  KIND, and\ta na\u00efve! film", "good bad " * 30]
PAIRS = {
    "text1": ["a good film", "", "the staff were kind " * 9, "lovely"],
    "text2": ["a bad one", "A  film", "dull", "lovely"],
}
STORIES = {
    "context": ["a good film and a lovely one", "a dull film", "good " * 60],
    "question": ["the staff were?", "a film", ""],
    "choices": [["kind", "bad and dull staff", "lovely"], ["", "good", "a film"], ["one", "", ""]],
}


def explain(model, explanation, **texts):
    """What `explain` returns, as lists of rows; without a graph."""
    signatures = signatures_of(ExportSpec(model, explanation=explanation))
    texts = {name: tf.constant(values) for name, values in texts.items()}
    return {
        name: tensor.numpy()
        for name, tensor in signatures.by_name["explain"].function(**texts).items()
    }


def words_of(found, row):
    """The words of an example: texts, fields, starts, ends, and choices if there are any."""
    names = ["words", "word_fields", "word_starts", "word_ends"]
    names += ["word_choices"] if "word_choices" in found else []
    return list(zip(*(found[name][row][: found["num_words"][row]].tolist() for name in names)))


def shares_of(found, row):
    return found["word_shares"][row][: found["num_words"][row]]


def outputs_of(model, texts):
    """What the Keras model returns, without a graph."""
    texts = {name: np.array(values, object) for name, values in texts.items()}
    return model.predict_outputs(model.preprocessor(texts, pad_to="bucket")).numpy()


def explained_of(model, outputs, answer):
    """What words have shares in: the score, or the log-odds of the answer."""
    if model.score_range is not None:
        return np.array(model.score_of(outputs))
    logits = np.take_along_axis(np.float64(outputs), answer[:, None], axis=-1)[:, 0]
    is_other = np.arange(outputs.shape[1]) != answer[:, None]
    others = scipy.special.logsumexp(outputs, axis=-1, b=is_other)
    return logits - np.where(others > -1e8, others, 0.0)  # of a single choice, its logit


# --- integrated gradients ---


@pytest.fixture(scope="module")
def torch_classifier(tmp_path_factory, tiny_tokenizer):
    """A random classifier of `transformers`, ours of the same weights, and their tokenizer."""
    folder = tmp_path_factory.mktemp("classifier")
    tiny_tokenizer.export_to_transformers(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    torch.manual_seed(0)
    sizes = {"n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 24, "num_labels": 3}
    pad = tokenizer.unk_token_id
    config = OpenAIGPTConfig(vocab_size=len(tokenizer), pad_token_id=pad, **sizes)
    model = OpenAIGPTForSequenceClassification(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    model.save_pretrained(folder)
    return model, load_task(folder), tokenizer


@pytest.mark.slow
def test_gradients_are_captum_s(torch_classifier):
    model, classifier, tokenizer = torch_classifier
    texts = [text for text in REVIEWS if text]
    found = explain(classifier, Explanation(INTEGRATED_GRADIENTS, steps=STEPS), text=texts)
    table = model.transformer.tokens_embed.weight.detach()
    zeros = len(table)  # the id of a further row, the baseline
    model.transformer.tokens_embed = torch.nn.Embedding.from_pretrained(
        torch.cat([table, torch.zeros(1, table.shape[1])])
    )

    def log_odds_by_torch(ids, answer):
        logits = model(ids).logits
        others = [index for index in range(3) if index != answer]
        return logits[:, answer] - torch.logsumexp(logits[:, others], -1)

    captums = captum.attr.LayerIntegratedGradients(
        log_odds_by_torch, model.transformer.tokens_embed
    )
    for row, text in enumerate(texts):
        encoding = tokenizer(text, return_offsets_mapping=True, truncation=True, max_length=24)
        ids = torch.tensor([encoding["input_ids"]])
        answer = int(model(ids).logits.argmax())
        assert found["label"][row] == f"LABEL_{answer}".encode()
        by_token, error = captums.attribute(
            ids,
            torch.full_like(ids, zeros),
            additional_forward_args=(answer,),
            n_steps=STEPS,
            method="gausslegendre",
            return_convergence_delta=True,
        )
        by_word = np.bincount(encoding.word_ids(), by_token.sum(-1)[0].detach().numpy())
        assert np.abs(by_word).max() > 0.1
        np.testing.assert_allclose(shares_of(found, row), by_word, atol=1e-4, rtol=0)
        np.testing.assert_allclose(found["completeness_error"][row], error[0], atol=1e-4, rtol=0)
        # The words are theirs, too.
        spans = [encoding.word_to_chars(word) for word in range(len(by_word))]
        spans = [(len(text[:start].encode()), len(text[:end].encode())) for start, end in spans]
        assert [(start, end) for _, _, start, end in words_of(found, row)] == spans
        for word, field, start, end in words_of(found, row):
            assert (word, field) == (text.encode()[start:end], b"text")


def changed(model, change):
    """A copy of the model, whose matrices a function of the variable has changed."""
    backbone = type(model.backbone).from_config(model.backbone.get_config())
    parts = {"backbone": backbone, "preprocessor": model.preprocessor}
    copy = type(model)(**(model.get_config() | parts))
    copy.set_weights(model.get_weights())
    for variable in copy.weights:
        if len(variable.shape) == 2:
            variable.assign(change(variable))
    return copy


@pytest.fixture(params=["pair", "scorer", "chooser"])
def model_and_texts(request, make_classifier, scorer, chooser):
    if request.param == "pair":
        model, texts = make_classifier("pair"), dict(zip(("premise", "hypothesis"), PAIRS.values()))
    else:
        model, texts = (scorer, PAIRS) if request.param == "scorer" else (chooser, STORIES)
    return changed(model, lambda matrix: 0.5 * matrix), texts  # smooth, so that few steps do


@pytest.mark.slow
def test_gradients_add_up_to_the_way_from_the_baseline(model_and_texts, monkeypatch):
    """Shares of all words are what is explained, less the same without any embedding of a word."""
    model, texts = model_and_texts
    monkeypatch.setattr(explanation_methods, "_MAX_TOKENS_OF_GRADIENTS", 300)  # several runs
    found = explain(model, Explanation(INTEGRATED_GRADIENTS, steps=12), **texts)
    table = model.backbone.token_embedding.embeddings
    is_special = np.isin(np.arange(table.shape[0]), model.preprocessor.tokenizer.special_token_ids)
    baseline = changed(
        model,
        lambda matrix: (
            np.array(matrix) * (is_special[:, None] if matrix.shape == table.shape else 1)
        ),
    )
    before, after = outputs_of(model, texts), outputs_of(baseline, texts)
    answer = before.argmax(axis=-1)
    change = explained_of(model, before, answer) - explained_of(model, after, answer)
    assert np.abs(change).max() > 0.05
    total = found["word_shares"].sum(axis=1)
    np.testing.assert_allclose(total - found["completeness_error"], change, atol=2e-5, rtol=0)
    np.testing.assert_allclose(total, change, atol=2e-3, rtol=0)


# --- one word left out ---


def texts_without(texts, row, word):
    """An example with a blank in the place of a word, as a batch."""
    [_, field, start, end, *choice] = word
    changed = {name: values[row] for name, values in texts.items()}

    def cut(text):
        return text.encode()[:start].decode() + " " + text.encode()[end:].decode()

    field = field.decode()
    if choice and choice[0] >= 0:
        changed[field] = list(changed[field])
        changed[field][choice[0]] = cut(changed[field][choice[0]])
    else:
        changed[field] = cut(changed[field])
    return changed


@pytest.mark.slow
def test_leaving_words_out_is_asking_without_them(model_and_texts, monkeypatch):
    model, texts = model_and_texts
    monkeypatch.setattr(explanation_methods, "_MAX_TOKENS_LEFT_OUT", 300)
    found = explain(model, Explanation(LEAVE_ONE_OUT), **texts)
    before = outputs_of(model, texts)
    asked = [(row, word) for row in range(len(before)) for word in words_of(found, row)]
    without = [texts_without(texts, *each) for each in asked]
    columns = {name: [each[name] for each in without] for name in texts}
    rows, answer = np.array([row for row, _ in asked]), before.argmax(axis=-1)
    expected = explained_of(model, before, answer)[rows]
    expected -= explained_of(model, outputs_of(model, columns), answer[rows])
    shares = np.concatenate([shares_of(found, row) for row in range(len(answer))])
    assert np.abs(shares).max() > 0.02
    np.testing.assert_allclose(shares, expected, atol=1e-4, rtol=0)


@pytest.mark.slow
def test_a_truncated_text_and_one_without_words(make_classifier):
    """What was cut moves up when a word is left out; words that were not read are not listed."""
    model = make_classifier("single")
    found = explain(model, Explanation(LEAVE_ONE_OUT), text=REVIEWS)
    assert found["truncated"].tolist() == [False, False, False, True]
    assert found["blank"].tolist() == [False, True, False, False]
    assert found["num_words"][1] == 0 and 0 < found["num_words"][3] < 60
    logits = outputs_of(model, {"text": REVIEWS})
    answer = logits.argmax(axis=-1)
    texts = [texts_without({"text": REVIEWS}, 3, word) for word in words_of(found, 3)]
    after = outputs_of(model, {"text": [each["text"] for each in texts]})
    expected = explained_of(model, logits, answer)[3]
    expected -= explained_of(model, after, answer[[3] * len(texts)])
    np.testing.assert_allclose(shares_of(found, 3), expected, atol=1e-4, rtol=0)
    # An example's explanation does not depend on the others.
    alone = explain(model, Explanation(LEAVE_ONE_OUT), text=REVIEWS[2:3])
    np.testing.assert_allclose(shares_of(alone, 0), shares_of(found, 2), atol=1e-5, rtol=0)


# --- what is explained, and what is refused ---


def test_log_odds():
    logits = np.array([[1.0, 2.0, -1.0], [30.0, 0.0, -1e9], [0.5, -1e9, -1e9]], "float32")
    found = log_odds(tf.constant(logits), tf.constant([1, 0, 0])).numpy()
    expected = scipy.special.logit(scipy.special.softmax(logits[0])[1])
    # 30 nats are a probability of 1 in float32; of a single choice, it is the logit.
    np.testing.assert_allclose(found, [expected, 30.0, 0.5], rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("activation", ["softmax", "sigmoid"])
def test_activations(make_classifier, activation):
    """A softmax in the model changes nothing; of others, what they return is explained."""
    texts = {"text": REVIEWS[:1]}
    found = explain(
        make_classifier("single", activation=activation), Explanation(LEAVE_ONE_OUT), **texts
    )
    linear = make_classifier("single")
    if activation == "softmax":
        expected = explain(linear, Explanation(LEAVE_ONE_OUT), **texts)["word_shares"]
    else:
        texts = ["A good film", "good film", "A  film", "A good "]
        logits = outputs_of(linear, {"text": texts})
        scores = scipy.special.expit(logits)[:, logits[0].argmax()]
        expected = [scores[0] - scores[1:]]
    np.testing.assert_allclose(found["word_shares"], expected, atol=1e-5, rtol=0)


def test_an_empty_batch(chooser):
    for method in (INTEGRATED_GRADIENTS, LEAVE_ONE_OUT):
        texts = {"context": [], "question": [], "choices": np.empty((0, 2), object)}
        texts = {name: tf.constant(values, tf.string) for name, values in texts.items()}
        found = explain(chooser, Explanation(method), **texts)
        assert found["num_words"].shape == (0,) and found["word_shares"].shape == (0, 0)


def test_texts_that_take_too_long(make_classifier, chooser):
    with pytest.raises(tf.errors.InvalidArgumentError, match="7 words"):
        explain(make_classifier("single"), Explanation(LEAVE_ONE_OUT, max_words=7), text=REVIEWS)
    texts = {"context": ["good"], "question": [""], "choices": [["good film " * 40] * 5]}
    with pytest.raises(tf.errors.InvalidArgumentError, match="96 tokens"):
        explain(chooser, Explanation(), **texts)


def test_what_is_not_explained(lm, make_classifier, tiny_tokenizer, int8_products, tmp_path):
    backbone = gpt1_keras.LSTMBackbone(
        tiny_tokenizer.vocabulary_size(), 8, 8, max_sequence_length=32
    )
    preprocessor = gpt1_keras.GPT1TextClassifierPreprocessor(tiny_tokenizer)
    lstm = gpt1_keras.GPT1TextClassifier(backbone, 2, preprocessor)
    for model, options, noun in [
        (lm, {}, "GPT1CausalLM"),
        (lstm, {}, "LSTMBackbone.*'leave-one-out'"),
        (make_classifier("single"), {"int8": True}, "8 bits"),
    ]:
        with pytest.raises(ValueError, match=noun):
            export(model, tmp_path, explain=Explanation(), **options)
    assert not list(tmp_path.iterdir())
    found = explain(lstm, Explanation(LEAVE_ONE_OUT), text=REVIEWS[:1])
    assert np.abs(found["word_shares"]).max() > 0.0


@pytest.mark.parametrize(
    ("name", "value"), [("method", "gradients"), ("max_words", 0), ("steps", 0)]
)
def test_bad_options(name, value):
    with pytest.raises(ValueError, match=name):
        Explanation(**{name: value})


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (INTEGRATED_GRADIENTS, "160 tokens"),
        (LEAVE_ONE_OUT, "20480"),
    ],
)
def test_a_request_is_bounded(make_classifier, method, message):
    """Not only each of its examples: one value may stand for all rows."""
    model = make_classifier("single")
    many = np.array(["good bad " * 15] * 256, object)
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        explain(model, Explanation(method, steps=2), text=many)
    assert len(explain(model, Explanation(method, steps=2), text=many[:4])["label"]) == 4


# --- exports that explain: in the C++ runtime, with the other options, and served ---


WORDS = ["words", "word_fields", "word_starts", "word_ends", "word_shares", "num_words"]


@pytest.fixture(scope="module")
def path(make_classifier, tmp_path_factory):
    """The path of an export by the program, whose answers are explained by gradients."""
    folder = tmp_path_factory.mktemp("explained")
    make_classifier("single").save_to_preset(folder / "preset")
    arguments = [f"--model={folder / 'preset'}", f"--output={folder / 'model'}", "--batching"]
    assert main([*arguments, "--explain=integrated-gradients", "--explain-steps=5"]) == 0
    return folder / "model" / "1"


@pytest.mark.slow
def test_without_python_tensorflow(path, run_cpp):
    """Beside words and shares come the outputs of `serving_default`."""
    model = load_task(path.parents[1] / "preset")
    found = run_cpp(path, "explain", text=REVIEWS)
    answers = run_cpp(path, "serving_default", text=REVIEWS)
    assert set(found) == {*answers, *WORDS, "completeness_error"}
    np.testing.assert_allclose(found["scores"], answers.pop("scores"), atol=1e-6, rtol=0)
    assert {name: found[name] for name in answers} == answers
    expected = explain(model, Explanation(steps=5), text=REVIEWS)
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
    found, expected = run_cpp(path, "explain", **STORIES), explain(chooser, explanation, **STORIES)
    assert set(found) == set(expected)
    for name, array in expected.items():
        if array.dtype.kind == "f":
            np.testing.assert_allclose(found[name], array, atol=2e-5, rtol=0)
        else:
            texts = np.vectorize(bytes.decode, otypes=[object])
            assert found[name] == (texts(array) if array.dtype == object else array).tolist(), name
    assert check.main([path]) == 0
