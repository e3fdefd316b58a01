"""Answers as a workbook, read back by openpyxl, pandas and ourselves."""

import datetime

import openpyxl
import pandas as pd
import pytest

from gpt1_keras.labelled_files import open_table
from serving.prediction import answers_file as writers
from serving.prediction.answers_file import Layout, answers_file, check_fits
from serving.prediction.input_files import InputFiles

LINKS = ["http://x", '=HYPERLINK("http://x","y")']
FORMULAS = [*LINKS, "=1+1", "+1", "-1", "@SUM(A1)", "{=1}", "\t=1"]
ESCAPED = ["a\x01b", "_x0041_", "a\r\nb", "\r", "\x1f", "\ufffe"]  # as Excel writes them
TEXTS = [*FORMULAS, "007", " a ", "zwei\nZeilen", "ä🙂", "\x7f\x85\u2028\ufeff", "x" * 32_767]


@pytest.fixture
def write(tmp_path):
    """Writes rows as a workbook; returns its path."""

    def write(rows, name="a.xlsx"):
        path = tmp_path / name
        layout = Layout([f"c{n}" for n in range(len(rows[0]))], [{str}] * len(rows[0]), [], "")
        with answers_file(path, layout) as add:
            for row in rows:
                add([row])
        return path

    return write


def test_texts_come_back_as_texts(write):
    path = write([[text, "end"] for text in TEXTS])
    sheet = openpyxl.load_workbook(path).active
    cells = [row[0] for row in sheet.iter_rows(min_row=2)]
    assert [cell.value for cell in cells] == TEXTS
    assert {cell.data_type for cell in cells} == {"s"} and not any(c.hyperlink for c in cells)
    frame = pd.read_excel(path, dtype=str, keep_default_na=False, engine="openpyxl")
    assert list(frame["c0"]) == TEXTS
    assert [row["c0"] for row in open_table(path)] == TEXTS


def test_characters_that_xml_does_not_have(write):
    """Excel and python-calamine undo their escapes, but for what is no character."""
    path = write([[text, "end"] for text in ESCAPED])
    found = pd.read_excel(path, dtype=str, engine="calamine")["c0"]
    assert list(found) == [*ESCAPED[:-1], "_xFFFE_"]
    assert [row["c0"] for row in open_table(path)] == list(found)


def test_values_keep_their_types(write, tmp_path):
    day, time = datetime.date(2026, 1, 2), datetime.datetime(2026, 1, 2, 3, 4, 5)
    cells = [7, -0.25, True, False, day, time]
    path = write([cells, [None] * 5 + ["end"]])
    assert [each for _, each in open_table(path).with_cells()] == [cells, [None] * 5 + ["end"]]
    sheet = openpyxl.load_workbook(path).active
    assert [cell.data_type for cell in sheet[2]] == [*"nnbbdd"]
    # From a workbook to a workbook, and to a .csv that programs read.
    files = InputFiles([path], {}, ["c5"]).survey().files
    [[(_, found), _]] = map(list, files.rows(files.shards()))
    again = write([found])
    assert [cell.value for cell in openpyxl.load_workbook(again).active[2]][:4] == cells[:4]
    assert (
        write([found], "a.csv").read_text().splitlines()[1]
        == "7,-0.25,true,false,2026-01-02,2026-01-02 03:04:05"
    )


def test_columns_are_as_wide_as_their_values(write):
    """Excel shows a date that does not fit as ########; and a long text should not fill it."""
    day, time = datetime.date(2026, 1, 2), datetime.datetime(2026, 1, 2, 3, 4, 5)
    sheet = openpyxl.load_workbook(write([[day, time, 1 / 3, "x" * 500, "ab"]])).active
    widths = [sheet.column_dimensions[letter].width for letter in "ABCDE"]
    assert widths[0] > 10 and widths[1] > 19 and 8 <= widths[2] < 15
    assert 40 < widths[3] < 50 and widths[4] < 8


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        ([1, "a"], '[1, "a"]'),
        ({"a": None}, '{"a": null}'),
        (10**15, "1000000000000000"),  # of which Excel would show 15 digits
        (float("inf"), "inf"),
        (datetime.date(1850, 1, 1), "1850-01-01"),
        (datetime.datetime(2026, 1, 2, 3, 4, 5, 6), "2026-01-02 03:04:05.000006"),
        (datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC), "2026-01-02 00:00:00+00:00"),
        (datetime.time(3, 4), "03:04:00"),
        (float("nan"), None),
        ("", None),
    ],
)
def test_what_excel_does_not_have_is_text_or_empty(write, cell, text):
    assert openpyxl.load_workbook(write([[cell, "end"]])).active["A2"].value == text


def test_what_does_not_fit_is_refused(write, monkeypatch, tmp_path):
    """And never cut."""
    with pytest.raises(ValueError, match="'c1' of row 3.* 32,767"):
        write([["a", "b"], ["a", "x" * 32_768]])
    with pytest.raises(ValueError, match="40,000"):  # Excel counts in UTF-16
        write([["🙂" * 20_000]])
    monkeypatch.setattr(writers, "_MOST_ROWS", 3)
    write([["a"], ["b"]])
    with pytest.raises(ValueError, match="4 rows"):
        write([["a"], ["b"], ["c"]])
    layout = Layout(["a"], [{str}], [], "")
    for rows, longest, message in ((3, 0, "4 rows"), (1, 40_000, "40,000 .* line 7")):
        with pytest.raises(ValueError, match=message):
            check_fits(tmp_path / "a.xlsx", layout, rows, longest, "new.csv, line 7")
        check_fits(tmp_path / "a.csv", layout, rows, longest)
