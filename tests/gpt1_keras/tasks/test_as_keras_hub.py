"""What users of KerasHub write works as in KerasHub, or is refused in words."""

import keras
import keras_hub
import numpy as np
import pytest
import tensorflow as tf
from keras.quantizers import GPTQConfig

import gpt1_keras
from serving.export.task_answers import class_or_score_answers

TEXTS = np.array(["a good film", "a bad film", "the staff were kind", "a dull one"])
LABELS = np.array([0, 1, 0, 1])
NAMES = ["bad", "good"]
SIZES = {"num_layers": 1, "num_heads": 2, "hidden_dim": 8, "intermediate_dim": 16}


@pytest.fixture(scope="module")
def preprocessor(tiny_tokenizer):
    return gpt1_keras.GPT1TextClassifierPreprocessor(tiny_tokenizer, sequence_length=16)


@pytest.fixture(scope="module")
def make_backbone(tiny_tokenizer):
    def make(**arguments):
        keras.utils.set_random_seed(0)
        arguments = SIZES | {"max_sequence_length": 16, "dropout": 0.0} | arguments
        return gpt1_keras.GPT1Backbone(tiny_tokenizer.vocabulary_size(), **arguments)

    return make


@pytest.fixture(scope="module")
def make_classifier(make_backbone, preprocessor):
    """A classifier that runs eagerly, under an optimizer without a schedule."""

    def make(optimizer="sgd", loss="auto", **arguments):
        arguments = {"num_classes": 2, "dropout": 0.0} | arguments
        classifier = gpt1_keras.GPT1TextClassifier(
            make_backbone(), preprocessor=preprocessor, **arguments
        )
        classifier.compile(optimizer, loss, run_eagerly=True)
        return classifier

    return make


@pytest.fixture(scope="module")
def classifier(make_classifier):
    """Shared by tests that do not change it."""
    return make_classifier(num_classes=None, class_names=NAMES)


@pytest.fixture(scope="module")
def lm(make_backbone, tiny_tokenizer):
    preprocessor = gpt1_keras.GPT1CausalLMPreprocessor(tiny_tokenizer, sequence_length=16)
    lm = gpt1_keras.GPT1CausalLM(make_backbone(), preprocessor)
    lm.compile(sampler="greedy", run_eagerly=True)
    return lm


def test_what_stands_between_a_task_and_keras_hub():
    for task_cls, theirs in (
        (gpt1_keras.GPT1TextClassifier, keras_hub.models.TextClassifier),
        (gpt1_keras.GPT1CausalLM, keras_hub.models.CausalLM),
        (gpt1_keras.GPT1MultipleChoice, keras_hub.models.Task),
    ):
        between = task_cls.__mro__[1 : task_cls.__mro__.index(theirs)]
        names = [each.__name__ for each in between]
        assert names == ["Task", "FunctionalModel", "TensorFlowHooks", "ModelHooks"]


# === Arguments of constructors ===


def test_positional_arguments_are_kerashubs(make_backbone, preprocessor):
    backbone = make_backbone()
    classifier = gpt1_keras.GPT1TextClassifier(backbone, 3, preprocessor)
    assert classifier.num_classes == 3 and classifier.preprocessor is preprocessor


# === One class ===


@pytest.mark.slow
@pytest.mark.parametrize("activation", [None, "sigmoid"])
def test_one_class(make_classifier, activation):
    classifier = make_classifier(num_classes=1, activation=activation)
    loss = keras.losses.BinaryCrossentropy(from_logits=activation is None)
    expected = float(loss(LABELS[:, None], classifier.predict(TEXTS, verbose=0)))
    for labels in (LABELS, LABELS.astype(bool)):
        assert classifier.evaluate(TEXTS, labels, verbose=0)[0] == pytest.approx(expected, abs=1e-5)


@pytest.mark.slow
def test_one_class_in_a_preset(make_classifier, tmp_path):
    classifier = make_classifier(num_classes=1, activation="sigmoid")
    classifier.save_to_preset(tmp_path)
    loaded = gpt1_keras.GPT1TextClassifier.from_preset(str(tmp_path))
    assert loaded.num_classes == 1 and loaded.class_names is None
    found = loaded.predict(TEXTS, verbose=0)
    np.testing.assert_allclose(found, classifier.predict(TEXTS, verbose=0), atol=1e-6)
    other = gpt1_keras.GPT1TextClassifier.from_preset(str(tmp_path), class_names=NAMES)
    assert other.class_names == NAMES


@pytest.mark.parametrize("activation", [None, "softmax", "sigmoid", keras.layers.Softmax()])
def test_exported_scores_are_what_the_activation_returns(make_classifier, activation):
    classifier = make_classifier(activation=activation)
    outputs = classifier.predict(TEXTS, verbose=0)
    found = class_or_score_answers(classifier).outputs(tf.constant(outputs))["scores"]
    np.testing.assert_allclose(found, outputs if activation else tf.nn.softmax(outputs))


