"""Files of labelled texts as people have them: accepted, or refused with the line."""

import contextlib
import csv
import gzip
import json
import os
import tracemalloc

import pytest

from gpt1_keras.labelled_files import CHOICES, LABEL, read_rows


@pytest.fixture
def write(tmp_path):
    """Writes a file, compressed if its name says so, and returns its path."""

    def write(name, content):
        path = tmp_path / name
        content = content if isinstance(content, bytes) else content.encode()
        path.write_bytes(gzip.compress(content, mtime=0) if name.lower().endswith(".gz") else content)
        return path

    return write


@pytest.mark.parametrize("name", ["a.CSV", "a.csv.gz", "a.Csv.GZ", "a.b.csv"])
def test_names_of_files(write, name):
    rows = read_rows(write(name, "text,label\nä,yes\n"))
    assert rows == [{"text": "ä", LABEL: "yes"}]


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.JSONL"])
def test_names_of_files_of_json(write, name):
    assert read_rows(write(name, '{"text": "ä"}\n')) == [{"text": "ä"}]


@pytest.mark.parametrize("suffix", ["csv", "tsv", "jsonl"])
def test_long_fields(write, suffix):
    """csv itself refuses more than 131,072 letters; its limit stays as it was for others."""
    text, before = "word " * 100_000, csv.field_size_limit()
    separator = {"csv": ",", "tsv": "\t"}.get(suffix)
    content = json.dumps({"text": text, LABEL: "a"}) if separator is None else ""
    content = content or f"text{separator}label\n{text}{separator}a\n"
    assert read_rows(write(f"a.{suffix}", content)) == [{"text": text, LABEL: "a"}]
    assert csv.field_size_limit() == before


def test_choices_are_in_the_order_of_their_numbers(write):
    header = ",".join(f"choice{number}" for number in (2, 1, 10, *range(3, 10)))
    path = write("a.csv", f"label,{header}\n0,b,a,j,c,d,e,f,g,h,i\n")
    assert read_rows(path) == [{LABEL: "0", CHOICES: list("abcdefghij")}]


def test_blanks_around_a_label_make_no_other_class(write):
    rows = [{"text": " a ", LABEL: "yes"}, {"text": "b", LABEL: "yes"}]
    assert read_rows(write("a.csv", "text,label\n a , yes\nb,yes\u00a0\n")) == rows
    lines = [json.dumps({"text": " a ", LABEL: "yes "}), json.dumps({"text": "b", LABEL: "\nyes"})]
    assert read_rows(write("a.jsonl", "\n".join(lines))) == rows


def test_what_is_no_file(tmp_path):
    os.mkfifo(tmp_path / "a.csv")
    (tmp_path / "b.csv").mkdir()
    for name, what in (("a", "is not a file"), ("b", "is not a file"), ("c", "does not exist")):
        with pytest.raises(FileNotFoundError, match=f"{name}.csv {what}"):
            read_rows(tmp_path / f"{name}.csv")


