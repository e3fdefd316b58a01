"""CSV and TSV files as spreadsheets and programs write them: separators, quotes and encodings."""

import csv
import io

import pandas as pd
import pytest

from gpt1_keras.labelled_files import open_table, read_rows

TEXTS = ["Schöne, gute; Sache", 'zwei\nZeilen "zitiert"', "a|b\tc", '"', "ende, ja"]
LABELS = ["gut", "mäßig", "gut", "schlecht", "gut"]
FRAME = pd.DataFrame({"text": TEXTS, "label": LABELS})


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
    assert values(write("a.csv", file.getvalue())) == TEXTS


def test_a_tsv_without_quotes_keeps_its_quotation_marks(write):
    texts = ['"Wonderful!"', 'he said "no"', '"', '"Good" it was', '""']
    content = "text\tlabel\n" + "".join(f"{text}\t1\n" for text in texts)
    assert values(write("a.tsv", content)) == texts
    assert values(write("a.tsv", 'text\tlabel\n"\t0\na "b" \'c\t1\n')) == ['"', 'a "b" \'c']


def test_quotation_marks_in_csv(write):
    path = write("a.csv", 'text,label\n"""Good"" it was",1\na "b" c,0\n')
    assert values(path) == ['"Good" it was', 'a "b" c']


@pytest.mark.parametrize("name", ["a.csv", "a.tsv"])
def test_what_excel_adds(write, name):
    """A first line that names the separator, columns without a name, and blank rows."""
    content = (
        "sep=;\r\n\r\nKommentar;Note;;\r\nschön;1;;\r\n;;;\r\n"
        '"zwei\r\nZeilen";2,5;;\r\nkurz;3\r\n\r\n;;;\r\n'
    )
    table = open_table(write(name, content, "utf-8-sig"))
    assert [dict(row) for row in table] == [
        {"Kommentar": "schön", "Note": "1"},
        {"Kommentar": "zwei\r\nZeilen", "Note": "2,5"},
        {"Kommentar": "kurz", "Note": "3"},
    ]
    assert [row.line for row in table] == [4, 7, 8]
    assert table.notices[-1].endswith("a" + name[1:] + ": 3 blank rows are skipped.")


def test_a_column_without_a_name_is_called_by_its_number(write):
    table = open_table(write("a.csv", ",text\n0,a\n1,b\n"))  # the index that pandas writes
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
    assert values(write("a.csv", content)) == texts


def test_names_decide_where_two_separators_fit(write):
    assert values(write("a.csv", "text;label, if any\na;b, c\n")) == ["a"]
    path = write("a.csv", "Meinung;Wert, ganz\na;b, c\n")
    assert [dict(row) for row in open_table(path, {"text": "Meinung"}, [("text",)])] == [
        {"text": "a", "Wert, ganz": "b, c"}
    ]


NAMES = {"text": "Nachricht", "label": "Kategorie"}
WANTED = [("text", "label"), ("premise", "hypothesis", "label")]
TABLE = "Nr;Nachricht;Kategorie\n1;wo, ist es?;Frage\n2;danke;Lob\n"
TITLES = (
    "Anfragen 2026\n",
    "Anfragen 2026;;\n",
    "Anfragen Jan, Feb, März\n",
    "Anfragen Jan, Feb; Stand 31.3.\n",
    "Stand;31.3.;\n",
    "Anfragen 2026\nErstellt von K.\n\n",
)


@pytest.mark.parametrize("separator", [",", ";", "\t"])
@pytest.mark.parametrize("title", [*TITLES, "a;b;c\nx;;y\n"])
@pytest.mark.parametrize("asked", ["columns", "usual", "header_row"])
def test_columns_that_are_named_below_titles(write, title, separator, asked):
    """By what the user or an earlier run says."""
    table = pd.read_csv(io.StringIO(TABLE), sep=";").to_csv(sep=separator, index=False)
    path = write("a.csv", title.replace(";", separator) + table)
    line = title.count("\n") + 1
    options = {"header_row": {"columns": NAMES, "header_row": line}}.get(asked, {asked: NAMES})
    read = open_table(path, wanted=WANTED, **options)
    expected = pd.read_csv(path, sep=separator, skiprows=line - 1)
    assert [row["text"] for row in read] == list(expected["Nachricht"]) == ["wo, ist es?", "danke"]
    assert [row["label"] for row in read] == list(expected["Kategorie"])
    assert [row.line for row in read] == [line + 1, line + 2]
    told = f"columns that line {line} names; what stands above is not read" in " ".join(
        read.notices
    )
    assert told == (asked != "header_row")


@pytest.mark.parametrize("title", TITLES)
def test_names_say_which_line_names_the_columns(write, title):
    english = "id;Comment;Rating\n1;fine;good\n2;dull;bad\n"
    path = write("a.csv", title + english)
    line = title.count("\n") + 1
    assert [row["text"] for row in open_table(path, None, WANTED)] == ["fine", "dull"]
    path = write("a.csv", title + TABLE)  # whose names do not say what they hold
    with pytest.raises(ValueError, match=f"'Nachricht'.*line {line}.*--header-row"):
        open_table(path, None, WANTED)


def test_a_title_with_empty_cells_is_seen_by_itself(write):
    path = write("a.csv", "sep=;\nAnfragen;;\n" + TABLE)
    assert [row["Nachricht"] for row in open_table(path)] == ["wo, ist es?", "danke"]
    path = write("a.csv", "Kommentar\nja, gut\nnein, schlecht\n")  # one column, or a title?
    with pytest.raises(ValueError, match="lines 2, 3"):
        read_rows(path)


def test_an_example_does_not_name_the_columns(write):
    path = write("a.csv", "Nachricht;Typ\nhallo;Bild\nja;Text\nnein;Text\n")
    with pytest.raises(ValueError, match=r"'Nachricht', 'Typ'\]; expected text"):
        open_table(path, None, [("text",)])
    # Nor does a line like the first, after damaged ones.
    path = write("a.csv", "text,label\na,b\nc\nd,e,f\ntext,label\ng,h\n")
    with pytest.raises(ValueError, match="lines 3, 4"):
        read_rows(path, None, WANTED)


def test_a_file_in_windows_1252(write):
    path = write("a.csv", b"text\nok\nna\xefve\n")
    table = open_table(path)
    assert [row["text"] for row in table] == ["ok", "naïve"]
    assert table.notices == [f"{path} is not UTF-8, but Windows-1252: line 3 is 'naïve'."]


@pytest.mark.parametrize("encoding", ["utf-16", "cp1252"])
def test_compressed_files_in_other_encodings(write, encoding):
    path = write("a.csv.gz", "text;label\r\nschön;gut\r\n", encoding)
    assert read_rows(path) == [{"text": "schön", "label": "gut"}]
