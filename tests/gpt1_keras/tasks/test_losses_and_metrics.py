"""Losses and metrics that users give: they compare what they should, or are refused in words."""

import keras
import numpy as np
import pytest
import sklearn.metrics

import gpt1_keras
from gpt1_keras.tasks.labels import check_comparable

TEXTS = ["a good film", "a bad film", "the staff were kind", "a dull one"]


@pytest.fixture
def make_classifier(tiny_backbone, tiny_tokenizer):
    preprocessor = gpt1_keras.GPT1TextClassifierPreprocessor(tiny_tokenizer, sequence_length=16)

    def make(num_classes=2, **kwargs):
        return gpt1_keras.GPT1TextClassifier(
            tiny_backbone, num_classes, preprocessor=preprocessor, **kwargs
        )

    return make


def expected_loss(loss, classifier, labels):
    return float(loss(np.array(labels), classifier.predict(TEXTS, verbose=0)))


@pytest.mark.slow
def test_soft_labels_stay_soft(make_classifier):
    classifier, loss = make_classifier(), keras.losses.CategoricalCrossentropy(from_logits=True)
    labels = np.array([[0.3, 0.7], [0.5, 0.5], [0.9, 0.1], [0.6, 0.4]], "float32")
    classifier.compile("sgd", loss, run_eagerly=True)
    found = classifier.evaluate(TEXTS, labels, verbose=0)
    assert found == pytest.approx(expected_loss(loss, classifier, labels), abs=1e-5)


def test_numbers_for_a_loss_of_one_s_own(make_classifier):
    classifier, loss = make_classifier(num_classes=1), keras.losses.MeanSquaredError()
    labels = np.array([0.7, 1.6, -2.0, 3.5], "float32")
    classifier.compile("sgd", "mse", run_eagerly=True)
    found = classifier.evaluate(TEXTS, labels, verbose=0)
    assert found == pytest.approx(expected_loss(loss, classifier, labels[:, None]), rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("activation", ["sigmoid", lambda x: x / 2])
def test_a_loss_of_one_s_own_for_other_activations(make_classifier, activation):
    classifier = make_classifier(activation=activation)
    classifier.compile("sgd", "sparse_categorical_crossentropy", metrics=[], run_eagerly=True)
    assert np.isfinite(classifier.evaluate(TEXTS, [0, 1, 0, 1], verbose=0))


@pytest.mark.slow
def test_a_softmax_layer_gives_probabilities(make_classifier):
    classifier = make_classifier(activation=keras.layers.Softmax())
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=False)
    classifier.compile(run_eagerly=True)
    found = classifier.evaluate(TEXTS, [0, 1, 0, 1], verbose=0)[0]
    assert found == pytest.approx(expected_loss(loss, classifier, [0, 1, 0, 1]), abs=1e-5)


def test_a_metric_does_not_change_the_language_model_s_loss(tiny_backbone, tiny_tokenizer):
    preprocessor = gpt1_keras.GPT1CausalLMPreprocessor(tiny_tokenizer, sequence_length=32)
    lm = gpt1_keras.GPT1CausalLM(tiny_backbone, preprocessor)
    lm.compile(run_eagerly=True)
    plain = lm.evaluate(TEXTS, return_dict=True, verbose=0)
    lm.compile(
        weighted_metrics=[keras.metrics.SparseCategoricalAccuracy(name="accuracy")],
        run_eagerly=True,
    )
    found = lm.evaluate(TEXTS, return_dict=True, verbose=0)
    assert set(found) == {"loss", "accuracy", "perplexity"} and 0 <= found["accuracy"] < 1
    assert found["loss"] == pytest.approx(plain["loss"], rel=1e-5)


def absolute_error(y_true, y_pred):
    return keras.ops.abs(keras.ops.cast(y_true, "float32") - y_pred)


