"""Which columns of a table are read: those that are named, or those whose names leave no doubt."""

import pytest

from gpt1_keras.labelled_files import CHOICES, LABEL, columns_of_run, open_table, parse_columns

KINDS = [
    ("text", LABEL),
    ("premise", "hypothesis", LABEL),
    ("text1", "text2", LABEL),
    ("context", "question", CHOICES, LABEL),
    ("context", CHOICES, LABEL),
]


@pytest.fixture
def table(tmp_path):
    """Opens a table of these columns and one row."""

    def table(header, columns=None, wanted=KINDS):
        path = tmp_path / "a.csv"
        path.write_text(f"{header}\n{','.join(name.lower() for name in header.split(','))}\n")
        return open_table(path, parse_columns(columns), wanted)

    return table


@pytest.mark.parametrize(
    ("header", "sources"),
    [
        ("text,label", {}),
        ("label,id,text", {}),
        ("Text,LABEL", {"text": "Text", "label": "LABEL"}),
        ("id,Review,Sentiment", {"text": "Review", "label": "Sentiment"}),
        ("Review Text,label", {"text": "Review Text"}),
        ("text,review,label,rating", {}),  # those of the very names win
        ("Premise,Hypothesis,label", {"premise": "Premise", "hypothesis": "Hypothesis"}),
        ("Text 1,text_2,class", {"text1": "Text 1", "text2": "text_2", "label": "class"}),
        ("article,Question,Choice 1,Choice 2,label",
         {"context": "article", "question": "Question",
          "choice1": "Choice 1", "choice2": "Choice 2"}),
    ],
)  # fmt: skip
def test_an_obvious_set_of_columns_is_taken_and_said(table, header, sources):
    found = table(header)
    assert found.sources == sources
    [row] = found
    assert {*found.fields} <= row.keys()
    for name, column in sources.items():
        value = row[CHOICES][int(name[-1]) - 1] if name.startswith("choice") else row[name]
        assert value == column.lower()
        assert f"{name} from {column!r}" in " ".join(found.notices)
    assert bool(found.notices) == bool(sources)


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ("Kommentar,Urteil", r"\['Kommentar', 'Urteil'\]; expected text, label; or premise, hyp"),
        ("review,comment,label", "has the columns"),  # either may be the text
        ("text,rating,sentiment", "has the columns"),
        ("sentence1,sentence2,label", "has the columns"),  # whether their order matters
        ("good film,1", "has the columns"),  # no line with names
        ("Text,TEXT,label", "has the columns"),
    ],
)
def test_what_leaves_a_doubt_is_refused(table, header, message):
    with pytest.raises(ValueError, match=message) as error:
        table(header)
    assert "--columns text=COLUMN,label=COLUMN" in str(error.value)


def test_columns_that_are_named(table):
    found = table("Kommentar,Urteil,id", "text=Kommentar,label=Urteil")
    assert list(found) == [{"text": "kommentar", "label": "urteil", "id": "id"}]
    assert found.sources == {"text": "Kommentar", "label": "Urteil"} and not found.notices
    [row] = table("a,b,text,class", "premise=a,hypothesis=b,label=class")
    assert row == {"premise": "a", "hypothesis": "b", "text": "text", "label": "class"}


def test_a_column_in_another_s_place_keeps_its_values(table):
    found = table("text,label,label_text", "label=label_text")
    assert list(found) == [{"text": "text", "label (unread)": "label", "label": "label_text"}]
    assert found.sources == {"label (unread)": "label", "label": "label_text"}


def test_named_fields_choose_the_kind(table):
    found = table("text,p,h,label", "premise=p,hypothesis=h")
    assert found.fields == ("premise", "hypothesis", LABEL)
    assert (
        table("sentence1,sentence2,label", "text1=sentence1,text2=sentence2").fields[0] == "text1"
    )
    found = table("c,ending0,ending1,label", "context=c,choice1=ending0,choice2=ending1")
    assert [row[CHOICES] for row in found] == [["ending0", "ending1"]]


def test_columns_of_a_run_are_taken_where_a_file_has_them(tmp_path):
    """Those that the user names come first; a file with other names is read by these."""
    run = tmp_path / "run"
    (run / "best").mkdir(parents=True)
    assert columns_of_run(run) == columns_of_run("gpt1_tiny_books") == {}
    (run / "result.json").write_text('{"columns": "text=Nachricht,label=Kategorie"}')
    usual = columns_of_run(run)
    assert usual == columns_of_run(run / "best") == {"text": "Nachricht", "label": "Kategorie"}
    path = tmp_path / "a.csv"
    for header, given, expected in (
        ("Nachricht,Kategorie", None, "a"),
        ("Nachricht,label", None, "a"),
        ("text,Nachricht", None, "b"),
        ("text,Nachricht", {"text": "text"}, "a"),
        ("text,label", None, "a"),
    ):
        path.write_text(f"{header}\na,b\n")
        table = open_table(path, given, [("text",)], usual=usual)
        assert [row["text"] for row in table] == [expected]
        is_told = "text from 'Nachricht'" in " ".join(table.notices)
        assert is_told == (table.sources.get("text") == "Nachricht")
    path.write_text("Text,Urteil\na,b\n")
    with pytest.raises(ValueError, match="Urteil"):
        open_table(path, None, [("text", LABEL)], usual=usual)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ("text=Coment", r"has no column \['Coment'\]; it has \['Comment', 'label'\]"),
        ("txt=Comment", r"has nothing to be named \['txt'\]; expected of"),
        ("text", "must be NAME=COLUMN"),
        ("text=", "must be NAME=COLUMN"),
        ("text=a,text=b", "must be NAME=COLUMN"),
        ("text=a,label=a", "must be NAME=COLUMN"),
    ],
)
def test_arguments_that_are_refused(table, columns, message):
    with pytest.raises(ValueError, match=message):
        table("Comment,label", columns)


def test_arguments():
    assert parse_columns("text=Comment, free,label=What = it") == {
        "text": "Comment, free",
        "label": "What = it",
    }
    assert parse_columns(None) == {}
