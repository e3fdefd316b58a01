"""Labels as users give them: in every container the same weights, or the same refusal."""

import math

import keras
import numpy as np
import pandas
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

import gpt1_keras
from gpt1_keras.tasks.batches import as_batches
from gpt1_keras.tasks.label_heads import ClassHead, make_label_head
from tests.helpers.fuzzing import search

TEXTS = ["a good film", "a bad film", "the staff were kind", "a dull one", "good", "bad"]
PAIRS = (TEXTS, TEXTS[::-1])
CHOICES = {"context": TEXTS, "question": [""] * 6, "choices": [["good", "bad"]] * 6}
KINDS = {
    "TextClassifier": TEXTS,
    "TextSimilarity": PAIRS,
    "MultipleChoice": CHOICES,
}


@pytest.fixture(scope="module")
def make(tiny_tokenizer):
    """Makes a task without dropout, which runs eagerly, always with the same weights."""

    def make(kind="TextClassifier", **arguments):
        keras.utils.set_random_seed(0)
        task_cls = getattr(gpt1_keras, f"GPT1{kind}")
        backbone = gpt1_keras.GPT1Backbone(tiny_tokenizer.vocabulary_size(), 1, 2, 8, 16, 0.0, 24)
        preprocessor = task_cls.preprocessor_cls(tiny_tokenizer, 24)
        task = task_cls(backbone, preprocessor=preprocessor, dropout=0.0, **arguments)
        task.compile(keras.optimizers.SGD(0.1), lm_coefficient=0.0, run_eagerly=True)
        return task

    return make


@pytest.fixture(scope="module")
def classifier(make):
    """For tests that do not train it."""
    return make(class_names=["no", "yes"])


@pytest.fixture(scope="module")
def chooser(make):
    return make("MultipleChoice")


def loss_of(task, labels, texts=TEXTS):
    return task.evaluate(texts, labels, verbose=0, return_dict=True)["loss"]


# === Numbers ===


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["TextClassifier", "TextSimilarity"])
def test_a_column_of_scores_trains_as_a_list(make, kind):
    scores = [0.0, 5.0, 1.5, 4.0, 2.0, 3.0]
    columns = [np.reshape(scores, (-1, 1)), pandas.DataFrame({"score": scores})]
    expected = make(kind, score_range=(0, 5))
    expected.fit(KINDS[kind], scores, shuffle=False, verbose=0)
    for column in columns:
        task = make(kind, score_range=(0, 5))
        task.fit(KINDS[kind], column, shuffle=False, verbose=0)
        for found, weight in zip(task.get_weights(), expected.get_weights(), strict=True):
            np.testing.assert_array_equal(found, weight)
    batches = iter([(KINDS[kind], columns[0])])  # a graph does not know how many columns
    assert task.evaluate(batches, verbose=0) == loss_of(task, scores, KINDS[kind])
    for wrong in (np.zeros((6, 2)), np.zeros((6, 1, 1))):
        with pytest.raises(ValueError, match="labels of shape"):
            task.fit(KINDS[kind], wrong, verbose=0)


def test_the_loss_of_a_column_of_scores():
    logits = np.random.default_rng(0).normal(size=(4, 6)).astype("float32")
    scores = np.array([0.0, 5.0, 2.5, 3.0], "float32")
    loss = gpt1_keras.optimization.objective.SoftLabelCrossEntropy((0, 5))
    assert float(loss(scores[:, None], logits)) == float(loss(scores, logits))
    with pytest.raises(ValueError, match=r"\(4, 2\)"):
        loss(np.zeros((4, 2), "float32"), logits)


# === Names that are numbers ===


@pytest.mark.parametrize(
    ("names", "labels", "meant"),
    [
        ([0, 2, 4], [2, 4, 0], ["2", "4", "0"]),
        ([1, 2, 3, 4, 5], [1, 4, 5], ["1", "4", "5"]),
        (["1", "2", "3", "4", "5"], [1.0, 4.0, 5.0], ["1", "4", "5"]),
        ([True, False], [True, False, True], ["True", "False", "True"]),
        ([False, True], [1, 0, 1], ["True", "False", "True"]),
        (["false", "true"], [True, False, True], ["true", "false", "true"]),
        ([0, 1], [1, 0, 1], ["1", "0", "1"]),
        ([1, 0], ["1", "0", "1"], ["1", "0", "1"]),
        (["1", "2", "other"], [1, 2, 1], ["1", "2", "1"]),
        (["0.5", "1"], [0.5, 1.0, 0.5], ["0.5", "1", "0.5"]),
        ([2**60 + 1, 2**60 + 2], [2**60 + 2, 2**60 + 1, 2**60 + 2], [str(2**60 + 2)] + [None] * 2),
        (["no", "yes"], [0, 1, 1], ["no", "yes", "yes"]),
        (["no", "yes"], [False, True, True], ["no", "yes", "yes"]),
    ],
)
def test_a_number_is_the_class_of_that_name(names, labels, meant):
    head = ClassHead(names, None, 0.0)
    expected = [head.class_names.index(name or str(each)) for name, each in zip(meant, labels)]
    for given_labels in (labels, np.array(labels)):
        found = head.encode_labels(given_labels)
        np.testing.assert_array_equal(found, expected)
    weights = head.weights_by_number({labels[0]: 5.0})
    assert [index for index, weight in weights.items() if weight == 5.0] == expected[:1]


