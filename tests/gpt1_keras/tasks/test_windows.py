"""Long texts are read in windows, and the answer is the mean of the windows', everywhere."""

import contextlib

import keras
import numpy as np
import pytest
import scipy.special
import tensorflow as tf

import gpt1_keras
from gpt1_keras.presets import load_task
from gpt1_keras.tokenization import list_backend, tensor_backend
from serving.export.exporter import export
from serving.tflite import TextModel, convert
from tests.helpers.eager import eagerly

LENGTH, WINDOWS = 16, 3
ROOM, MAX_BYTES = LENGTH - 2, 1000
WORDS = ["good", "film", "bad", "dull", "kind", "lovely", "staff", "one"]  # of one token each
COUNTS = [0, 3, 14, 15, 28, 29, 42, 43, 100]
NAMES = ["bad", "good", "neutral"]


def words(count):
    return " ".join(np.random.default_rng(count).choice(WORDS, count))


TEXTS = [words(count) for count in COUNTS]


def windows_of(text):
    """The texts of a text's windows."""
    words = text.split()
    count = min(max(-(-len(words) // ROOM), 1), WINDOWS)
    ends = [number * len(words) // count for number in range(count + 1)]
    return [" ".join(words[start:end][:ROOM]) for start, end in zip(ends, ends[1:])]


@pytest.fixture
def make(tiny_tokenizer):
    """Makes a classifier; all have the same backbone, and equal heads."""
    vocabulary_size = tiny_tokenizer.vocabulary_size()
    decoder = gpt1_keras.GPT1Backbone(vocabulary_size, 2, 2, 16, 32, dropout=0.0)
    for weight in decoder.weights:
        weight.assign(weight + np.random.default_rng(0).normal(0.0, 0.2, weight.shape))

    def make(windows=WINDOWS, backbone=decoder, **arguments):
        preprocessor = gpt1_keras.GPT1TextClassifierPreprocessor(
            tiny_tokenizer, LENGTH, windows=windows
        )
        arguments = {"class_names": NAMES, "dropout": 0.0, **arguments}
        model = gpt1_keras.GPT1TextClassifier(backbone, preprocessor=preprocessor, **arguments)
        kernel = model.head.kernel
        kernel.assign(np.random.default_rng(1).normal(0.0, 1.0, kernel.shape))
        return model

    return make


def means(predict):
    """The means of the probabilities of each text's windows, from their logits."""
    softmax = scipy.special.softmax
    return np.array([softmax(predict(windows_of(text)), axis=-1).mean(axis=0) for text in TEXTS])


def predictor(model):
    return lambda texts: model.predict(texts, verbose=0)


@pytest.mark.slow
@pytest.mark.parametrize("is_lstm", [False, True])
def test_the_mean_of_probabilities(make, tiny_tokenizer, is_lstm):
    lstm = gpt1_keras.LSTMBackbone(tiny_tokenizer.vocabulary_size(), 8, 8)
    backbone = {"backbone": lstm} if is_lstm else {}
    model, plain = make(**backbone), make(1, **backbone)
    expected = means(predictor(plain))
    for batch_size in (1, 4, len(TEXTS)):
        found = model.predict(TEXTS, batch_size=batch_size, verbose=0)
        np.testing.assert_allclose(found, np.log(expected), atol=1e-5)
    data = tf.data.Dataset.from_tensor_slices(TEXTS).batch(2)
    np.testing.assert_allclose(model.predict(data, verbose=0), found, atol=1e-5)
    np.testing.assert_allclose(model.predict_outputs(model.preprocessor(TEXTS)), found, atol=1e-5)
    answers = model.classify(TEXTS)
    scores = [[each["scores"][name] for name in NAMES] for each in answers]
    np.testing.assert_allclose(scores, expected, atol=1e-5)
    assert [each["blank"] for each in answers] == [count == 0 for count in COUNTS]


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        {"activation": "softmax"},
        {"activation": "sigmoid"},
        {"activation": "sigmoid", "class_names": None, "num_classes": 1},
        {"class_names": None, "score_range": (0, 4)},
    ],
)
def test_other_outputs(make, arguments):
    """Of sigmoids and of scores, too, the means."""
    model, plain = make(**arguments), make(1, **arguments)
    expected = np.array([predictor(plain)(windows_of(text)).mean(axis=0) for text in TEXTS])
    np.testing.assert_allclose(predictor(model)(TEXTS), expected, atol=1e-5)


@pytest.mark.slow
def test_the_objective(make):
    """L3 of weighted texts, from the probabilities of separate sequences; in slices and by XLA."""
    labels = np.arange(len(TEXTS)) % 3
    weights = np.linspace(0.5, 2.0, len(TEXTS))
    plain = make(1)

    def mean_loss(text):
        """L1 of a text: the mean over its windows of the mean over their next tokens."""
        losses = []
        for window in windows_of(text):
            ids = plain.preprocessor([window], pad_to="longest")["token_ids"]
            states = plain.backbone({"token_ids": ids})[0]
            logits = np.array(states) @ np.array(plain.backbone.token_embedding.embeddings).T
            logs = scipy.special.log_softmax(logits[:-1], axis=-1)
            losses.append(-np.mean(logs[np.arange(len(logs)), np.array(ids)[0, 1:]]))
        return np.mean(losses)

    nll = -np.log(means(predictor(plain))[np.arange(len(TEXTS)), labels])
    l1 = np.array([mean_loss(text) for text in TEXTS])
    expected = np.mean(weights * (nll + 0.5 * l1))
    before, after = plain.backbone.get_weights(), []
    for steps, jit_compile in ((1, False), (4, False), (1, True)):
        plain.backbone.set_weights(before)
        model = make()
        with contextlib.nullcontext() if jit_compile else eagerly():
            model.compile(
                keras.optimizers.SGD(0.1),
                accumulation_steps=steps,
                jit_compile=jit_compile,
                metrics=[],
            )
            found = model.train_on_batch(TEXTS, labels, sample_weight=weights, return_dict=True)
        assert found["loss"] == pytest.approx(expected, abs=1e-4)
        after.append(model.get_weights())
    for first, *others in zip(*after, strict=True):
        for other in others:
            np.testing.assert_allclose(other, first, atol=1e-5)
    plain.backbone.set_weights(before)
    model = make()
    model.compile()
    found = model.evaluate(TEXTS, labels, verbose=0, return_dict=True)
    assert found["loss"] == pytest.approx(np.mean(nll), abs=1e-4)


def test_it_is_part_of_a_preset(make, tmp_path):
    model = make()
    model.save_to_preset(tmp_path)
    loaded = load_task(tmp_path)
    assert loaded.windows == loaded.preprocessor.windows == WINDOWS
    np.testing.assert_allclose(predictor(loaded)(TEXTS), predictor(model)(TEXTS), atol=1e-6)
    make(1).save_to_preset(tmp_path / "plain")  # which was trained on texts that were cut
    preprocessor = type(model.preprocessor).from_preset(str(tmp_path / "plain"), windows=WINDOWS)
    plain = type(model).from_preset(str(tmp_path / "plain"), preprocessor=preprocessor)
    np.testing.assert_allclose(predictor(plain)(TEXTS), predictor(model)(TEXTS), atol=1e-6)
    assert predictor(model.with_classes(["new"]))(TEXTS).shape == (len(TEXTS), 4)
    config = model.preprocessor.get_config()
    del config["windows"]  # as earlier versions wrote it
    assert type(model.preprocessor).from_config(config).windows == 1


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"batching": True}, {"int8_storage": True}])
def test_an_export_answers_alike(make, tmp_path, options, run_cpp):
    model = make(temperature=1.5)
    folder = export(model, tmp_path, **options)
    expected = scipy.special.softmax(predictor(model)(TEXTS) / 1.5, axis=-1)
    tolerance = 0.02 if options.get("int8_storage") else 1e-5
    for answer in (
        tf.saved_model.load(folder).signatures["serving_default"](text=tf.constant(TEXTS)),
        run_cpp(folder, "serving_default", text=TEXTS),
    ):
        np.testing.assert_allclose(answer["scores"], expected, atol=tolerance)
        assert np.array(answer["truncated"]).tolist() == [count > 42 for count in COUNTS]
        tokens = [sum(len(each.split()) + 2 for each in windows_of(text)) for text in TEXTS]
        assert np.array(answer["num_tokens"]).tolist() == tokens
    signatures = tf.saved_model.load(folder).signatures
    inputs = signatures["tokenize"](text=tf.constant(TEXTS))
    starts, ends = inputs["starts"].numpy(), inputs["ends"].numpy()
    for number, text in enumerate(TEXTS):
        found = [text[start:end] for start, end in zip(starts[number].flat, ends[number].flat)]
        assert [each for each in found if each] == " ".join(windows_of(text)).split()
    ids = {name: inputs[name] for name in ("token_ids", "padding_mask")}
    of_tokens = signatures["tokens"](**ids)["scores"]
    np.testing.assert_allclose(of_tokens, expected, atol=tolerance)
    for wrong in (
        {name: tf.zeros_like(each) for name, each in ids.items()},
        {name: tf.tile(each, [1, 2, 1]) for name, each in ids.items()},
    ):
        with pytest.raises(tf.errors.InvalidArgumentError):
            signatures["tokens"](**wrong)
    with pytest.raises(tf.errors.InvalidArgumentError, match="windows in a request"):
        signatures["serving_default"](text=tf.constant([words(100)] * 200))


