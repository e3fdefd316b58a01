"""CSV and TSV files as spreadsheets and programs write them: separators, quotes and encodings."""

import csv
import gzip
import io

import pandas as pd
import pytest

from gpt1_keras.labelled_files import open_table, read_rows

TEXTS = ["Schöne, gute; Sache", 'zwei\nZeilen "zitiert"', "a|b\tc", '"', "ende, ja"]
LABELS = ["gut", "mäßig", "gut", "schlecht", "gut"]
FRAME = pd.DataFrame({"text": TEXTS, "label": LABELS})


@pytest.fixture
def write(tmp_path):
    def write(content, name="a.csv", encoding="utf-8"):
        (tmp_path / name).write_bytes(content.encode(encoding))
        return tmp_path / name

    return write


def values(path, column="text"):
    return [row[column] for row in read_rows(path)]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
@pytest.mark.parametrize("name", ["a.csv", "a.tsv"])
def test_what_pandas_writes(tmp_path, name, separator, encoding):
    path = tmp_path / name
    FRAME.to_csv(path, sep=separator, encoding=encoding, index=False)
    found = open_table(path)
    again = pd.read_csv(path, sep=separator, encoding=encoding)
    assert [row["text"] for row in found] == TEXTS == again.text.tolist()
    assert [row["label"] for row in found] == LABELS == again.label.tolist()
    told = " ".join(found.notices)
    assert ("Windows-1252" in told) == (encoding == "cp1252")
    assert ("separated by" in told) == (separator != {"a.csv": ",", "a.tsv": "\t"}[name])


@pytest.mark.parametrize("quoting", [csv.QUOTE_ALL, csv.QUOTE_MINIMAL, csv.QUOTE_NONNUMERIC])
@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_what_csv_writes(write, separator, quoting):
    file = io.StringIO(newline="")
    writer = csv.writer(file, delimiter=separator, quoting=quoting)
    writer.writerows([("text", "label"), *zip(TEXTS, LABELS)])
    assert values(write(file.getvalue())) == TEXTS


def test_a_tsv_without_quotes_keeps_its_quotation_marks(write):
    texts = ['"Wonderful!"', 'he said "no"', '"', '"Good" it was', '""']
    content = "text\tlabel\n" + "".join(f"{text}\t1\n" for text in texts)
    assert values(write(content, "a.tsv")) == texts


@pytest.mark.parametrize("name", ["a.csv", "a.tsv"])
def test_what_excel_adds(write, name):
    """A first line that names the separator, columns without a name, and blank rows."""
    content = (
        "sep=;\r\n\r\nKommentar;Note;;\r\nschön;1;;\r\n;;;\r\n"
        '"zwei\r\nZeilen";2,5;;\r\nkurz;3\r\n\r\n;;;\r\n'
    )
    table = open_table(write(content, name, "utf-8-sig"))
    assert [dict(row) for row in table] == [
        {"Kommentar": "schön", "Note": "1"},
        {"Kommentar": "zwei\r\nZeilen", "Note": "2,5"},
        {"Kommentar": "kurz", "Note": "3"},
    ]
    assert [row.line for row in table] == [4, 7, 8]
    assert table.notices[-1].endswith("a" + name[1:] + ": 3 blank rows are skipped.")


def test_a_column_without_a_name_is_called_by_its_number(write):
    table = open_table(write(",text\n0,a\n1,b\n"))  # the index that pandas writes
    assert [dict(row) for row in table] == [
        {"column 1": "0", "text": "a"},
        {"column 1": "1", "text": "b"},
    ]
    assert table.sources == {"column 1": ""}


@pytest.mark.parametrize(
    ("content", "texts"),
    [
        ("text\nGood, isn't it?\nfine\na; b, c\n", ["Good, isn't it?", "fine", "a; b, c"]),
        ('text\n"Good, isn\'t it?"\nfine\n', ["Good, isn't it?", "fine"]),
        ("text\na; b\nc|d\n", ["a; b", "c|d"]),
    ],
)
def test_one_column_of_texts_with_separators(write, content, texts):
    assert values(write(content)) == texts


@pytest.mark.parametrize(
    ("content", "message"),
    [
        # No line of the one column is without a comma: a table whose columns have no names.
        ("text\ngood film,1\nbad film,0\n", "lines 2, 3: has another number of columns than the 1"),
        # Both commas and semicolons split each line in two.
        ("name;remark, if any\na;b, c\n", "columns separated by commas or by semicolons"),
        ("text,label\n" + "a\n" * 14, "lines 2, 3, 4, 5, 6, 7, 8, 9, 10, 11: has another number of "
         "columns than the 2 that the first line names; and 4 more such lines"),
        ('text,label\na\n"b"c,d\ne,f\n', "line 2: has another .*; line 3: ',' expected after '\"'"),
        ('"text"x,label\na,b\n', "line 1: "),
    ],
)  # fmt: skip
def test_what_is_refused(write, content, message):
    with pytest.raises(ValueError, match=message):
        read_rows(write(content))


def test_names_decide_where_two_separators_fit(write):
    assert values(write("text;label, if any\na;b, c\n")) == ["a"]
    path = write("Meinung;Wert, ganz\na;b, c\n")
    assert [dict(row) for row in open_table(path, {"text": "Meinung"}, [("text",)])] == [
        {"text": "a", "Wert, ganz": "b, c"}
    ]


def test_bad_rows_follow_the_last_good_one(write):
    """A table stops at the first bad row, and tells of all."""
    rows = iter(open_table(write("text,label\na,b\nc\nd,e\nf\n")))
    assert next(rows) == {"text": "a", "label": "b"}
    with pytest.raises(ValueError, match="lines 3, 5: has another number"):
        next(rows)


def test_a_damaged_byte_does_not_make_the_file_windows_1252(write, tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes("text\nschön\ngrün\n".encode() + b"na\xefve\n")
    with pytest.raises(ValueError, match="a.csv is not UTF-8: line 4 is damaged"):
        read_rows(path)
    path.write_bytes(b"text\nok\nna\xefve\n")
    table = open_table(path)
    assert [row["text"] for row in table] == ["ok", "naïve"]
    assert table.notices == [f"{path} is not UTF-8, but Windows-1252: line 3 is 'naïve'."]


@pytest.mark.parametrize(
    ("text", "encoding"),
    [("привет", "cp1251"), ("γεια", "cp1253"), ("日本語", "shift-jis"), ("中文", "gbk")],
)
def test_other_encodings_are_not_taken_for_windows_1252(write, text, encoding):
    path = write(f"text,label\n{text},1\n", encoding=encoding)
    with pytest.raises(ValueError, match="a.csv is (damaged, or )?not UTF-8"):
        read_rows(path)


@pytest.mark.parametrize("encoding", ["utf-16", "cp1252"])
def test_compressed_files_in_other_encodings(tmp_path, encoding):
    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress("text;label\r\nschön;gut\r\n".encode(encoding)))
    assert read_rows(path) == [{"text": "schön", "label": "gut"}]
