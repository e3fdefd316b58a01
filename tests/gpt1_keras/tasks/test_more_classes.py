"""A fine-tuned classifier that is given more classes keeps what it knows of the earlier ones."""

import keras
import numpy as np
import pytest

import gpt1_keras
from gpt1_keras.presets import load_task
from gpt1_keras.tasks.heads import Calibration

TEXTS = ["a good film", "a bad film", "the staff were kind", "a dull one"]
PAIRS = (TEXTS, TEXTS[::-1])


@pytest.fixture
def make(tiny_backbone, tiny_tokenizer):
    """Makes a task with a head of random weights, which runs eagerly."""

    def make(kind="TextClassifier", **arguments):
        cls = getattr(gpt1_keras, f"GPT1{kind}")
        framing = cls.preprocessor_cls(tiny_tokenizer, 16)
        task = cls(tiny_backbone, preprocessor=framing, **arguments)
        random = np.random.default_rng(0)
        for weight in task.head.weights:
            weight.assign(random.normal(size=weight.shape))
        task.compile("sgd", run_eagerly=True)
        return task

    return make


@pytest.mark.parametrize("activation", [None, "sigmoid"])
@pytest.mark.parametrize(("kind", "texts"), [("TextClassifier", TEXTS), ("TextSimilarity", PAIRS)])
def test_the_known_classes_stay_as_they_were(make, kind, texts, activation, tmp_path):
    task = make(kind, class_names=["bad", "good"], activation=activation, dropout=0.3)
    expected, before = task.predict_on_batch(texts), task.get_weights()
    larger = task.with_classes(["neutral", "mixed"])
    assert type(larger) is type(task) and larger.dropout == 0.3
    assert larger.class_names == ["bad", "good", "neutral", "mixed"]
    assert larger.task_head.is_multi_label == (activation == "sigmoid")
    np.testing.assert_allclose(larger.predict_on_batch(texts)[:, :2], expected, atol=1e-6)
    kernel, bias = larger.head.get_weights()
    np.testing.assert_array_equal(kernel[:, :2], task.head.kernel)
    np.testing.assert_array_equal(bias, [*np.array(task.head.bias), 0.0, 0.0])
    assert kernel[:, 2:].std() == pytest.approx(0.02, rel=0.4)
    for found, weight in zip(task.get_weights(), before, strict=True):
        np.testing.assert_array_equal(found, weight)
    larger.save_to_preset(tmp_path)
    loaded = load_task(tmp_path)
    assert loaded.class_names == larger.class_names
    np.testing.assert_array_equal(loaded.predict_on_batch(texts), larger.predict_on_batch(texts))


def test_it_learns_the_new_class(make):
    larger = make(class_names=["bad", "good"]).with_classes(["kind"])
    assert larger.optimizer.iterations == 0
    labels = ["good", "bad", "kind", "bad"]
    larger.compile(keras.optimizers.Adam(1e-2), run_eagerly=True)
    larger.fit(TEXTS, labels, epochs=20, verbose=0)
    assert [answer["label"] for answer in larger.classify(TEXTS)] == labels


def test_a_calibration_is_not_that_of_more_classes(make):
    task = make(class_names=["bad", "good"])
    task.calibration = Calibration(2.0, 0.9)
    assert task.with_classes(["mixed"]).calibration == Calibration()
    assert task.calibration == Calibration(2.0, 0.9)


def test_numbers_that_are_names_already(make):
    larger = make(num_classes=2).with_classes([2, "other"])
    assert larger.class_names == ["0", "1", "2", "other"]
    np.testing.assert_array_equal(larger.task_head.encode_labels([2, 0]), [2, 0])


@pytest.mark.parametrize(
    ("names", "noun"),
    [
        (["good"], "'good'"),
        (["new", "new"], "'new', 'new'"),
        ([], "one name or more"),
        ("new", "list of names"),
        ([None], "None"),
        (["1"], "numbers are indices"),
        ([True], "numbers are indices"),
    ],
)
def test_names_that_cannot_be_added(make, names, noun):
    with pytest.raises(ValueError, match=noun):
        make(class_names=["bad", "good"]).with_classes(names)


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        ("TextClassifier", {"num_classes": 1, "activation": "sigmoid"}),
        ("TextSimilarity", {"score_range": (0, 5)}),
        ("MultipleChoice", {}),
    ],
)
def test_tasks_without_classes(make, kind, arguments):
    with pytest.raises(ValueError, match=f"GPT1{kind} with a "):
        make(kind, **arguments).with_classes(["new"])


def test_a_language_model(tiny_backbone):
    with pytest.raises(ValueError, match="GPT1CausalLM"):
        gpt1_keras.GPT1CausalLM(tiny_backbone).with_classes(["new"])


@pytest.mark.parametrize(
    ("change", "noun"),
    [
        (lambda head: head.enable_lora(2), "lora_enabled=True"),
        (lambda head: head.quantize("int8"), "quantization_mode=int8"),
    ],
)
def test_heads_of_other_weights(make, change, noun):
    task = make(class_names=["bad", "good"])
    change(task.head)
    with pytest.raises(ValueError, match=noun):
        task.with_classes(["new"])


@pytest.mark.filterwarnings("ignore:.*does not have a `quantize` method")
@pytest.mark.parametrize(
    "change", [lambda task: task.backbone.enable_lora(2), lambda task: task.quantize("int8")]
)
def test_backbones_of_other_weights(make, change):
    task = make(class_names=["bad", "good"])
    change(task)
    task.compile("sgd", run_eagerly=True)
    larger = task.with_classes(["new"])
    larger.compile("sgd", run_eagerly=True)
    expected = task.predict_on_batch(TEXTS)
    np.testing.assert_allclose(larger.predict_on_batch(TEXTS)[:, :2], expected, atol=1e-6)