@pytest.mark.parametrize(
    ("names", "wrong"),
    [
        ([0, 2, 4], 1),
        ([1, 2, 3], 0),
        (["1", "2", "other"], 0),
        (["no", "yes"], 2),
        (["1", "01"], 1),
    ],
)
def test_a_number_of_no_class(names, wrong):
    head = ClassHead(names, None, 0.0)
    message = r"^Labels must be one of \[.*\]( or its index, from 0)?\. Received: \d at index 0\.$"
    with pytest.raises(ValueError, match=message) as caught:
        head.encode_labels([wrong] * 6)
    assert ("index, from 0" in str(caught.value)) == (names == ["no", "yes"])
    with pytest.raises(ValueError, match="unknown classes"):
        head.weights_by_number({wrong: 2.0})


@pytest.mark.parametrize(
    ("names", "labels"),
    [
        (sorted(map(str, range(12))), [2, 10]),
        ([1, 0], [1.0, 0.0]),
        ([1, 0], [True, False]),
        ([True, False], [1, 0]),
        (["0", "2.0", "1"], np.array([1, 2])),
    ],
)
def test_numbers_that_may_be_names_or_indices(names, labels):
    head = ClassHead(names, None, 0.0)
    with pytest.raises(ValueError, match="Labels.*(numbers|bools)"):
        head.encode_labels(labels)
    with pytest.raises(ValueError, match="class_weight"):
        head.weights_by_number({labels[0]: 2.0})
    assert head.weights_by_number({head.class_names[1]: 2.0})[1] == 2.0


def test_folders_that_are_numbers(classifier, monkeypatch, tmp_path):
    """Keras sorts them as strings, so that label 2 is the folder "10"."""
    for name in range(12):
        (tmp_path / str(name)).mkdir()
        (tmp_path / str(name) / "a.txt").write_text(f"a text of the class {name}")
    data = keras.utils.text_dataset_from_directory(tmp_path, verbose=False)
    assert data.class_names[2] == "10"
    head = ClassHead(data.class_names, None, 0.0)
    monkeypatch.setattr(classifier, "task_head", head)
    with pytest.raises(ValueError, match="numbers"):
        classifier.evaluate(data, verbose=0)
    named = data.map(lambda _, labels: (tf.gather(data.class_names, labels), labels))
    [(names, labels)] = named  # as the message says
    np.testing.assert_array_equal(head.encode_labels(names), labels)


@pytest.mark.parametrize(
    "names",
    [
        {"no", "yes"},
        frozenset({"no", "yes"}),
        {"no": 0, "yes": 1},
        {"no": 0, "yes": 1}.keys(),
        {0: "no", 1: "yes"}.values(),
        np.array([["no"], ["yes"]]),
        pandas.DataFrame({"no": [1], "yes": [2]}),
    ],
)
def test_names_without_order(names):
    with pytest.raises(ValueError, match="class_names"):
        make_label_head(None, names, None, None, 0.0, 1.0, None)


@pytest.mark.parametrize("missing", [None, float("nan"), np.float32("nan"), pandas.NA, b"yes"])
def test_a_missing_name_is_named(missing):
    for names in (["no", missing], pandas.Series(["no", missing]), pandas.Index(["no", missing])):
        with pytest.raises(ValueError, match="class_names.* at index 1"):
            make_label_head(None, names, None, None, 0.0, 1.0, None)


@pytest.mark.slow
def test_whole_numbers_as_pandas_reads_them(make):
    """From a CSV file of stars, whose classes `training.finetune` knows as strings."""
    task, stars = make(class_names=["1", "2", "3", "4", "5"]), [5, 1, 3, 5, 2, 4]
    answers = np.array(task.class_names)[task.predict(TEXTS, verbose=0).argmax(-1)]
    _, accuracy = task.evaluate(TEXTS, pandas.Series(answers.astype(int)), verbose=0)
    assert accuracy == 1.0
    found = task.evaluate(TEXTS, pandas.Series(stars), verbose=0)
    assert found == task.evaluate(TEXTS, list(map(str, stars)), verbose=0)


# === Choices ===


