"""Workbooks as Excel, pandas and strangers make them: which sheet and row, cells, and limits."""

import datetime
import pathlib
import zipfile

import openpyxl
import pandas as pd
import pytest

from gpt1_keras.labelled_files import open_table, read_rows, spreadsheet, spreadsheet_process

TABLE = [["Nr", "Nachricht", "Kategorie"], [1, "wo ist es?", "Frage"], [2, "danke", "Lob"]]
TITLE = [["Anfragen 2026", None, None]]
NOTES = [["Erstellt von K."], ["Daten auf Blatt 2"]]
COLUMNS = {"text": "Nachricht", "label": "Kategorie"}
WANTED = [("text", "label"), ("premise", "hypothesis", "label")]


@pytest.fixture
def save(tmp_path):
    """Writes a workbook of sheets, each a list of rows by its name; one is hidden if it says so."""

    def save(sheets):
        book = openpyxl.Workbook()
        book.remove(book.active)
        for name, rows in sheets.items():
            sheet = book.create_sheet(name)
            for row in rows:
                sheet.append(row)
            sheet.sheet_state = "hidden" if "hidden" in name else "visible"
        book.save(tmp_path / "a.xlsx")
        return tmp_path / "a.xlsx"

    return save


@pytest.mark.parametrize(
    ("sheets", "sheet", "row"),
    [
        ({"Daten": TABLE}, "Daten", 1),
        ({"Daten": TITLE + TABLE}, "Daten", 2),
        ({"Daten": [[], *TITLE, [], [], *TABLE]}, "Daten", 5),
        ({"Info": NOTES, "Daten": TITLE + TABLE}, "Daten", 2),
        ({"hidden": TABLE, "Daten": TABLE}, "Daten", 1),
        ({"leer": [], "Vorlage": TABLE[:1], "Daten": TABLE}, "Daten", 1),
        ({"Liste": [["Kategorie", "Anzahl"], ["Lob", 2]], "Daten": TABLE}, "Daten", 1),
        # The columns are there, though a title is as wide as the table.
        ({"Daten": [["a", "b", "c"], ["x", None, "y"], *TABLE]}, "Daten", 3),
        ({"Daten": [["Stand", "31.3.", None], *TABLE]}, "Daten", 2),
    ],
)
def test_the_sheet_and_the_row_that_have_the_columns(save, sheets, sheet, row):
    path = save(sheets)
    table = open_table(path, COLUMNS, WANTED)
    expected = pd.read_excel(path, sheet_name=sheet, header=row - 1)
    assert [row["text"] for row in table] == list(expected["Nachricht"]) == ["wo ist es?", "danke"]
    assert [row["label"] for row in table] == list(expected["Kategorie"])
    assert [each.line for each in table] == [row + 1, row + 2]
    told = f"is read from the sheet {sheet!r}" in " ".join(table.notices)
    shown = [name for name in sheets if "hidden" not in name]
    assert told == (row > 1 or len(shown) > 1)
    assert not told or f"whose row {row} names" in " ".join(table.notices)


def test_names_and_content_say_where_the_table_is(save):
    english = [["id", "Comment", "Mood"], [1, "fine", "good"], [2, "dull", "bad"]]
    path = save({"Info": NOTES, "Data": TITLE + english})
    assert [row["Comment"] for row in open_table(path)] == ["fine", "dull"]
    assert [row["text"] for row in open_table(path, None, [("text",)])] == ["fine", "dull"]
    path = save({"Data": [[None, "Comment"], [0, "fine"], [1, "dull"]]})  # pandas' index
    assert [row["Comment"] for row in open_table(path)] == ["fine", "dull"]


def test_an_example_does_not_name_the_columns(save):
    path = save({"Daten": [["Nachricht", "Typ"], ["hallo", "Bild"], ["ja", "Text"]]})
    with pytest.raises(ValueError, match=r"'Nachricht', 'Typ'\]; expected text"):
        open_table(path, None, [("text",)])
    path = save({"Daten": [[None, "Nachricht", "Typ"], [1, "ja", "Text"], [2, "nein", "Text"]]})
    with pytest.raises(ValueError, match="'Nachricht', 'Typ'"):
        open_table(path, None, [("text",)])


