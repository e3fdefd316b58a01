"""Files that would be read wrongly, are damaged or are too large: refused, with the line."""

import contextlib
import gzip
import os
import tracemalloc

import pytest

from gpt1_keras.labelled_files import open_table, read_rows

BAD_ROWS = "lines 2, 3, 4, 5, 6, 7, 8, 9, 10, 11: .*; and 4 more such lines"
TWO_BAD_ROWS = 'text,label\na\n"b"c,d\ne,f\n'


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", "", r"\.csv, .*a\.txt"),
        ("a.xls", "", r"a\.xls .*\.xlsx"),
        ("a.ods", "", r"a\.ods .*\.xlsx"),
        ("a.csv", "", "no examples"),
        ("a.csv", "text,label\n", "no examples"),
        ("a.jsonl", "\n \n", "no examples"),
        # Rows with other columns.
        ("a.csv", "text,label\na,b\nc\n", "line 3: .* columns than the 2"),
        ("a.tsv", "text\tlabel\na\tb\tc\n", "line 2: .* columns than the 2"),
        ("a.csv", "text,label\n" + "a\n" * 14, BAD_ROWS),
        ("a.csv", TWO_BAD_ROWS, "line 2: .* columns .*; line 3: ',' expected"),
        ("a.jsonl", '{"text": "a", "label": 1}\n\n{"text": "a"}\n', "line 3: has the columns"),
        # No line of the one column is without a comma: a table whose columns have no names.
        ("a.csv", "text\ngood film,1\nbad film,0\n", "lines 2, 3: .* columns than the 1"),
        # Both commas and semicolons split each line in two.
        ("a.csv", "name;remark, if any\na;b, c\n", "commas or by semicolons"),
        # Names of columns.
        ("a.csv", "text,label,text\na,b,c\n", "several columns 'text'"),
        ("a.csv", "choice0,choice1\na,b\n", "choice0, choice1; expected choice1, choice2"),
        ("a.csv", "choice1,choice3\na,b\n", "choice1, choice3; expected choice1, choice2"),
        ("a.csv", "choice1,choice01\na,b\n", "expected choice1, choice2"),
        ("a.csv", "choice1,choices\na,b\n", "both a column choices and choice1"),
        ("a.csv", "choice1,choice2,choice3,label\na,b,c,0\na,,c,1\n", "line 3: choice2 is empty"),
        ("a.csv", "choice1,choice2,label\n,b,0\n", "line 2: choice1 is empty"),
        # Quotation marks.
        ("a.csv", 'text,label\n"a,b\n', r"line \d: unexpected end of data"),
        ("a.csv", 'text,label\n"a"b,c\n', r"line 2: ',' expected"),
        ("a.csv", '"text"x,label\na,b\n', "line 1: "),
        # Values that are no text.
        ("a.jsonl", '{"text": "a", "label": 1}\n{oops\n', "line 2: is not JSON"),
        ("a.jsonl", "[1]\n", r"line 1: .* object. Received: \[1\]"),
        ("a.jsonl", '{"text": "a"}\n{"text": null}\n', "line 2: 'text' .* Received: null"),
        ("a.jsonl", '{"text": {"a": 1}}', "line 1: 'text' .* Received: {\"a\": 1}"),
        ("a.jsonl", '{"choices": ["a", null]}', "line 1: 'choices' .* null"),
        ("a.jsonl", '{"choices": ["a", ["b"]]}', "line 1: 'choices'"),
        ("a.jsonl", '{"label": NaN}', "line 1: .* NaN"),
        ("a.jsonl", '{"label": 1e999}', "line 1: 'label' .* Received: Infinity"),
        ("a.jsonl", '{"label": ' + "9" * 5000 + "}", "line 1: is not JSON"),
        ("a.jsonl", '{"label": 0, "label": 1}', "line 1: .* twice"),
        ("a.jsonl", '{"text": "\\ud83d"}', "line 1: 'text' holds half of a surrogate pair"),
        ("a.jsonl", '{"choices": ["a", "\\udc00"]}', "line 1: 'choices' holds half"),
        ("a.jsonl", '{"\\ud83d": "a"}', "line 1: .* holds half of a surrogate pair"),
        ("a.jsonl", "[" * 200_000, "line 1: is not JSON"),
        ("a.jsonl", '{"text": ' + "[" * 200_000, "line 1: is not JSON"),
        ("a.jsonl", '{"text": ' + "[" * 900 + "]" * 900 + "}", "line 1: 'text' .* deeper"),
        ("a.jsonl", '{"text": ' + '{"a": ' * 200 + "1" + "}" * 201, "line 1: 'text' .* deeper"),
        # Encodings.
        ("a.csv", "text,label\nfor \x81,b\n".encode("latin-1"), "damaged, or not UTF-8"),
        ("a.csv", "text,label\näöü,b\nä".encode() + b"\xe4", "not UTF-8: line 3"),
        ("a.csv", "text\nschön\ngrün\n".encode() + b"na\xefve\n", "not UTF-8: line 4"),
        ("a.csv", b"\x00\xff,label\n", "not UTF-8"),
        ("a.csv", "text,label\na,b\n".encode("utf-16-le"), "not UTF-8"),
        ("a.csv", "text,label\na,b\n".encode("utf-16-be"), "not UTF-8"),
        ("a.csv", "text,label\na,b\n".encode("utf-16")[:-1], "damaged, or not UTF-8"),
        ("a.csv", "text,label\nпривет,1\n".encode("cp1251"), "not UTF-8"),
        ("a.csv", "text,label\nγεια,1\n".encode("cp1253"), "not UTF-8"),
        ("a.csv", "text,label\n日本語,1\n".encode("shift-jis"), "not UTF-8"),
        ("a.csv", "text,label\n中文,1\n".encode("gbk"), "not UTF-8"),
        ("a.csv.gz", gzip.compress(b"text,label\na,b\n", mtime=0), "not UTF-8"),  # twice
        ("a.csv.gz", b"text,label\n" + b" " * 20_000_000, "has more than [0-9,]+ bytes"),
    ],
)  # fmt: skip
def test_what_is_refused(write, name, content, message):
    path = write(name, content)
    with pytest.raises(ValueError, match=message) as error:
        read_rows(path)
    assert str(path) in str(error.value) and len(str(error.value)) < 1000


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-9], lambda data: data[:30] + b"oops" + data[34:], lambda _: b"a"]
)
def test_damaged_compressed_files(tmp_path, damage):
    path = tmp_path / "a.csv.gz"
    path.write_bytes(damage(gzip.compress(b"text,label\n" + b"a good film,1\n" * 9)))
    with pytest.raises(ValueError, match=r"a\.csv\.gz is (damaged|not UTF-8)"):
        read_rows(path)