@pytest.mark.parametrize(
    "labels", [["0", "1"] * 3, [[0], [1]] * 3, [0.0, 1.0] * 3, ["0.0", "1"] * 3]
)
def test_indices_of_choices(chooser, labels):
    np.testing.assert_array_equal(chooser.task_head.encode_labels(labels), [0, 1] * 3)


@pytest.mark.parametrize("wrong", [0.9, "A", -1, "1.5", np.nan, 2])
def test_what_is_no_index_of_a_choice(chooser, wrong):
    labels = [type(wrong)(0), wrong] * 3
    with pytest.raises(
        ValueError, match="Labels must be indices of choices, .*Received: .* at inde"
    ):
        chooser.preprocess_samples(CHOICES, labels)
    if not isinstance(wrong, str):
        with pytest.raises(ValueError, match="choices"):
            chooser.preprocessor(CHOICES, y=tf.constant(labels))


@pytest.mark.slow
def test_choices_in_a_dataset(chooser):
    texts = {**CHOICES, "choices": tf.ragged.constant(CHOICES["choices"])}
    for wrong in (0.9, 2.0):
        data = tf.data.Dataset.from_tensor_slices((texts, [0.0, wrong] * 3)).batch(2)
        with pytest.raises(
            ValueError, match=f"^Labels must be indices of .*Received: {wrong:g}\\.$"
        ):
            chooser.evaluate(data, verbose=0)


# === Errors of one line ===


MISSING = {
    "None": [0, 1, None, 1, 0, 1],
    "None among names": ["no", "yes", None] * 2,
    "NaN among names": ["no", "yes", float("nan")] * 2,
    "array of objects": np.array([0, 1, None] * 2, object),
    "nullable numbers": pandas.Series([0, 1, None] * 2, dtype="Int64"),
    "nullable names": pandas.Series(["no", "yes", None] * 2, dtype="string"),
    "categories": pandas.Series(["no", "yes", None] * 2, dtype="category"),
    "NaN": np.array([0, 1, np.nan] * 2),
}


@pytest.mark.parametrize("labels", MISSING.values(), ids=MISSING)
def test_a_missing_label_is_named(classifier, labels):
    for call in (classifier.fit, classifier.evaluate):
        with pytest.raises(ValueError, match=r"^Labels must be .*Received: .* at index 2\.$"):
            call(TEXTS, labels, verbose=0)


@pytest.mark.parametrize("as_texts", [list, pandas.Series, lambda texts: np.array(texts, object)])
@pytest.mark.parametrize("missing", [None, float("nan"), pandas.NA])
def test_a_missing_text_is_named(classifier, as_texts, missing):
    texts = as_texts(["a film", "good", missing])
    for call in (classifier.predict, lambda x, **kw: classifier.fit(x, [0, 1, 0], **kw)):
        with pytest.raises(ValueError, match=r"^Expected a string, .*Received: .* at index 2\.$"):
            call(texts, verbose=0)


MISSING_WEIGHTS = {
    "None": [1, 1, None, 1, 1, 1],
    "NaN": np.array([1, 1, np.nan, 1, 1, 1], "float32"),
    "infinite": [1, 1, np.inf, 1, 1, 1],
    "nullable": pandas.Series([1, 1, None, 1, 1, 1], dtype="Int64"),
    "string": [1, 1, "1", 1, 1, 1],
    "tensor": tf.constant([1, 1, np.nan, 1, 1, 1]),
}


@pytest.mark.parametrize("weights", MISSING_WEIGHTS.values(), ids=MISSING_WEIGHTS)
def test_a_missing_weight_is_named(classifier, weights):
    """One NaN in the loss would make all that is trained NaN."""
    for call in (classifier.fit, classifier.evaluate):
        with pytest.raises(ValueError, match=r"^Weights must be .*Received: .* at index 2\.$"):
            call(TEXTS, [0, 1] * 3, sample_weight=weights, verbose=0)


def test_a_missing_class_weight_is_named(classifier):
    with pytest.raises(ValueError, match=r"^Weights must be .*Received: nan at index 1\.$"):
        classifier.fit(TEXTS, [0, 1] * 3, class_weight={0: 1.0, 1: math.nan}, verbose=0)


@pytest.mark.parametrize(
    "weights, received", [([1.0] * 5 + [math.nan], "nan"), (["1"] * 6, "strings")]
)
def test_a_wrong_weight_of_a_dataset_is_named(classifier, weights, received):
    data = tf.data.Dataset.from_tensor_slices((TEXTS, [0, 1] * 3, weights)).batch(2)
    with pytest.raises(ValueError, match=rf"^Weights must be .*Received: {received}\.$"):
        classifier.evaluate(data, verbose=0)