def test_other_sheets_with_the_same_columns_are_told(save):
    path = save({"Januar": TABLE, "Februar": TITLE + TABLE[:2], "Info": NOTES})
    table = open_table(path, COLUMNS, WANTED)
    assert len(list(table)) == 2 and "['Februar'], with the same columns" in table.notices[0]
    chosen = open_table(path, COLUMNS, WANTED, sheet="Februar")
    assert len(list(chosen)) == 1 and "whose row 2" in chosen.notices[0]
    path = save({"hidden": TABLE[:2], "Daten": TABLE})
    assert len(read_rows(path, COLUMNS, WANTED, sheet="hidden")) == 1
    path = save({"Daten": [["Nr", "Text", "Label"], *TABLE]})
    assert len(read_rows(path, None, WANTED)) == 3
    assert len(read_rows(path, COLUMNS, WANTED, header_row=2)) == 2


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ({"text": "Text"}, {}, r"'Text'.*'Nachricht'.* row 2 .*'Daten'.*'Info' has \['Erstellt"),
        (None, {}, r"'Nachricht'.* text, label; .* row 2 .*'Daten'.*'Info' has"),
        (COLUMNS, {"sheet": "Info"}, "no column .*'Nachricht'"),
        (COLUMNS, {"sheet": "Blatt"}, r"no sheet 'Blatt'; it has \['Info', 'Daten'\]"),
        (COLUMNS, {"header_row": 1}, "no column .* row 1|no column .*'Erstellt"),
        (COLUMNS, {"header_row": 99}, "no examples"),
    ],
)
def test_what_is_not_found(save, columns, options, message):
    path = save({"Info": NOTES, "Daten": TITLE + TABLE})
    with pytest.raises(ValueError, match=message):
        open_table(path, columns, WANTED, **options)


def test_sheets_of_other_files(tmp_path):
    (tmp_path / "a.csv").write_text("text\na\n")
    (tmp_path / "a.jsonl").write_text('{"text": "a"}')
    for name, options in (("a.csv", {"sheet": "a"}), ("a.jsonl", {"header_row": 2})):
        with pytest.raises(ValueError, match=next(iter(options))):
            open_table(tmp_path / name, **options)


def test_cells_keep_their_types(save):
    day, time = datetime.date(2026, 1, 2), datetime.datetime(2026, 1, 2, 3, 4, 5)
    cells = ["007", 7, 2.5, True, day, time, datetime.time(3, 4), " a ", 10**15]
    path = save({"a": [[f"c{n}" for n in range(9)], cells, [None] * 8 + ["end"]]})
    [(row, found), (_, blank)] = open_table(path).with_cells()
    assert found == [*cells[:6], "03:04:00", " a ", 10**15]
    assert list(map(type, found[:6])) == [str, int, float, bool, type(day), type(time)]
    assert list(row.values())[:6] == ["007", "7", "2.5", "True", "2026-01-02", str(time)]
    assert blank == [None] * 8 + ["end"]


def test_a_workbook_that_pandas_writes(tmp_path):
    """With rows and cells that are blank."""
    path = tmp_path / "a.xlsx"
    frame = pd.DataFrame(
        {"Nachricht": ["schön, ja", "zwei\nZeilen", None], "Kategorie": [1, 2, None]}
    )
    pd.concat([frame, frame[:1]]).to_excel(path, index=False)
    table = open_table(path, COLUMNS, WANTED)
    expected = [("schön, ja", "1"), ("zwei\nZeilen", "2"), ("schön, ja", "1")]
    assert [(row["text"], row["label"]) for row in table] == expected
    assert [row.line for row in table] == [2, 3, 5]
    assert table.notices == [f"{path}: 1 blank row is skipped."]


def test_a_workbook_as_people_have_it(tmp_path):
    """Rows above the names, sheets, a hidden one first, gaps, errors, and a merged cell."""
    book = openpyxl.Workbook()
    book.active.title = "hidden"
    book.active.sheet_state = "hidden"
    sheet = book.create_sheet("Januar")
    book.create_sheet("Februar").append(["text"])
    book.active = 1
    for row in ([], [None, "text", "label", None], [None, "a", 1.0], [None, "b", 2], [None]):
        sheet.append(row)
    sheet["B7"], sheet["C7"] = "=NA()", "#N/A"
    sheet["C7"].data_type = "e"
    sheet["B8"] = "merged"
    sheet.merge_cells("B8:D8")
    sheet["B9"], sheet["C9"] = "c", True
    sheet["B10"] = '=IF(A1 < 2, "x", "y")'  # openpyxl stores no value of it
    path = tmp_path / "a.xlsx"
    book.save(path)
    table = open_table(path)
    found = [(row.line, row["text"], row["label"]) for row in table]
    assert found == [(3, "a", "1"), (4, "b", "2"), (8, "merged", ""), (9, "c", "True")]
    told = " ".join(table.notices)
    assert "is read from the sheet 'Januar' of ['Januar', 'Februar'], whose row 2" in told
    assert "has 1 cell with errors, such as #N/A" in told
    assert "has 2 cells with formulas whose values are not stored" in told


# === Workbooks that would fill the memory ===

MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
PACKAGE = "http://schemas.openxmlformats.org/package/2006/relationships"