def test_what_is_no_file(tmp_path):
    os.mkfifo(tmp_path / "a.csv")
    (tmp_path / "b.csv").mkdir()
    for name, what in (("a", "is not a file"), ("b", "is not a file"), ("c", "does not exist")):
        with pytest.raises(FileNotFoundError, match=f"{name}.csv {what}"):
            read_rows(tmp_path / f"{name}.csv")


def test_a_table_stops_at_the_first_bad_row_and_tells_of_all(write):
    rows = iter(open_table(write("a.csv", "text,label\na,b\nc\nd,e\nf\n")))
    assert next(rows) == {"text": "a", "label": "b"}
    with pytest.raises(ValueError, match="lines 3, 5: "):
        next(rows)


@pytest.mark.parametrize(
    ("name", "content", "times"),
    [
        ("a.csv", "a\n" + "b\n" * 5_000, 200),
        ("a.tsv", "a\tb\n" + "\t\n" * 5_000, 200),
        ("a.jsonl", "{}\n" * 5_000, 200),
        ("a.jsonl", '{"a": [' + "[]," * 5_000 + "[]]}", 200),
        ("a.csv.gz", "text,label\n" + " " * 20_000_000, 0.4),  # of what it would be
    ],
)
def test_memory_has_a_bound(write, name, content, times):
    path = write(name, content)
    tracemalloc.start()
    try:
        with contextlib.suppress(ValueError):
            read_rows(path)
        assert tracemalloc.get_traced_memory()[1] < times * len(content)
    finally:
        tracemalloc.stop()