def log_odds(model, texts, answer):
    probabilities = scipy.special.softmax(predictor(model)(texts), axis=-1)[:, answer]
    return scipy.special.logit(probabilities.astype(np.float64))


@pytest.mark.slow
@pytest.mark.parametrize("method", ["leave-one-out", "integrated-gradients"])
def test_words_of_all_windows_are_explained(make, tmp_path, method):
    model, text = make(), TEXTS[COUNTS.index(42)]
    explain = tf.saved_model.load(export(model, tmp_path, explain=method)).signatures["explain"]
    found = explain(text=tf.constant([text]))
    words = text.split()
    assert [word.decode() for word in found["words"][0].numpy()] == words
    answer = int(np.argmax(predictor(model)([text])))
    [whole] = log_odds(model, [text], answer)
    if method == "leave-one-out":
        without = [" ".join(words[:n] + words[n + 1 :]) for n in range(len(words))]
        expected = whole - log_odds(model, without, answer)
        np.testing.assert_allclose(found["word_shares"][0], expected, atol=1e-3)
    else:  # each word's share is the derivative's integral, so all sum up to the difference
        assert abs(found["completeness_error"][0]) < 0.02
    several = explain(text=tf.constant([words[0], text, ""]))
    np.testing.assert_allclose(several["word_shares"][1], found["word_shares"][0], atol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments", [{}, {"activation": "sigmoid"}, {"class_names": None, "score_range": (0, 4)}]
)
def test_a_device_answers_alike(make, tmp_path, arguments):
    model = make(**arguments)
    answer = TextModel(convert(model, tmp_path / "model.tflite", MAX_BYTES))
    for text, count, expected in zip(TEXTS, COUNTS, model.classify(TEXTS)):
        found = answer(text)
        for name in {"scores", "score"} & expected.keys():
            assert found[name] == pytest.approx(expected[name], abs=1e-5)
        assert found["truncated"] == (count > 42)
        assert found["num_tokens"] == sum(len(each.split()) + 2 for each in windows_of(text))