def write_workbook(path, cells, strings=(), sheet="worksheets/sheet1", shared="sharedStrings"):
    """Writes the least workbook whose sheet has these cells, and whose parts have these names."""
    parts = {
        "_rels/.rels": f'<Relationships xmlns="{PACKAGE}"><Relationship Id="a" '
        f'Type="{OFFICE}/officeDocument" Target="xl/workbook.xml"/></Relationships>',
        "xl/workbook.xml": f'<workbook xmlns="{MAIN}" xmlns:r="{OFFICE}"><sheets>'
        '<sheet name="S" sheetId="1" r:id="b"/></sheets></workbook>',
        "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{PACKAGE}">'
        f'<Relationship Id="b" Type="{OFFICE}/worksheet" Target="{sheet}.xml"/><Relationship '
        f'Id="c" Type="{OFFICE}/sharedStrings" Target="{shared}.xml"/></Relationships>',
        f"xl/{sheet}.xml": f'<worksheet xmlns="{MAIN}"><sheetData>{cells}</sheetData></worksheet>',
        f"xl/{shared}.xml": f'<sst xmlns="{MAIN}">'
        + "".join(f"<si><t>{text}</t></si>" for text in strings)
        + "</sst>",
    }
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)


def test_the_least_workbook(tmp_path):
    """Its parts may have names of any case, and its cells no reference."""
    path = tmp_path / "a.xlsx"
    cells = '<row><c t="s"><v>0</v></c></row><row><c t="s"><v>1</v></c></row>'
    write_workbook(path, cells, ["text", "schön"], "Worksheets/S", "SharedStrings")
    expected = pd.read_excel(path, engine="calamine")  # openpyxl does not take it
    assert [row["text"] for row in read_rows(path)] == list(expected["text"]) == ["schön"]


@pytest.mark.parametrize("reference", ["XFD1048576", "xfd1048576", "A99999999999", "ZZZZZZ2"])
def test_a_cell_far_away_is_refused(tmp_path, reference):
    """The rectangle around all would end the process."""
    cells = f'<row r="1"><c r="A1"><v>1</v></c><c r="{reference}"><v>1</v></c></row>'
    write_workbook(tmp_path / "a.xlsx", cells)
    with pytest.raises(ValueError, match=r"a\.xlsx takes more than [0-9,]+ bytes of memory"):
        read_rows(tmp_path / "a.xlsx")


@pytest.mark.parametrize("names", [(), ("Worksheets/S", "SharedStrings"), ("a/b", "sharedStrings")])
def test_a_workbook_that_expands_beyond_measure(tmp_path, names):
    write_workbook(
        tmp_path / "a.xlsx",
        "".join('<row><c t="s"><v>0</v></c></row>' for _ in range(1_000)),
        ["x" * 30_000],
        *names,
    )
    with pytest.raises(ValueError, match="has more than [0-9,]+ bytes of text"):
        read_rows(tmp_path / "a.xlsx")


def test_a_workbook_that_takes_too_long(tmp_path, monkeypatch):
    """The library is replaced by a loop without an end."""
    source = pathlib.Path(spreadsheet_process.__file__).read_text()
    endless = tmp_path / "endless.py"
    endless.write_text(source.replace("import python_calamine as calamine", "while True: pass"))
    monkeypatch.setattr(spreadsheet_process, "__file__", str(endless))
    monkeypatch.setattr(spreadsheet, "_SECONDS", 1)
    pd.DataFrame(TABLE).to_excel(tmp_path / "a.xlsx")
    with pytest.raises(ValueError, match=r"a\.xlsx takes more than 1 seconds"):
        read_rows(tmp_path / "a.xlsx")


def test_workbooks_leave_no_process_and_no_file(tmp_path):
    """Rows may be read twice at once, and not to the end."""
    path = tmp_path / "a.xlsx"
    pd.DataFrame(TABLE).to_excel(path, index=False)
    table = open_table(path)
    first, second = iter(table), iter(table)
    assert next(first) == next(second) and next(first) == next(second)
    assert [child.name for child in tmp_path.iterdir()] == ["a.xlsx"]


OLD = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(2_000)  # .xls files and encrypted ones begin so


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda _: b"", "damaged"),
        (lambda _: b"text,label\na,b\n", "damaged"),
        (lambda content: content[:-30], "damaged"),
        (lambda content: b"PK" + content[40:], "damaged"),
        (lambda _: OLD, r"password.* \.xls "),
    ],
)
def test_damaged_workbooks(save, damage, message):
    path = save({"a": TABLE})
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ValueError, match=message):
        read_rows(path)


def test_an_open_document_that_is_called_xlsx(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.xlsx", "w") as archive:
        archive.writestr("mimetype", "application/vnd.oasis.opendocument.spreadsheet")
    with pytest.raises(ValueError, match=r"\.ods"):
        read_rows(tmp_path / "a.xlsx")
