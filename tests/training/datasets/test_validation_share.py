"""A share of a user's training file, held back to validate on."""

import collections
import json

import numpy as np
import pytest

from training.datasets.labelled_examples import load_examples
from training.datasets.user_files import find_user_files, held_back


def hold_back(texts, labels, share=0.2, seed=0):
    return held_back([[text] for text in texts], np.array(labels), share, seed)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("share", [0.05, 0.2, 0.5, 0.9])
def test_each_class_gives_its_share(share, seed):
    labels = np.repeat([0, 1, 2], [700, 200, 100])
    found = hold_back(range(1000), labels, share, seed)
    counts = collections.Counter(labels[found].tolist())
    assert counts == {0: round(700 * share), 1: round(200 * share), 2: round(100 * share)}
    other = hold_back(range(1000), labels, share, seed + 1)
    assert found.tolist() == hold_back(range(1000), labels, share, seed).tolist()
    assert (found != other).any()


def test_tiny_classes_are_on_both_sides_where_they_can_be():
    labels = np.array([0] * 20 + [1] * 2 + [2])
    for seed in range(10):
        found = hold_back(range(23), labels, seed=seed)
        assert np.bincount(labels[found], minlength=3).tolist() == [4, 1, 0]


def test_the_same_texts_stay_together():
    texts = [
        f"text {number % 50}" if number % 2 else f"Text  {number % 50}\n" for number in range(500)
    ]
    found = hold_back(texts, [number % 50 % 3 for number in range(500)])
    sides = collections.defaultdict(set)
    for text, is_held in zip(texts, found):
        sides[" ".join(text.lower().split())].add(is_held)
    assert all(len(each) == 1 for each in sides.values()) and 60 < found.sum() < 140


def test_scores_are_taken_by_quantiles():
    scores = np.random.default_rng(0).exponential(size=1000).astype(np.float32)
    found = hold_back(range(1000), scores)
    assert found.sum() == 200
    tenths = np.quantile(scores, np.linspace(0, 1, 11))
    assert np.histogram(scores[found], tenths)[0].tolist() == [20] * 10
    assert hold_back(range(5), np.array([0.5, 1, 2, 3, 4], np.float32)).sum() == 1


@pytest.fixture
def write(tmp_path):
    def write(rows, name="a.jsonl"):
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
        return tmp_path / name

    return write


def texts_of(examples, field="text"):
    return {text.decode() for text in examples.texts[field]}


def test_a_file_without_a_validation_file(write, capsys):
    rows = [{"text": f"text {n}", "label": "abc"[n % 3]} for n in range(30)]
    rows.append({"text": "alone", "label": "d"})
    path = write(rows)
    dataset = find_user_files(path, None, share=0.3, seed=1)
    train, validation = dataset.read_splits()
    assert (len(train), len(validation)) == (22, 9)
    assert texts_of(train) | texts_of(validation) == {row["text"] for row in rows}
    assert np.bincount(validation.labels).tolist() == [3, 3, 3]
    assert capsys.readouterr().err.splitlines() == [
        f"note: 9 of 31 examples of {path} are held back to choose the best epoch on, as there is "
        "no --validation.",
        "note: No example of ['d'] is held back, as there are too few.",
        f"note: {path}: 31 examples of 4 classes: 'a' 10, 'b' 10, 'c' 10, 'd' 1",
    ]
    again = write([], "b.jsonl")
    validation.write(again)
    read = load_examples(find_user_files(path, again), "validation")
    assert read.labels.tolist() == validation.labels.tolist()
    assert texts_of(read) == texts_of(validation)


@pytest.mark.parametrize(
    "rows",
    [
        [{"text1": "a b"[:n], "text2": "c", "label": n / 7} for n in (1, 2, 3)],
        [{"context": f"ü{n}", "choices": ["x", "y", "z"], "label": n % 3} for n in range(9)],
    ],
)
def test_scores_and_choices_are_kept_as_a_file(write, rows):
    path = write(rows)
    dataset = find_user_files(path, None)
    kept = load_examples(dataset, "validation")
    assert 0 < len(kept) < len(rows)
    again = write([], "b.jsonl")
    kept.write(again)
    read = load_examples(find_user_files(path, again), "validation")
    assert read.labels.tolist() == kept.labels.tolist()
    for field, texts in kept.texts.items():
        assert [np.array(text).tolist() for text in read.texts[field]] == [
            np.array(text).tolist() for text in texts
        ]


def test_pairs_in_either_order_are_the_same(write):
    rows = [
        {"text1": a, "text2": b, "label": label}
        for n in range(20)
        for a, b, label in ((f"a{n}", "b", "yes"), ("b", f"a{n}", "yes"), (f"c{n}", "d", "no"))
    ]
    held = load_examples(find_user_files(write(rows), None), "validation")
    pairs = collections.Counter(
        frozenset(pair) for pair in zip(held.texts["text1"], held.texts["text2"])
    )
    assert all(count == (2 if b"b" in pair else 1) for pair, count in pairs.items())


def test_too_few_examples_are_refused(write):
    path = write(
        [{"text": "a", "label": "x"}, {"text": "A ", "label": "x"}, {"text": "b", "label": "y"}]
    )
    with pytest.raises(ValueError, match="no label with two examples of different texts"):
        load_examples(find_user_files(path, None), "train")