def test_rows_know_their_lines(write):
    path = write("a.csv", 'text,label\n"two\nlines",a\n\nb,c\n')
    assert [row.line for row in read_rows(path)] == [3, 5]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", "choice1,choice2,choice3,label\na,b,c,0\na,,c,1\n",
         "line 3: choice2 is empty, and choice3 is not"),
        ("a.csv", "choice1,choice2,label\n,b,0\n", "line 2: choice1 is empty, and choice2 is not"),
        ("a.csv", "choice0,choice1\na,b\n", "columns choice0, choice1; expected choice1, choice2"),
        ("a.csv", "choice1,choice3\na,b\n", "columns choice1, choice3; expected choice1, choice2"),
        ("a.csv", "choice1,choice01\na,b\n", "expected choice1, choice2"),
        ("a.csv", "choice1,choices\na,b\n", "both a column choices and choice1"),
        ("a.csv", "text,label,text\na,b,c\n", "names several columns 'text'"),
        ("a.jsonl", '{"text": "a"}\n{"text": null}\n', "line 2: 'text' must be .* Received: null"),
        ("a.jsonl", '{"text": {"a": 1}}', "line 1: 'text' must be .* Received: {\"a\": 1}"),
        ("a.jsonl", '{"choices": ["a", null]}', "line 1: 'choices' must be .* null"),
        ("a.jsonl", '{"choices": ["a", ["b"]]}', "line 1: 'choices' must be"),
        ("a.jsonl", '{"label": NaN}', "line 1: is not JSON: NaN is no number"),
        ("a.jsonl", '{"label": 1e999}', "line 1: 'label' must be .* Received: Infinity"),
        ("a.jsonl", '{"label": ' + "9" * 5000 + "}", "line 1: is not JSON"),
        ("a.jsonl", '{"label": 0, "label": 1}', "line 1: is not JSON: a name occurs twice"),
        ("a.jsonl", '{"text": "\\ud83d"}', "line 1: 'text' holds half of a surrogate pair"),
        ("a.jsonl", '{"choices": ["a", "\\udc00"]}', "line 1: 'choices' holds half"),
        ("a.jsonl", '{"\\ud83d": "a"}', "line 1: .* holds half of a surrogate pair"),
        ("a.jsonl", "[" * 200_000, "line 1: is not JSON"),
        ("a.jsonl", '{"text": ' + "[" * 200_000, "line 1: is not JSON"),
        ("a.csv", b"\x00\xff,label\n", "a.csv is not UTF-8"),
        ("a.csv", "text,label\na,b\n".encode("utf-16-le"), "a.csv is not UTF-8"),
        ("a.csv", "text,label\na,b\n".encode("utf-16-be"), "a.csv is not UTF-8"),
        ("a.csv", "text,label\na,b\n".encode("utf-16")[:-1], "a.csv is damaged, or not UTF-8"),
        ("a.csv.gz", gzip.compress(b"text,label\na,b\n", mtime=0), r"a\.csv\.gz is not UTF-8"),  # twice
        ("a.jsonl", '{"text": ' + "[" * 900 + "]" * 900 + "}", "line 1: 'text' holds lists or obj"),
        ("a.jsonl", '{"text": ' + '{"a": ' * 200 + "1" + "}" * 201, "line 1: 'text' holds lists"),
    ],
)  # fmt: skip
def test_what_would_be_read_wrongly_is_refused(write, name, content, message):
    with pytest.raises(ValueError, match=message) as error:
        read_rows(write(name, content))
    assert len(str(error.value)) < 1000  # however long the line is


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-9], lambda data: data[:30] + b"oops" + data[34:], lambda _: b"a"]
)
def test_damaged_compressed_files(tmp_path, damage):
    path = tmp_path / "a.csv.gz"
    path.write_bytes(damage(gzip.compress(b"text,label\n" + b"a good film,1\n" * 9)))
    with pytest.raises(ValueError, match=r"a\.csv\.gz is (damaged|not UTF-8)"):
        read_rows(path)


@contextlib.contextmanager
def traced_peak():
    """Yields what returns the most bytes that Python had at once in the body of a `with`."""
    found = []
    tracemalloc.start()
    try:
        yield lambda: found[0]
    finally:
        found.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()


def test_a_file_that_expands_beyond_measure(write):
    path = write("a.csv.gz", b"text,label\n" + b" " * 20_000_000)
    with (
        traced_peak() as peak,
        pytest.raises(ValueError, match=r"a\.csv\.gz has more than [0-9,]+ bytes of text"),
    ):
        read_rows(path)
    assert peak() < 8e6


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", "a\n" + "b\n" * 5_000),
        ("a.tsv", "a\tb\n" + "\t\n" * 5_000),
        ("a.jsonl", "{}\n" * 5_000),
        ("a.jsonl", '{"a": [' + "[]," * 5_000 + "[]]}"),
    ],
)
def test_memory_has_a_bound(write, name, content):
    path = write(name, content)
    with traced_peak() as peak, contextlib.suppress(ValueError):
        read_rows(path)
    assert peak() < 200 * len(content)
