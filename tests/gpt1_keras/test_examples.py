"""Examples: parts of them, and what tells them from others."""

import numpy as np
import pytest
from sklearn.utils.class_weight import compute_class_weight

from gpt1_keras.examples import Examples, as_column

CHOICES = [[b"a"], [b"b", b"c"]]


def examples(texts, labels=(0, 1), class_names=("n", "y"), field="text"):
    labels = np.array(labels, np.int32)
    return Examples({field: as_column(texts)}, labels, np.arange(len(labels)), class_names)


def test_samples_are_the_same_for_the_same_seed():
    many = examples([b"%d" % number for number in range(500)], range(500))
    first, second, other = (many.sample(50, seed) for seed in (0, 0, 1))
    assert np.array_equal(first.indices, second.indices)
    assert not np.array_equal(first.indices, other.indices)
    assert first.texts["text"].tolist() == [b"%d" % number for number in first.labels]
    assert len(many.sample(10**6, 0)) == len(many)


def test_parts_of_lists():
    """Labels and weights go with their texts, and so do choices of equal number."""
    given = Examples({"choices": [["a", "b"], ["c", "d"]]}, labels=[0, 1], weights=[1.0, 2.0])
    part = given.take([1])
    assert [*part.texts["choices"]] == [["c", "d"]]
    assert part.labels.tolist() == [1] and part.weights.tolist() == [2.0]
    assert list(part.all_texts()) == ["c", "d"]


def test_which_have_a_label():
    assert examples([b"a", b"b"], (-1, 1)).labelled().texts["text"].tolist() == [b"b"]
    scores = Examples({"text": ["a", "b"]}, np.array([-0.5, np.nan]))
    assert scores.is_labelled.tolist() == [True, False]


def test_balanced_class_weights():
    labels = [0, 0, 0, 2]
    found = examples([b"a"] * 4, labels, ("n", "unused", "y")).balanced_class_weights()
    expected = compute_class_weight("balanced", classes=np.array([0, 2]), y=labels)
    assert found == dict(zip(["n", "y"], expected))
    with pytest.raises(ValueError, match="class_weight"):
        examples([b"a"] * 4, labels, None).balanced_class_weights()


def test_fingerprints_tell_examples_apart():
    one = examples([b"a", b"bc"]).fingerprint()
    assert one == examples([b"a", b"bc"]).fingerprint() and one["examples"] == 2
    columns = ([b"bc", b"a"], [b"ab", b"c"], CHOICES, [[b"a", b"b"], [b"c"]], [[b"a", b"bc"], []])
    others = [*map(examples, columns), examples([b"a", b"bc"], field="premise")]
    texts = [one, *(each.fingerprint() for each in others)]
    assert len({each["texts"] for each in texts}) == len(texts)
    assert len({each["labels"] for each in texts}) == 1
    labels = [((1, 0), ("n", "y")), ((0, 1), ("y", "n"))]
    found = [one, *(examples([b"a", b"bc"], *each).fingerprint() for each in labels)]
    assert len({each["labels"] for each in found}) == 3
