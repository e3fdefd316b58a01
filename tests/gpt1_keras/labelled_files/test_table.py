"""Users' files of texts: rows, columns, lines and notices."""

import csv
import json

import pytest

from gpt1_keras.labelled_files import CHOICES, LABEL, open_table, read_rows


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", 'text,label\n"Good, isn\'t it?",yes\n"two\nlines",no\n,yes\n'),
        ("a.jsonl", '{"text": "Good, isn\'t it?", "label": "yes"}\n\n'
                    '{"label": "no", "text": "two\\nlines"}\n{"text": "", "label": "yes"}'),
    ],
)  # fmt: skip
def test_the_same_rows_from_either_format(write, name, content):
    assert read_rows(write(name, content)) == [
        {"text": "Good, isn't it?", LABEL: "yes"},
        {"text": "two\nlines", LABEL: "no"},
        {"text": "", LABEL: "yes"},
    ]


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.CSV", "text,label\nä,b\n"),
        ("a.b.csv", "text,label\nä,b\n"),
        ("a.tsv", "text\tlabel\nä\tb\n"),
        ("a.Csv.GZ", "text,label\nä,b\n"),
        ("a.JSONL", '{"text": "ä", "label": "b"}\n'),
        ("a.jsonl.gz", '{"text": "ä", "label": "b"}\n'),
    ],
)
def test_names_line_ends_and_byte_order_marks(write, name, content, line_end):
    for mark in ("", "\ufeff"):
        path = write(name, mark + content.replace("\n", line_end))
        assert read_rows(path) == read_rows(str(path)) == [{"text": "ä", "label": "b"}]


@pytest.mark.parametrize("suffix", ["csv", "tsv", "jsonl"])
def test_long_fields(write, suffix):
    """csv itself refuses more than 131,072 letters; its limit stays as it was for others."""
    text, before = "word " * 100_000, csv.field_size_limit()
    separator = {"csv": ",", "tsv": "\t"}.get(suffix)
    content = json.dumps({"text": text, LABEL: "a"}) if separator is None else ""
    content = content or f"text{separator}label\n{text}{separator}a\n"
    assert read_rows(write(f"a.{suffix}", content)) == [{"text": text, LABEL: "a"}]
    assert csv.field_size_limit() == before


def test_thousands_of_columns(write):
    """Their cost is not their square, which was half a minute for 20,000."""
    names = [f"n{number}" for number in range(20_000)]
    [row] = read_rows(write("a.csv", ",".join(names) + "\n" + "," * 19_999 + "x" + "\n"))
    assert list(row) == names


def test_rows_know_their_lines(write):
    path = write("a.csv", 'text,label\n"two\nlines",a\n\nb,c\n')
    assert [row.line for row in read_rows(path)] == [3, 5]


def test_columns_of_choices(write):
    """However many there are, in the order of their numbers, without the empty ones at the end."""
    path = write("a.csv", "context,choice2,choice1,choice3,label\nc,y,x,z,2\nd,,v,,0\ne,,,,0\n")
    assert read_rows(path) == [
        {"context": "c", CHOICES: ["x", "y", "z"], "label": "2"},
        {"context": "d", CHOICES: ["v"], "label": "0"},
        {"context": "e", CHOICES: [], "label": "0"},
    ]
    header = ",".join(f"choice{number}" for number in (2, 1, 10, *range(3, 10)))
    path = write("a.csv", f"label,{header}\n0,b,a,j,c,d,e,f,g,h,i\n")
    assert read_rows(path) == [{LABEL: "0", CHOICES: list("abcdefghij")}]
    path = write("a.tsv", "choice\tchoice1a\tchoice1\na\tb\tc\n")
    assert read_rows(path) == [{"choice": "a", "choice1a": "b", CHOICES: ["c"]}]


@pytest.mark.parametrize(
    ("name", "content", "columns"),
    [
        ("a.csv", "text,,column 2\nx,y,z\n", ["text", "column 2 (2)", "column 2"]),
        ("a.csv", "column 2,,column 2 (2)\nx,y,z\n", ["column 2", "column 2 (3)", "column 2 (2)"]),
        ("a.jsonl", '{"": "x", "column 1": "y", "text": "z"}',
         ["column 1 (2)", "column 1", "text"]),
    ],
)  # fmt: skip
def test_a_column_without_a_name_takes_no_other_s(write, name, content, columns):
    path = write(name, content)
    assert read_rows(path) == [dict(zip(columns, "xyz"))]
    assert open_table(path).file_columns == columns


def test_an_unread_column_takes_no_other_s_name(write):
    path = write("a.csv", "text,text (unread),Comment\nx,y,z\n")
    expected = {"text (unread) (2)": "x", "text (unread)": "y", "text": "z"}
    assert read_rows(path, {"text": "Comment"}) == [expected]


def test_values_of_json_become_text(write):
    path = write("a.jsonl", '{"choices": ["x", 1], "label": 0.5, "id": true}\n')
    assert read_rows(path) == [{CHOICES: ["x", "1"], "label": "0.5", "id": "True"}]
