"""Users' own files of labelled texts, in three formats."""

import pathlib
import unicodedata

import pytest

from gpt1_keras.labelled_files import CHOICES, LABEL, is_blank, open_table, read_rows


@pytest.fixture
def write(tmp_path):
    """Writes a file, and returns its path."""

    def write(name, content):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


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


def test_quotation_marks_are_text_in_tsv(write):
    path = write("a.tsv", 'text\tlabel\n"Good" it was\t1\n"\t0\na "b" \'c\t1\n')
    assert [row["text"] for row in read_rows(path)] == ['"Good" it was', '"', 'a "b" \'c']


def test_quotation_marks_in_csv(write):
    path = write("a.csv", 'text,label\n"""Good"" it was",1\na "b" c,0\n')
    assert [row["text"] for row in read_rows(path)] == ['"Good" it was', 'a "b" c']


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", "text,label\nä,b\n"),
        ("a.tsv", "text\tlabel\nä\tb\n"),
        ("a.jsonl", '{"text": "ä", "label": "b"}\n'),
    ],
)
def test_a_byte_order_mark_is_not_part_of_the_text(write, name, content, line_end):
    content = "\ufeff" + content.replace("\n", line_end)
    assert read_rows(write(name, content)) == [{"text": "ä", "label": "b"}]


def test_columns_of_choices(write):
    """However many there are, in their order, without the empty ones at the end."""
    path = write("a.csv", "context,choice1,choice2,choice3,label\nc,x,y,z,2\nd,v,,,0\ne,,,,0\n")
    assert read_rows(path) == [
        {"context": "c", CHOICES: ["x", "y", "z"], "label": "2"},
        {"context": "d", CHOICES: ["v"], "label": "0"},
        {"context": "e", CHOICES: [], "label": "0"},
    ]


def test_columns_with_similar_names_are_not_choices(write):
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


def test_a_path_as_text(write):
    path = write("a.csv", "text\na\n")
    assert read_rows(str(path)) == read_rows(path) == [{"text": "a"}]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", "", r"ends in .csv, .tsv, .jsonl, .parquet or .xlsx, or .* Received: .*a\.txt"),
        ("a.csv", "", "a.csv has no examples"),
        ("a.csv", "text,label\n", "a.csv has no examples"),
        ("a.jsonl", "\n \n", "a.jsonl has no examples"),
        ("a.csv", "text,label\na,b\nc\n", "line 3: has another number of columns than the 2"),
        ("a.tsv", "text\tlabel\na\tb\tc\n", "line 2: has another number of columns than the 2"),
        ("a.csv", 'text,label\n"a,b\n', r"line \d: unexpected end of data"),
        ("a.csv", 'text,label\n"a"b,c\n', r"line 2: ',' expected after '\"'"),
        ("a.jsonl", '{"text": "a", "label": 1}\n{oops\n', "line 2: is not JSON"),
        ("a.jsonl", "[1]\n", r"line 1: must be an object. Received: \[1\]"),
        ("a.jsonl", '{"text": "a", "label": 1}\n\n{"text": "a"}\n',
         r"line 3: has the columns \['text'\]; the first example has \['label', 'text'\]"),
        ("a.csv", "text,label\nfor \x81,b\n".encode("latin-1"), r"a\.csv is damaged, or not UTF-8"),
        ("a.csv", "text,label\näöü,b\nä".encode() + b"\xe4", r"a\.csv is not UTF-8: line 3 is dam"),
    ],
)  # fmt: skip
def test_damaged_files(write, name, content, message):
    with pytest.raises(ValueError, match=message):
        read_rows(write(name, content))


def test_thousands_of_columns(write):
    """Their cost is not their square, which was half a minute for 20,000."""
    names = [f"n{number}" for number in range(20_000)]
    [row] = read_rows(write("a.csv", ",".join(names) + "\n" + "," * 19_999 + "x" + "\n"))
    assert list(row) == names


def test_a_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"The file .*none\.csv does not exist"):
        read_rows(pathlib.Path(tmp_path, "none.csv"))


@pytest.mark.parametrize(
    "alike",
    [
        ("yes", " yes ", "yes\u200b", "\ufeffyes", "y\u2060es", "yes\u00a0"),
        ("caf\u00e9", "cafe\u0301"),
        ("very good", "very\u00a0good", "very  good"),
        ("1", "1.0", "1.00"),
        ("-2", "-2.0"),
    ],
)
def test_labels_that_look_alike_are_one(write, alike):
    path = write("a.csv", "text,label\n" + "".join(f"a,{label}\n" for label in alike))
    assert {row[LABEL] for row in read_rows(path)} == {alike[0]}


def test_labels_that_differ_stay_apart(write):
    labels = ["yes", "Yes", "1", "01", "1.5", "1.05", "v1.0", "n\u200do"]
    path = write("a.csv", "text,label\n" + "".join(f"a,{label}\n" for label in labels))
    assert [row[LABEL] for row in read_rows(path)] == labels


def test_blank_texts_are_those_without_a_token(tiny_tokenizer):
    """Every character that the tokenizer drops, and a few that it keeps because it is older."""
    characters = [chr(code) for code in (*range(0x3100), *range(0xF800, 0x10000))]
    counts = tiny_tokenizer(characters).row_lengths().numpy()
    dropped = {each for each, count in zip(characters, counts) if not count}
    blank = set(filter(is_blank, characters))
    assert dropped - blank == {"\u1734"}  # a mark that Unicode has reclassified since
    assert {unicodedata.category(each) for each in blank - dropped} <= {"Mn", "Cf"}
    assert is_blank("") and is_blank("\ue000 \u0301") and not is_blank("\u0301e")