def test_the_export_of_one_class_answers_with_its_number(make_classifier):
    classifier = make_classifier(num_classes=1, activation="sigmoid")
    outputs = classifier.predict(TEXTS, verbose=0)
    found = class_or_score_answers(classifier).outputs(tf.constant(outputs))
    assert set(found) == {"score"}
    np.testing.assert_allclose(found["score"], outputs[:, 0])


# === Training ===


@pytest.mark.slow
def test_batches_by_hand(make_classifier):
    classifier = make_classifier()
    loss, accuracy = classifier.test_on_batch(TEXTS, LABELS)
    expected = classifier.evaluate(TEXTS, LABELS, verbose=0)
    np.testing.assert_allclose([loss, accuracy], expected, rtol=1e-5)
    outputs = classifier.predict(TEXTS, verbose=0)
    np.testing.assert_allclose(classifier.predict_on_batch(list(TEXTS)), outputs, atol=1e-6)
    for _ in range(5):
        classifier.train_on_batch(list(TEXTS), list(LABELS))
    classifier.reset_metrics()
    assert classifier.test_on_batch(TEXTS, LABELS)[0] < loss


def test_predict_on_batch_returns_scores_as_predict(make_classifier):
    scorer = make_classifier(num_classes=None, score_range=(0, 5))
    found = scorer.predict_on_batch(TEXTS)
    np.testing.assert_allclose(found, scorer.predict(TEXTS, verbose=0), atol=1e-6)


@pytest.mark.slow
def test_a_schedule_that_has_ended_trains_no_batch(make_classifier):
    classifier = make_classifier(optimizer="auto")
    classifier.fit(TEXTS, LABELS, verbose=0)
    with pytest.raises(ValueError, match="train_on_batch"):  # its rate would be 0
        classifier.train_on_batch(TEXTS, LABELS)


def generate(batches):
    for index in range(batches):
        rows = slice(0, 2) if index % 2 == 0 else slice(2, 3)
        yield list(TEXTS[rows]), list(LABELS[rows])


@pytest.mark.slow
def test_generators(make_classifier):
    classifier = make_classifier(optimizer="auto")
    classifier.fit(generate(6), steps_per_epoch=3, epochs=2, verbose=0)
    assert classifier.optimizer.iterations == 6
    assert classifier.optimizer.learning_rate == 0.0
    found = classifier.evaluate(generate(2), verbose=0)
    expected = classifier.evaluate(TEXTS[:3], LABELS[:3], verbose=0)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    outputs = classifier.predict(iter([list(TEXTS[:3]), list(TEXTS[3:])]), verbose=0)
    np.testing.assert_allclose(outputs, classifier.predict(TEXTS, verbose=0), atol=1e-6)


def test_data_of_unknown_length(make_classifier):
    classifier = make_classifier(optimizer="auto")
    data = tf.data.Dataset.from_tensor_slices((TEXTS, LABELS)).filter(lambda *_: True).batch(2)
    with pytest.raises(ValueError, match="steps_per_epoch"):
        classifier.fit(data, verbose=0)
    history = classifier.fit(data, steps_per_epoch=2, epochs=3, verbose=0).history
    assert classifier.optimizer.iterations == 6 and len(history["loss"]) == 3


@pytest.mark.slow
@pytest.mark.parametrize("labels", [LABELS, ["bad", "good", "bad", "good"]])
@pytest.mark.parametrize("weights", [{"good": 3.0}, {1: 3.0}, {0: 1.0, "good": 3.0}])
def test_class_weights_by_name_and_by_number(make_classifier, labels, weights):
    classifier = make_classifier(num_classes=None, class_names=NAMES)
    classifier.compile("sgd", lm_coefficient=0.0, run_eagerly=True)
    outputs = classifier.predict(TEXTS, verbose=0)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    expected = loss(LABELS, outputs, sample_weight=np.array([1.0, 3.0, 1.0, 3.0]))
    history = classifier.fit(TEXTS, labels, class_weight=weights, verbose=0).history
    assert history["loss"][0] == pytest.approx(float(expected), rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [list, np.array])
def test_validation_data(make_classifier, kind):
    classifier = make_classifier()
    data = (kind(TEXTS), kind(LABELS))
    history = classifier.fit(*data, 2, None, data, verbose=0).history
    expected = classifier.evaluate(*data, verbose=0)
    assert history["val_loss"][0] == pytest.approx(expected[0], rel=1e-5)


def test_clones(classifier, preprocessor):
    clone = keras.models.clone_model(classifier)
    clone.set_weights(classifier.get_weights())
    inputs = preprocessor(list(TEXTS))
    np.testing.assert_allclose(clone(inputs), classifier(inputs), atol=1e-6)
    assert isinstance(clone.optimizer, keras.optimizers.SGD)  # it is compiled as the classifier


# === The language model ===


def test_one_text(lm):
    assert lm.evaluate("a good film", verbose=0) == lm.evaluate(["a good film"], verbose=0)