@pytest.mark.slow
def test_a_device_in_8_bits(make, tmp_path):
    model = make()
    answer = TextModel(convert(model, tmp_path / "model.tflite", MAX_BYTES, quantize="int8"))
    for text, expected in zip(TEXTS, model.classify(TEXTS)):
        assert answer(text)["scores"] == pytest.approx(expected["scores"], abs=0.05)


@pytest.mark.parametrize("tail", [0.0, 0.5])
@pytest.mark.parametrize("pad_to", ["bucket", "longest", "sequence_length"])
def test_without_tensorflow(tiny_tokenizer, tail, pad_to):
    ids = tiny_tokenizer(TEXTS)
    arguments = tiny_tokenizer, LENGTH, tail, WINDOWS
    framed, truncated = tensor_backend.frame_windows(ids, *arguments)
    of_lists, are_truncated = list_backend.frame_windows(ids.to_list(), *arguments)
    assert framed.to_list() == of_lists
    assert truncated.numpy().tolist() == are_truncated.tolist()
    arguments = tiny_tokenizer, LENGTH, WINDOWS, pad_to
    padded = tensor_backend.pad_windows(framed, *arguments)
    for name, array in list_backend.pad_windows(of_lists, *arguments).items():
        np.testing.assert_array_equal(padded[name], array)
    if pad_to == "sequence_length":
        assert padded["token_ids"].shape == [len(TEXTS), WINDOWS, LENGTH]


@pytest.mark.parametrize(
    "arguments, name",
    [
        ({"windows": 0}, "windows"),
        ({"windows": 2.0}, "windows"),
        ({"windows": 2, "fields": ("premise", "hypothesis")}, "premise"),
    ],
)
def test_what_has_no_windows(tiny_tokenizer, arguments, name):
    with pytest.raises(ValueError, match=name):
        gpt1_keras.GPT1TextClassifierPreprocessor(tiny_tokenizer, LENGTH, **arguments)


@pytest.mark.parametrize(
    "use, name",
    [
        (lambda make: make(class_names=None, num_classes=1), "sigmoid"),
        (lambda make: make().compile(loss="binary_crossentropy"), "sigmoid"),
        (lambda make: convert(make(), "model.tflite", sequence_length=LENGTH - 1), "15"),
    ],
)
def test_what_is_refused(make, use, name):
    with pytest.raises(ValueError, match=name):
        use(make)
