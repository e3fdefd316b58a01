"""Users' own files, read as tasks."""

import dataclasses
import json

import numpy as np
import pandas as pd
import pytest

from training.datasets import user_files
from training.datasets.labelled_examples import load_examples
from training.datasets.paper_datasets import CLASSIFICATION, MULTIPLE_CHOICE, SIMILARITY
from training.datasets.user_files import find_user_files
from training.runs.finetune_options import FinetuneOptions


@pytest.fixture
def write(tmp_path):
    def write(name, content):
        path = tmp_path / name
        if not isinstance(content, str):
            content = "".join(json.dumps(row) + "\n" for row in content)
        path.write_bytes(content.encode("utf-8"))
        return str(path)

    return write


def examples(path):
    return load_examples(find_user_files(path, path), "train")


def test_classes_of_texts(write):
    path = write("a.csv", 'text,label\n"Good, isn\'t it?",yes\n"two\nlines",no\n')
    found = examples(path)
    assert find_user_files(path, path).kind == CLASSIFICATION
    assert found.class_names == ["no", "yes"]
    assert list(found.texts["text"]) == [b"Good, isn't it?", b"two\nlines"]
    assert found.labels.tolist() == [1, 0]


def test_pairs_with_and_without_an_order(write):
    ordered = write("a.tsv", 'label\tpremise\thypothesis\n1\ta\t\u00e4 "b\n0\tc\td\n')
    assert find_user_files(ordered, ordered).kind == CLASSIFICATION
    found = examples(ordered)
    assert list(found.texts["hypothesis"]) == ['\u00e4 "b'.encode(), b"d"]
    assert found.class_names == ["0", "1"] and found.labels.tolist() == [1, 0]
    rows = [{"text1": "a", "text2": "b", "label": score} for score in (-0.5, 3, 1.25)]
    scored = find_user_files(*[write("b.jsonl", rows)] * 2)
    assert (scored.kind, scored.score_range) == (SIMILARITY, (-1, 3))
    assert scored.metrics == ("pearson", "spearman")
    found = load_examples(scored, "validation")
    assert found.labels.tolist() == [-0.5, 3, 1.25] and found.labels.dtype == np.float32
    assert len(found.labelled()) == 3  # -0.5 is a score as any other


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv"])
def test_choices(name, write):
    if name == "a.jsonl":
        rows = [
            {"context": "c", "question": "q", "choices": ["x", "y", "z"], "label": 2},
            {"context": "d", "question": "r", "choices": ["v", "w"], "label": 0},
        ]
    else:
        rows = "context,question,choice1,choice2,choice3,label\nc,q,x,y,z,2\nd,r,v,w,,0\n"
    path = write(name, rows)
    assert find_user_files(path, path).kind == MULTIPLE_CHOICE
    found = examples(path)
    assert [list(row) for row in found.texts["choices"]] == [[b"x", b"y", b"z"], [b"v", b"w"]]
    assert list(found.texts["question"]) == [b"q", b"r"]
    assert found.labels.tolist() == [2, 0] and found.class_names is None


CHOICES_HEADER = "context,choice1,choice2,label\n"
SCORES = "text,label\na,0.5\nb,4\n"
CLASSES = "text,label\na,yes\nb,no\n"


@pytest.mark.parametrize(
    ("train", "validation", "message"),
    [
        ("prose,label\na,b\n", None, r"\['prose', 'label'\]; expected text, label; or premise"),
        ("text,verdict\na,b\n", None, r"\['text', 'verdict'\]"),
        (CHOICES_HEADER + "a,b,c,2\n", None, "line 2: .*'2'; .* 2 choices"),
        (CHOICES_HEADER + "a,b,c,right\n", None, "line 2: .*'right'"),
        ("text,label\n ,no\n", None, "all 1 rows"),
        (CLASSES, "text,label\na,perhaps\n", r"\['perhaps'\]; expected \['no', 'yes'\]"),
        (CLASSES, "prose,label\na,yes\n", r"\['prose', 'label'\]; expected text, label"),
        (SCORES, "text,label\na,4.5\n", "'4.5'; .* from 0 to 4"),
    ],
)
def test_refused(write, train, validation, message):
    path = write("a.csv", train)
    with pytest.raises(ValueError, match=message):
        dataset = find_user_files(path, write("b.csv", validation or train))
        load_examples(dataset, "validation" if validation else "train")


