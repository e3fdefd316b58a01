"""Labels as people write them, blank texts, and the summary of a file's examples."""

import unicodedata

import pandas as pd
import pytest

from gpt1_keras.labelled_files import (
    LABEL,
    Row,
    is_blank,
    numbers_of_labels,
    read_rows,
    summary,
    use_one_spelling,
    with_labels,
)


@pytest.fixture
def rows(write):
    """Reads rows with these labels, and texts that differ."""

    def rows(labels):
        frame = pd.DataFrame({"text": [f"text {n}" for n in range(len(labels))], LABEL: labels})
        return read_rows(write("a.csv", frame.to_csv(index=False)))

    return rows


@pytest.mark.parametrize(
    "alike",
    [
        ("yes", " yes ", "yes\u200b", "\ufeffyes", "y\u2060es", "yes\u00a0", "\nyes"),
        ("caf\u00e9", "cafe\u0301"),
        ("very good", "very\u00a0good", "very  good"),
        ("1", "1.0", "1.00"),
        ("-2", "-2.0"),
    ],
)
def test_labels_that_look_alike_are_one(rows, alike):
    assert {row[LABEL] for row in rows(alike)} == {alike[0]}


def test_labels_that_differ_stay_apart(rows):
    labels = ["yes", "Yes", "1", "01", "1.5", "1.05", "v1.0", "n\u200do"]
    assert [row[LABEL] for row in rows(labels)] == labels


def test_the_most_frequent_spelling_is_the_class(rows):
    told = []
    found = rows(["LOB", "Lob", "lob", "Lob", "TRUE", "True", "True", "01", "1", "straße"])
    use_one_spelling(found, "a.csv", tell=told.append)
    assert [row[LABEL] for row in found] == [*["Lob"] * 4, *["True"] * 3, "01", "1", "straße"]
    assert told == [
        "a.csv: labels that differ in case alone are one class: ['LOB', 'lob'] as 'Lob', ['TRUE'] "
        "as 'True'."
    ]
    use_one_spelling(found, "a.csv", tell=pytest.fail)
    for names, expected in ((["LOB"], "LOB"), (["LOB", "lob"], "Lob"), (["Lob", "LOB"], "Lob")):
        found = rows(["Lob"])
        use_one_spelling(found, "a.csv", names)
        assert found[0][LABEL] == expected


def test_rows_without_a_label(rows):
    told = []
    found = with_labels(rows(["a", None, "NaN", " ", "n/a"]), "a.csv", told.append)
    assert [row[LABEL] for row in found] == ["a", "n/a"]
    assert told == ["a.csv: 3 rows without a label are left out, the first in line 3."]


def test_a_summary(rows, write):
    path = write(
        "a.csv",
        "text,label\nGood,a\ngood ,b\nbad,01\nbad,01\nx,1\ny,N/A\nz,Kein Lob\nw,kein-lob\n",
    )
    found = read_rows(path)
    names = sorted({row[LABEL] for row in found})
    assert summary(found, ["text"], names) == [
        "8 examples of 7 classes: '01' 2, 'a' 1, 'b' 1, '1' 1, 'N/A' 1, 'Kein Lob' 1, 'kein-lob' 1",
        "2 texts occur more than once, 1 of them with different labels, such as 'Good': 'a' in "
        "line 2, 'b' in line 3",
        "['01', '1'] look alike, and are different classes",
        "['Kein Lob', 'kein-lob'] look alike, and are different classes",
        "['N/A'] may stand for a missing label, and is a class",
    ]
    assert summary(rows(["1", "2.5", "4"]), ["text"]) == [
        "3 examples with labels from 1 to 4, 2.5 on average"
    ]
    many = [str(number) for number in range(100, 130)]
    [line] = summary(rows(many), ["text"], many)
    assert line.startswith("30 examples of 30 classes: '100' 1, ") and line.endswith("and 10 more")


def test_blank_texts_are_those_without_a_token(tiny_tokenizer):
    """Every character that the tokenizer drops, and a few that it keeps because it is older."""
    characters = [chr(code) for code in (*range(0x3100), *range(0xF800, 0x10000))]
    counts = tiny_tokenizer(characters).row_lengths().numpy()
    dropped = {each for each, count in zip(characters, counts) if not count}
    blank = set(filter(is_blank, characters))
    assert dropped - blank == {"\u1734"}  # a mark that Unicode has reclassified since
    assert {unicodedata.category(each) for each in blank - dropped} <= {"Mn", "Cf"}
    assert is_blank("") and is_blank("\ue000 \u0301") and not is_blank("\u0301e")


@pytest.mark.parametrize(
    ("labels", "known", "expected"),
    [
        (["b", "A", "b"], {"class_names": ["A", "b"]}, [1, 0, 1]),
        (["1", "1.0"], {"choices": "text"}, [1, 1]),
        (["0", "4.5"], {"score_range": (0, 5)}, [0, 4.5]),
        (["-7", "1e3"], {}, [-7, 1000]),
        (["a"], {"class_names": ["A", "b"]}, "a.csv has the labels ['a']; expected ['A', 'b']"),
        (["1", "2", "-1", "0.5"], {"choices": "text"}, "a.csv, line 2: .*'2'.*0; line 3: .*line 4"),
        (["5.1", "5"], {"score_range": (0, 5)}, "line 1: .*'5.1'; expected a score from 0 to 5"),
        (["nan", "inf", "x"], {}, "line 1: .*line 2: .*line 3: .*a number"),
    ],
)
def test_labels_as_numbers(labels, known, expected):
    """Texts stand for choices: of two characters, there are two."""
    rows = [Row({"text": "ab", LABEL: label}, line) for line, label in enumerate(labels, 1)]
    if isinstance(expected, list):
        assert numbers_of_labels(rows, "a.csv", **known) == expected
        return
    with pytest.raises(ValueError, match=expected.replace("[", r"\[").replace("]", r"\]")):
        numbers_of_labels(rows, "a.csv", **known)