@pytest.mark.slow
def test_errors_are_one_line(make):
    task = make(class_names=["no", "yes"])  # which is trained by the batches before the wrong one
    unknown = ["no", "perhaps"] * 3
    data = tf.data.Dataset.from_tensor_slices((TEXTS, unknown))
    one_hot = tf.data.Dataset.from_tensor_slices((TEXTS, np.eye(2)[[0, 1] * 3])).batch(2)
    generated = [(TEXTS, ["no"] * 6), (TEXTS, unknown)]
    cases = [
        (lambda: (TEXTS, unknown), "Received: 'perhaps' at index 1."),
        (lambda: (data.batch(2),), "Labels must be one of .* Received: perhaps."),
        (lambda: (iter(generated),), "Received: 'perhaps' at index 1."),
        (lambda: (data,), "Received one of single examples: call `batch"),
        (lambda: (iter([[TEXTS, unknown]]),), "is texts, or a tuple of texts and labels. Received"),
        (lambda: (one_hot,), r"labels of shape \(None, 2\).*CategoricalCrossentropy"),
        (lambda: (TEXTS, [0, 1]), r"as many labels and weights .* Received shapes: \[\(6,\), \(2"),
        (lambda: ([], []), "Expected one example or more"),
    ]
    for arguments, message in cases:
        for call in (task.fit, task.evaluate):
            with pytest.raises(ValueError, match=message) as caught:
                call(*arguments(), verbose=0)
            assert "\n" not in str(caught.value)


def test_several_classes_of_a_text(make):
    labels, task = np.ones((6, 3)), make(num_classes=3, activation="sigmoid")
    task.compile("sgd", keras.losses.BinaryCrossentropy(from_logits=False), run_eagerly=True)
    expected = keras.losses.BinaryCrossentropy()(labels, task.predict(TEXTS, verbose=0))
    assert task.evaluate(TEXTS, labels, verbose=0) == pytest.approx(float(expected), rel=1e-5)


# === One text ===


@pytest.mark.slow
def test_one_text_is_a_batch_of_one(classifier, make):
    expected = classifier.predict(TEXTS[:1], verbose=0)
    for text in (TEXTS[0], tf.constant(TEXTS[0])):
        np.testing.assert_array_equal(classifier.predict(text, verbose=0), expected)
    pair = make("TextSimilarity", num_classes=2)
    expected = pair.predict((["a"], ["b"]), verbose=0)
    np.testing.assert_array_equal(pair.predict(("a", "b"), verbose=0), expected)


# === Every container ===

CONTAINERS = {
    "list": list,
    "tuple": tuple,
    "array": np.array,
    "objects": lambda labels: np.array(labels, object),
    "column": pandas.Series,
    "table": lambda labels: pandas.DataFrame({"label": labels}),
    "tensor": tf.constant,
}
NAMED = [["no", "yes"], ["2", "4", "6"], ["True", "False"], ["1", "0"], ["0", "1"]]


@pytest.mark.slow
@search(25)
@given(data=st.data())
def test_the_same_labels_in_every_container(classifier, data):
    """They become the same indices, or get the same refusal."""
    classifier.task_head = ClassHead(data.draw(st.sampled_from(NAMED)), None, 0.0)
    kind = data.draw(st.sampled_from([str, int, float, bool]))
    values = {
        str: [*classifier.class_names, "other"],
        int: [0, 1, 2, 4],
        float: [0.0, 1.0, 2.0, 0.5],
        bool: [True, False],
    }[kind]
    labels = data.draw(st.lists(st.sampled_from(values), min_size=6, max_size=6))

    def indices(*arguments):
        try:
            batches = as_batches(classifier, *arguments, None, None).x
            return [y.numpy().tolist() for _, y in batches]
        except ValueError as error:
            return str(error)

    expected = indices(TEXTS, labels)
    for name, container in CONTAINERS.items():
        assert indices(TEXTS, container(labels)) == expected, name
    assert indices(iter([(TEXTS, labels)]), None) == expected
    [batch] = tf.data.Dataset.from_tensor_slices((TEXTS, labels)).batch(6)
    try:
        found = [classifier.preprocess_samples(*batch)[1].numpy().tolist()]
    except ValueError as error:
        found = str(error)
    assert found == expected


@pytest.mark.slow
def test_every_container_trains_the_same(make):
    labels = [2, 4, 2, 6, 6, 4]
    weights = []
    for arguments in (
        (TEXTS, labels),
        (pandas.Series(TEXTS), pandas.Series(labels, dtype="Int64")),
        (iter([(TEXTS, list(map(str, labels)))]),),
    ):
        task = make(class_names=["2", "4", "6"])
        task.fit(*arguments, shuffle=False, verbose=0)
        weights.append(task.get_weights())
    for other in weights[1:]:
        for found, expected in zip(other, weights[0], strict=True):
            np.testing.assert_array_equal(found, expected)