@pytest.mark.parametrize("missing", ["nan", "NaN", "<NA>", "NaT", "", "  "])
def test_rows_without_a_label_are_left_out(write, capsys, missing):
    """As pandas writes and reads them; they become no class."""
    path = write("a.csv", f"text,label\na,yes\nb,{missing}\nc,no\n")
    found = examples(path)
    assert list(found.texts["text"]) == [b"a", b"c"] and found.class_names == ["no", "yes"]
    assert "1 row without a label is left out, line 3." in capsys.readouterr().err
    path = write("b.csv", f"text,label\na,0.5\nb,{missing}\nc,1\n")
    assert examples(path).labels.tolist() == [0.5, 1.0]
    with pytest.raises(ValueError, match="lack a label"):
        find_user_files(write("c.csv", f"text,label\na,{missing}\n"), None)


def test_spellings_of_one_class(write, capsys):
    """The most frequent is its name, and a validation file has the same."""
    train = write("a.csv", "text,label\na,Bill\nb,BILL\nc,Bill \nd,praise\ne,Praise\nf,bill\n")
    dataset = find_user_files(train, write("b.csv", "text,label\na,bILL\nb,PRAISE\n"))
    assert dataset.class_names == ["Bill", "praise"]
    assert load_examples(dataset, "train").labels.tolist() == [0, 0, 0, 1, 1, 0]
    assert "['BILL', 'bill'] as 'Bill', ['Praise'] as 'praise'" in capsys.readouterr().err
    assert load_examples(dataset, "validation").labels.tolist() == [0, 1]
    # A model that has two such classes keeps them apart.
    dataset = dataclasses.replace(dataset, class_names=["BILL", "Bill", "praise"])
    with pytest.raises(ValueError, match="bill"):
        load_examples(dataset, "train")


def test_rows_with_a_blank_text_are_left_out(write, capsys):
    """Whatever their labels; they are told of once, with the first one's line."""
    texts = ["a", "", " \t", "\x01\u200b", "\ufffd", "\u4f60", "b"]
    rows = [{"text": text, "label": "nan" if text == " \t" else "no"} for text in texts]
    path = write("a.jsonl", [*rows, {"text": "c", "label": "yes"}])
    found = examples(path)
    assert [text.decode() for text in found.texts["text"]] == ["a", "\u4f60", "b", "c"]
    notice = f"{path}: 4 rows with a blank text are left out, the first in line 2.\n"
    assert capsys.readouterr().err == f"note: {notice}"

    pairs = [{"premise": "a", "hypothesis": each, "label": 1} for each in ("b", "", "c")]
    assert len(examples(write("pairs.jsonl", pairs))) == 2
    assert "1 row with a blank text is left out, line 2." in capsys.readouterr().err
    choices = [
        {"context": context, "question": question, "choices": ["c", choice], "label": 0}
        for context, question, choice in ("abd", "a d", " bd", "  d", "ab ")
    ]
    assert len(examples(write("choices.jsonl", choices))) == 3  # one of the first two may be blank
    assert "2 rows with a blank text are left out, the first in line 4" in capsys.readouterr().err


def test_labels_that_look_alike_are_one_class(write):
    train = write("a.csv", "text,label\na,1\nb,1.0\nc,2\nd,caf\u00e9\ne,cafe\u0301\n")
    validation = write("b.csv", "text,label\na,2.0\nb,cafe\u0301\u200b\n")
    dataset = find_user_files(train, validation)
    assert dataset.class_names == ["1", "2", "caf\u00e9"]
    assert load_examples(dataset, "train").labels.tolist() == [0, 0, 1, 2, 2]
    assert load_examples(dataset, "validation").labels.tolist() == [1, 2]
    # An older model's names may have been read before look-alikes were one label.
    dataset = dataclasses.replace(dataset, class_names=["1.0", "2.0", "caf\u00e9"])
    assert load_examples(dataset, "train").labels.tolist() == [0, 0, 1, 2, 2]


def test_numbers_are_in_their_order(write):
    """Where they are indices too, a class's number and its index are the same."""
    train = write("a.csv", "text,label\n" + "".join(f"a,{number}\n" for number in range(12)))
    assert find_user_files(train, train).class_names == [str(number) for number in range(12)]
    train = write("a.csv", "text,label\na,10\na,9\na,-1\n")
    assert find_user_files(train, train).class_names == ["-1", "9", "10"]
    train = write("a.csv", "text,label\na,10\na,9\na,b\n")
    assert find_user_files(train, train).class_names == ["10", "9", "b"]