@pytest.mark.slow
@pytest.mark.parametrize("run_eagerly", [True, False])
def test_metrics_of_scores(make_classifier, run_eagerly):
    """They once compared the scores with the logits."""
    classifier = make_classifier(num_classes=None, score_range=(0, 5))
    labels, weights = np.array([0.0, 2.5, 5.0, 4.0]), np.array([1.0, 0.0, 2.0, 0.5])
    scores = classifier.predict(TEXTS, verbose=0)
    classifier.compile(
        "sgd",
        metrics=["mae", keras.metrics.R2Score(), {"own": absolute_error}],
        weighted_metrics=[keras.metrics.MeanSquaredError(name="weighted")],
        run_eagerly=run_eagerly,
    )
    data = {"x": TEXTS, "y": labels, "sample_weight": weights}
    found = classifier.evaluate(**data, batch_size=3, return_dict=True, verbose=0)
    expected = sklearn.metrics.mean_absolute_error(labels, scores)
    assert found["mae"] == found["absolute_error"] == pytest.approx(expected, rel=1e-5)
    expected = sklearn.metrics.r2_score(labels, scores)
    assert found["r2_score"] == pytest.approx(expected, abs=1e-4)
    expected = sklearn.metrics.mean_squared_error(labels, scores, sample_weight=weights)
    assert found["weighted"] == pytest.approx(expected, rel=1e-5)


def test_metrics_of_one_class(make_classifier):
    """A user's own, and F1, which KerasHub's BertTextClassifier refuses for labels `[batch]`."""
    classifier, labels = make_classifier(num_classes=1, activation="sigmoid"), np.array([0, 1, 1])
    metrics = [absolute_error, keras.metrics.F1Score(threshold=0.5)]
    classifier.compile("sgd", metrics=metrics, run_eagerly=True)
    scores = classifier.predict(TEXTS[:3], verbose=0)[:, 0]
    found = classifier.evaluate(TEXTS[:3], labels, return_dict=True, verbose=0)
    expected = np.mean(np.abs(labels - scores))
    assert found["absolute_error"] == pytest.approx(expected, rel=1e-5)
    expected = sklearn.metrics.f1_score(labels, scores > 0.5)
    np.testing.assert_allclose(found["f1_score"], expected, atol=1e-5)


@pytest.mark.parametrize(
    "measure",
    [
        *("mae", "AUC", "categorical_accuracy", "top_k_categorical_accuracy"),
        *(keras.metrics.Accuracy(), keras.metrics.F1Score(), keras.metrics.CosineSimilarity()),
        *(keras.losses.MeanSquaredError(), keras.losses.hinge),
    ],
)
def test_what_compares_class_numbers_with_logits(measure):
    """Keras computes most of these if a batch has as many examples as there are classes."""
    labels, outputs = np.array([0, 2, 1]), np.eye(3)
    with pytest.raises(ValueError, match="SparseCategoricalAccuracy"):
        check_comparable([[measure]], labels, outputs)
    check_comparable([measure], np.eye(3), outputs)
    check_comparable([measure], labels, outputs[:, :1])


def test_what_takes_class_numbers():
    measures = ["accuracy", "acc", "ce", "sparse_categorical_crossentropy", absolute_error, None]
    measures += [keras.metrics.SparseTopKCategoricalAccuracy(), keras.metrics.MeanIoU(3)]
    measures += [keras.metrics.MeanMetricWrapper(absolute_error)]
    check_comparable(measures, np.array([0, 2, 1]), np.eye(3))


@pytest.mark.parametrize("given", [{"metrics": ["mae"]}, {"loss": "mse"}])
def test_compile_with_what_compares_otherwise(make_classifier, given):
    classifier = make_classifier(num_classes=4)
    classifier.compile("sgd", **given, run_eagerly=True)
    with pytest.raises(ValueError, match=r"labels \(4,\), outputs \(4, 4\)"):
        classifier.evaluate(TEXTS, [0, 1, 2, 3], verbose=0)