def test_score(lm, make_backbone):
    ids = np.array([[1, 2, 3, 4], [2, 3, 4, 5]])
    targets = np.roll(ids, -1, axis=1)
    logits = lm({"token_ids": ids})
    np.testing.assert_allclose(lm.score(ids), logits, atol=1e-6)
    losses = lm.score(ids, scoring_mode="loss", target_ids=targets)
    expected = -np.take_along_axis(np.array(tf.nn.log_softmax(logits)), targets[..., None], -1)
    np.testing.assert_allclose(losses, expected[..., 0], atol=1e-5)
    mask = np.array([[0, 1, 1, 1], [1, 1, 0, 1]])
    found = lm.score(ids, padding_mask=mask)
    expected = lm({"token_ids": ids, "padding_mask": mask})
    np.testing.assert_allclose(found[mask == 1], expected[mask == 1], atol=1e-6)
    seen = []
    lm.score(ids, layer_intercept_fn=lambda x, index: seen.append(index) or x)
    assert seen == [-1, 0]
    for wrong in (["a good film"], [1, 2], [[1.0, 2.0]]):
        with pytest.raises(ValueError, match=r"`token_ids` must be ints .* Received: .* of shape"):
            lm.score(wrong)


def test_stop_tokens_in_every_form(lm):
    text = lm.generate("a good", max_length=6)
    ids = np.array(lm.preprocessor.tokenizer(text))
    assert lm.generate("a good", max_length=6, stop_token_ids=None) == text
    stop = int(ids[-1])
    stopped = lm.generate("a good", max_length=6, stop_token_ids=[stop])
    for form in (stop, (stop,), np.array([stop]), {stop}, np.int64(stop)):
        assert lm.generate("a good", max_length=6, stop_token_ids=form) == stopped


# === Quantization ===


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["int8", "float8"])
def test_presets_of_quantized_classifiers(make_classifier, mode, tmp_path):
    classifier = make_classifier()
    classifier.quantize(mode)
    assert classifier.head.quantization_mode is None
    assert classifier.backbone.blocks[0].expand.quantization_mode == mode
    expected = classifier.predict(TEXTS, verbose=0)
    classifier.save_to_preset(tmp_path)
    loaded = gpt1_keras.GPT1TextClassifier.from_preset(str(tmp_path))
    assert loaded.backbone.blocks[0].expand.quantization_mode == mode
    np.testing.assert_allclose(loaded.predict(TEXTS, verbose=0), expected, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("task", ["classifier", "lm"])
def test_gptq(task, make_classifier, make_backbone, tmp_path):
    model = make_classifier() if task == "classifier" else gpt1_keras.GPT1CausalLM(make_backbone())
    ids = np.array([[1, 2, 3, 4] * 4])
    inputs = {"token_ids": ids, "padding_mask": np.ones_like(ids)}
    before = np.array(model(inputs))
    config = GPTQConfig(
        dataset=[ids] * 2,
        tokenizer=lambda x: x,
        weight_bits=8,
        num_samples=2,
        sequence_length=8,
        group_size=8,
    )
    model.quantize("gptq", config=config)
    assert model.backbone.blocks[0].expand.quantization_mode == "gptq"
    np.testing.assert_allclose(model(inputs), before, atol=1e-2)
    with pytest.raises(ValueError, match="gptq"):
        model.save_to_preset(tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_the_control_cannot_load_gptq_either(tmp_path):
    """When this fails, Keras has learned it, and `CausalBackbone.check_loads` may go."""
    backbone = keras_hub.models.GPT2Backbone(9, 1, 2, 8, 16, max_sequence_length=8)
    lm = keras_hub.models.GPT2CausalLM(backbone)
    ids = np.ones((1, 16), "int32")
    config = GPTQConfig(dataset=[ids], tokenizer=lambda x: x, num_samples=1, sequence_length=8)
    lm.quantize("gptq", config=config)
    lm.save_to_preset(tmp_path)
    with pytest.raises(ValueError, match="could not be loaded"):
        keras_hub.models.GPT2CausalLM.from_preset(str(tmp_path), preprocessor=None)


@pytest.mark.slow
def test_batches_of_different_lengths(tiny_backbone, tiny_tokenizer):
    """KerasHub would batch by Grain, where that is installed, and take one length for all."""
    preprocessor = gpt1_keras.GPT1TextClassifierPreprocessor(tiny_tokenizer, sequence_length=64)
    classifier = gpt1_keras.GPT1TextClassifier(tiny_backbone, 2, preprocessor=preprocessor)
    texts, labels = ["a good film"] * 2 + ["a bad film and a dull one " * 4] * 2, [0, 1, 0, 1]
    each = [classifier.predict([text], verbose=0)[0] for text in texts]
    np.testing.assert_allclose(classifier.predict(texts, 2, verbose=0), each, atol=1e-5)
    whole = classifier.evaluate(texts, np.array(labels), verbose=0)
    np.testing.assert_allclose(classifier.evaluate(texts, np.array(labels), 2, verbose=0), whole)