@pytest.mark.parametrize(
    "labels",
    [
        ["4,5", "3,0", "1,5"],
        ["4,5", "3", "-1,25"],
        ["1,200", "0,5", ",5"],  # 1.2, as another comma does not stand before three digits
        ["0,125", "2,250", "1,000"],
    ],
)
def test_scores_with_decimal_commas(write, capsys, labels):
    """As pandas reads them, for training and validation alike; a line says so."""
    path = write("a.csv", "text;label\n" + "".join(f"a;{label}\n" for label in labels))
    expected = pd.read_csv(path, sep=";", decimal=",")["label"]
    dataset = find_user_files(path, path)
    assert dataset.score_range == (np.floor(expected.min()), np.ceil(expected.max()))
    for role in ("train", "validation"):
        np.testing.assert_allclose(load_examples(dataset, role).labels, expected)
        assert "read as numbers with a decimal comma" in capsys.readouterr().err


def test_classes_with_commas(write, capsys):
    """Whole numbers with a decimal comma are classes, as those with a point are."""
    train = write("a.tsv", "text\tlabel\na\t3,0\nb\t4,0\nc\t3\n")
    dataset = find_user_files(train, train)
    assert dataset.class_names == ["3", "4"]
    assert load_examples(dataset, "train").labels.tolist() == [0, 1, 0]
    # What a model has as a class stays one, though all labels of this file are such numbers.
    train = write("a.tsv", "text\tlabel\na\t1,2\nb\tnone\n")
    dataset = find_user_files(train, write("b.tsv", "text\tlabel\na\t1,2\n"))
    assert load_examples(dataset, "validation").labels.tolist() == [0]
    assert dataset.class_names == ["1,2", "none"]


@pytest.mark.parametrize(
    "labels", ["85% 90%", "$4.50 €3", "4/5 3/5", "1.200,5 3,5", "1,200 3,500", "1'200 \u22123,5"]
)
def test_what_looks_like_a_number_is_told(write, capsys, labels):
    """It is a class, as no reader knows what it means, and no score."""
    labels = labels.split()
    path = write("a.tsv", "text\tlabel\n" + "".join(f"a\t{label}\n" for label in labels))
    dataset = find_user_files(path, path)
    assert dataset.class_names == sorted(labels)
    load_examples(dataset, "train")
    assert f"the labels {sorted(labels)}, which are taken as classes" in capsys.readouterr().err
    dataset = find_user_files(path, path, score_range=(0, 5_000))
    with pytest.raises(ValueError, match=r"line 2: has the label .* line 3: has the label"):
        load_examples(dataset, "train")


def test_what_is_no_number_is_not_told(write, capsys):
    labels = ["1", "2.0", "1e5", "10-20", "20+", "one", "v1.5", "2024-01-02"]
    path = write("a.csv", "text,label\n" + "".join(f"a,{label}\n" for label in labels))
    load_examples(find_user_files(path, path), "train")
    assert capsys.readouterr().err == ""


def test_a_range_of_scores(write):
    """Whole numbers are scores where it is given."""
    path = write("a.csv", "text,label\na,1\nb,4\n")
    dataset = find_user_files(path, path, score_range=(0, 5))
    assert (dataset.score_range, dataset.class_names) == ((0, 5), None)
    assert load_examples(dataset, "train").labels.tolist() == [1.0, 4.0]
    dataset = find_user_files(path, path, score_range=(2, 5))
    with pytest.raises(ValueError, match="line 2: has the label '1'; expected a score from 2 to 5"):
        load_examples(dataset, "train")
    choices = write("b.csv", "context,choice1,choice2,label\na,b,c,1\n")
    with pytest.raises(ValueError, match="has choices; score_range"):
        find_user_files(choices, choices, score_range=(0, 5))
    for text in ("5,0", "0,5,7", "0.5,2", "a"):
        with pytest.raises(ValueError, match=f"score_range .* Received: {text}"):
            FinetuneOptions(train=path, config="gpt1_micro", score_range=text)
    assert FinetuneOptions(train=path, config="gpt1_micro", score_range="-1,5").scores == (-1, 5)


def test_no_file_is_read_twice_for_both_splits(write, monkeypatch):
    """And how it is read is told before what it holds."""
    rows = [f"{n};Text {n};{'a' if n % 2 else 'A'}\n" for n in range(20)] + ["20;;a\n", "21;x;\n"]
    path = write("a.csv", "Titel;;\nNr;Text;Label\n" + "".join(rows))
    dataset = find_user_files(path, None)
    read, told = [], []
    whole = user_files.read_rows
    monkeypatch.setattr(
        user_files, "read_rows", lambda path, **given: read.append(path) or whole(path, **given)
    )
    train, validation = dataset.read_splits(told.append)
    assert read == [str(path)] and (len(train), len(validation)) == (16, 4)
    parts = ["line 2 names", "semicolons", "takes", "blank text", "without a label", "case alone"]
    parts += ["4 of 20 examples", "20 examples of 1 class"]
    assert all(part in line for part, line in zip(parts, told, strict=True)), told
