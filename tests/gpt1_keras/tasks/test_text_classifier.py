"""The classifier on raw strings: it learns, takes all forms of data, and names errors."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import gpt1_keras
from gpt1_keras.optimization.optimizer import finetuning_optimizer
from gpt1_keras.tokenization.input_transformations import frame

CLASS_NAMES = ["negative", "positive"]
ADJECTIVES = {"negative": ["bad", "dull"], "positive": ["good", "lovely"]}
NOUNS = ["film", "one", "staff", "a film", "the one", "and a film"]
FIELDS = ("premise", "hypothesis")

TEXTS, NAMES = (
    np.array(column)
    for column in zip(
        *(
            (f"{adjective} {noun}", name)
            for noun in NOUNS
            for name, adjectives in ADJECTIVES.items()
            for adjective in adjectives
        )
    )
)
LABELS = np.array([CLASS_NAMES.index(name) for name in NAMES])


def make_backbone(tokenizer, **config):
    sizes = {"num_layers": 1, "num_heads": 2, "hidden_dim": 32, "intermediate_dim": 64}
    return gpt1_keras.GPT1Backbone(
        tokenizer.vocabulary_size(), **(sizes | {"max_sequence_length": 48} | config)
    )


def make_classifier(tokenizer, fields=("text",), sequence_length=24, **arguments):
    """A small classifier that runs eagerly, which is faster for a few steps.

    Its weights are far from their initial ones, with which all texts have nearly the same scores.
    """
    keras.utils.set_random_seed(0)
    preprocessor = gpt1_keras.GPT1TextClassifierPreprocessor(tokenizer, sequence_length, fields)
    arguments = {"class_names": CLASS_NAMES} | arguments
    classifier = gpt1_keras.GPT1TextClassifier(
        make_backbone(tokenizer), preprocessor=preprocessor, **arguments
    )
    random = np.random.default_rng(4)
    for variable in classifier.weights:
        variable.assign(variable + random.normal(0.0, 0.3, variable.shape))
    classifier.compile(run_eagerly=True)
    return classifier


@pytest.fixture
def classifier(tiny_tokenizer):
    return make_classifier(tiny_tokenizer)


@pytest.fixture(scope="module")
def untrained(tiny_tokenizer):
    """As `classifier`, for tests that do not change it."""
    return make_classifier(tiny_tokenizer)


@pytest.fixture(scope="module")
def pair_classifier(tiny_tokenizer):
    return make_classifier(tiny_tokenizer, FIELDS)


@pytest.fixture(scope="module")
def trained(tiny_tokenizer):
    """A classifier that `fit` on raw strings has taught the toy problem."""
    classifier = make_classifier(tiny_tokenizer)
    classifier.compile(finetuning_optimizer(1e-2), jit_compile=False)
    history = classifier.fit(TEXTS, NAMES, batch_size=4, epochs=8, verbose=0).history
    classifier.fit_losses = history["loss"]
    return classifier


@pytest.fixture
def head_trainer(classifier):
    """A classifier that trains its head only, which is quick."""
    classifier.backbone.trainable = False
    classifier.compile(run_eagerly=True)
    return classifier


def total_steps(classifier):
    return classifier.optimizer._learning_rate.total_steps


def cross_entropy(classifier, texts, labels):
    """L2, and the terms that it is the mean of."""
    scores = classifier.predict_on_batch(texts).astype(np.float64)
    log_probabilities = scores - np.log(np.sum(np.exp(scores), axis=1, keepdims=True))
    terms = -log_probabilities[np.arange(len(labels)), labels]
    return np.mean(terms), terms


def assert_same_scores(found, expected):
    np.testing.assert_allclose(found, expected, atol=1e-5, rtol=0)


# --- training, evaluation, prediction ---


@pytest.mark.slow
def test_fit_on_strings_learns(trained):
    assert trained.fit_losses[-1] < trained.fit_losses[0] / 2
    loss, accuracy = trained.evaluate(TEXTS, NAMES, verbose=0)
    assert (loss < 0.1, accuracy) == (True, 1.0)
    unseen = ["a lovely and good film", "a dull and bad staff"]
    assert trained.predict(unseen, verbose=0).argmax(axis=-1).tolist() == [1, 0]


def test_labels_are_numbers_or_names(trained):
    found = trained.evaluate(list(TEXTS), list(NAMES), verbose=0)
    assert found == [pytest.approx(cross_entropy(trained, TEXTS, LABELS)[0], abs=1e-5), 1.0]
    trained.reset_metrics()
    found = trained.test_on_batch(TEXTS, 1 - LABELS)
    assert found == [pytest.approx(cross_entropy(trained, TEXTS, 1 - LABELS)[0], abs=1e-5), 0.0]


@pytest.mark.slow
def test_predict_takes_lists_arrays_and_datasets(trained):
    texts = [*TEXTS, *TEXTS]
    expected = trained.predict_on_batch(texts)
    assert (expected.shape, expected.dtype) == ((48, 2), np.float32)
    data = tf.data.Dataset.from_tensor_slices(texts).batch(7)
    for x in (np.array(texts, object), data):
        assert_same_scores(trained.predict(x, verbose=0), expected)


def test_activation(tiny_tokenizer, untrained):
    softmax = make_classifier(tiny_tokenizer, activation="softmax")
    expected = keras.ops.softmax(untrained.predict_on_batch(TEXTS))
    assert_same_scores(softmax.predict_on_batch(TEXTS), expected)
    loss = softmax.test_on_batch(TEXTS, NAMES)[0]
    assert loss == pytest.approx(cross_entropy(untrained, TEXTS, LABELS)[0], abs=1e-5)


def test_batch_mates_do_not_matter(trained):
    texts = ["a good film", "", "dull " * 9, "the staff"]
    together = trained.predict_on_batch(texts)
    alone = np.concatenate([trained.predict_on_batch([text]) for text in texts])
    assert_same_scores(alone, together)


@pytest.mark.slow
def test_validation_split_takes_the_last(head_trainer):
    history = head_trainer.fit(TEXTS, NAMES, validation_split=0.25, batch_size=9, verbose=0).history
    assert int(head_trainer.optimizer.iterations) == 2  # 18 of 24 texts
    loss, _ = cross_entropy(head_trainer, TEXTS[18:], LABELS[18:])
    assert history["val_loss"] == [pytest.approx(loss, abs=1e-5)]


def test_sample_weights(head_trainer):
    _, terms = cross_entropy(head_trainer, TEXTS, LABELS)
    head_trainer.compile(keras.optimizers.Adam(1e-2), lm_coefficient=0.0, run_eagerly=True)
    head_trainer.fit(TEXTS, NAMES, sample_weight=np.zeros(24), batch_size=24, verbose=0)
    assert_same_scores(cross_entropy(head_trainer, TEXTS, LABELS)[1], terms)


# --- pairs ---


def test_pairs_as_tuple_and_as_dict(pair_classifier):
    premises, hypotheses = list(TEXTS[:8]), list(TEXTS[8:16])
    expected = pair_classifier.predict_on_batch((premises, hypotheses))
    as_dict = {"hypothesis": hypotheses, "premise": premises}
    assert_same_scores(pair_classifier.predict_on_batch(as_dict), expected)
    assert_same_scores(pair_classifier.predict((premises, hypotheses), verbose=0), expected)
    swapped = pair_classifier.predict_on_batch((hypotheses, premises))
    assert np.abs(swapped - expected).max() > 1e-2
    pair_classifier.backbone.trainable = False
    pair_classifier.fit(as_dict, NAMES[:8], batch_size=8, verbose=0)


def test_a_dataset_of_pairs(pair_classifier):
    pairs = (TEXTS[:4], TEXTS[4:8])
    data = tf.data.Dataset.from_tensor_slices((pairs, NAMES[:4])).batch(4)
    found = pair_classifier.evaluate(data, verbose=0)[0]
    expected, _ = cross_entropy(pair_classifier, pairs, LABELS[:4])
    assert found == pytest.approx(expected, abs=1e-5)


# --- labels and classes ---


# --- texts ---


def test_an_empty_text_has_its_own_scores(trained):
    scores = trained.predict_on_batch(["", " \t\n", "a film"])
    assert np.all(np.isfinite(scores))
    assert_same_scores(scores[1], scores[0])
    assert np.abs(scores[2] - scores[0]).max() > 1e-3


def test_a_long_text_is_cut_on_its_right(trained):
    tokens = ["good", "bad"] * 30
    scores = trained.predict_on_batch(
        [" ".join(tokens), " ".join(tokens[:22]), " ".join(tokens[:21])]
    )
    assert_same_scores(scores[0], scores[1])  # 24 tokens, with start and extract
    assert np.abs(scores[2] - scores[0]).max() > 1e-5


def test_bytes_that_are_not_utf8_are_dropped(trained):
    texts = np.array([b"a g\xffood \xc3film\xf0\x9f", b"a good film", b"\xff\xfe", b""], object)
    scores = trained.predict_on_batch(texts)
    assert_same_scores(scores[0], scores[1])
    assert_same_scores(scores[2], scores[3])


def test_the_token_ids_of_a_text(tiny_tokenizer):
    preprocessor = gpt1_keras.GPT1TextClassifierPreprocessor(tiny_tokenizer, 24)
    inputs = preprocessor(["a good film", ""], pad_to="bucket")
    start, extract = tiny_tokenizer.start_token_id, tiny_tokenizer.extract_token_id
    ids = [start, *tiny_tokenizer("a good film").numpy(), extract]
    assert inputs["token_ids"].numpy().tolist() == [
        ids + [0] * (16 - len(ids)),
        [start, extract] + [0] * 14,
    ]
    assert inputs["padding_mask"].numpy().sum(axis=1).tolist() == [len(ids), 2]


def test_the_scores_are_of_the_extract_token(untrained, tiny_tokenizer):
    ids, _ = frame([tiny_tokenizer(TEXTS[:4])], tiny_tokenizer, 24)
    rows = []
    for row in ids.to_list():
        states = np.array(untrained.backbone({"token_ids": np.array([row])}))
        rows.append(states[0, -1] @ np.array(untrained.head.kernel))
    expected = np.array(rows) + np.array(untrained.head.bias)
    assert_same_scores(untrained.predict_on_batch(TEXTS[:4]), expected)


def test_a_model_without_preprocessor_takes_ids(classifier):
    expected = classifier.predict_on_batch(TEXTS[:4])
    inputs = {name: np.array(ids) for name, ids in classifier.preprocessor(TEXTS[:4]).items()}
    classifier.preprocessor = None
    assert_same_scores(classifier.predict(inputs, verbose=0), expected)
    classifier.fit(inputs, NAMES[:4], verbose=0)


# --- order, schedule, optimizer ---


@pytest.fixture
def order_of(tiny_tokenizer):
    """A function that fits, and returns the labels in the order that the loss sees them.

    Each text is its own class, so that labels tell texts apart.
    """

    def fit(as_dataset=False, **arguments):
        classifier = make_classifier(tiny_tokenizer, num_classes=24, class_names=None)
        x, y = dict(classifier.preprocessor(TEXTS)), np.arange(24)
        x = {name: np.array(ids) for name, ids in x.items()}
        classifier.preprocessor, classifier.backbone.trainable = None, False
        seen = []

        def loss(labels, scores):
            seen.extend(np.array(labels).ravel().tolist())
            return keras.ops.mean(scores, axis=-1)

        classifier.compile("sgd", loss, metrics=[], lm_coefficient=0, run_eagerly=True)
        if as_dataset:
            data = tf.data.Dataset.from_tensor_slices((x, y)).batch(8)
            classifier.fit(data, verbose=0, **arguments)
        else:
            classifier.fit(x, y, batch_size=8, verbose=0, **arguments)
        return seen

    return fit


def test_arrays_are_shuffled_anew_each_epoch(order_of):
    seen = order_of(epochs=2)
    first, second = seen[:24], seen[24:]
    assert sorted(first) == sorted(second) == list(range(24))
    assert first != list(range(24))
    assert second not in (first, list(range(24)))


def test_arrays_are_left_in_order_on_request(order_of):
    assert order_of(shuffle=False) == list(range(24))


def test_a_dataset_is_left_in_order(order_of):
    assert order_of(as_dataset=True, epochs=2) == list(range(24)) * 2


@pytest.mark.slow
def test_the_schedule_spans_all_updates_of_every_fit(head_trainer):
    head_trainer.compile(finetuning_optimizer(1e-2), jit_compile=False)
    optimizer, kernel = head_trainer.optimizer, head_trainer.head.kernel
    head_trainer.fit(TEXTS, NAMES, batch_size=10, epochs=2, verbose=0)
    assert total_steps(head_trainer) == int(optimizer.iterations) == 6
    assert float(optimizer.learning_rate) == 0.0

    before = np.array(kernel)
    data = tf.data.Dataset.from_tensor_slices((TEXTS, NAMES)).batch(10)
    head_trainer.fit(data, initial_epoch=2, epochs=4, verbose=0)
    assert total_steps(head_trainer) == int(optimizer.iterations) == 12
    # With the first call's end in its graph, the second one would have learned at the rate 0.
    assert np.abs(np.array(kernel) - before).max() > 1e-3


def test_a_total_that_the_user_gave_is_kept(head_trainer):
    head_trainer.compile(finetuning_optimizer(1e-3, total_steps=500), run_eagerly=True)
    head_trainer.fit(TEXTS, NAMES, batch_size=12, verbose=0)
    assert total_steps(head_trainer) == 500


def test_the_defaults_are_the_papers(tiny_tokenizer):
    preprocessor = gpt1_keras.GPT1TextClassifierPreprocessor(tiny_tokenizer)
    classifier = gpt1_keras.GPT1TextClassifier(
        make_backbone(tiny_tokenizer), 2, preprocessor=preprocessor
    )
    assert classifier.auxiliary.coefficient == 0.5
    assert classifier.dropout == classifier.backbone.dropout == 0.1
    expected = finetuning_optimizer().get_config()
    expected["name"] = classifier.optimizer.name
    assert classifier.optimizer.get_config() == expected
    assert classifier.preprocessor.sequence_length == 48


def test_lora_trains_the_head_beside_it(classifier):
    classifier.backbone.enable_lora(2)
    frozen = [np.array(block.expand.kernel) for block in classifier.backbone.blocks]
    classifier.compile(keras.optimizers.SGD(1.0), run_eagerly=True)
    head = np.array(classifier.head.kernel)
    classifier.fit(TEXTS, NAMES, batch_size=12, verbose=0)
    for before, block in zip(frozen, classifier.backbone.blocks):
        np.testing.assert_array_equal(block.expand.kernel, before)
    assert np.abs(np.array(classifier.head.kernel) - head).max() > 1e-3


# --- presets and files ---


def test_preset_round_trip_of_pairs(pair_classifier, tmp_path):
    pair_classifier.save_to_preset(tmp_path / "preset")
    copy = gpt1_keras.GPT1TextClassifier.from_preset(str(tmp_path / "preset"))
    assert (copy.class_names, copy.preprocessor.fields) == (CLASS_NAMES, FIELDS)
    assert copy.preprocessor.sequence_length == 24
    assert copy.tokenizer.normalization == "bert"
    pairs = (list(TEXTS[:4]), list(TEXTS[4:8]))
    assert_same_scores(copy.predict_on_batch(pairs), pair_classifier.predict_on_batch(pairs))


def test_a_language_models_preset_gets_a_fresh_head(tiny_tokenizer, tmp_path):
    preprocessor = gpt1_keras.GPT1CausalLMPreprocessor(tiny_tokenizer)
    lm = gpt1_keras.GPT1CausalLM(make_backbone(tiny_tokenizer), preprocessor)
    lm.save_to_preset(tmp_path / "preset")
    preset = str(tmp_path / "preset")
    classifier = gpt1_keras.GPT1TextClassifier.from_preset(preset, class_names=["a", "b", "c"])
    assert classifier.class_names == ["a", "b", "c"]
    for ours, theirs in zip(classifier.backbone.weights, lm.backbone.weights, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert np.array(classifier.head.kernel).std() == pytest.approx(0.02, rel=0.3)
    assert not np.any(np.array(classifier.head.bias))
    assert classifier.preprocessor.tokenizer.get_vocabulary() == tiny_tokenizer.get_vocabulary()
    with pytest.raises(ValueError, match="num_classes"):
        gpt1_keras.GPT1TextClassifier.from_preset(preset)


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        ({"class_names": ["a", "b", "c"]}, ["a", "b", "c"]),
        ({"class_names": ["a", "b"]}, ["a", "b"]),
        ({"num_classes": 3}, ["0", "1", "2"]),
    ],
)
def test_a_classifiers_preset_gets_a_fresh_head(trained, tmp_path, arguments, names):
    trained.save_to_preset(tmp_path / "preset")
    fresh = gpt1_keras.GPT1TextClassifier.from_preset(str(tmp_path / "preset"), **arguments)
    assert fresh.class_names == names
    for ours, theirs in zip(fresh.backbone.weights, trained.backbone.weights, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert not np.any(np.array(fresh.head.bias))


def test_weights_round_trip(trained, tiny_tokenizer, tmp_path):
    trained.save_weights(tmp_path / "classifier.weights.h5")
    copy = make_classifier(tiny_tokenizer)
    copy.load_weights(tmp_path / "classifier.weights.h5")
    assert_same_scores(copy.predict_on_batch(TEXTS), trained.predict_on_batch(TEXTS))
