"""Answers as a page: what Python's own parser of HTML finds there, whatever strangers wrote."""

import base64
import hashlib
import html.parser
import json
import pathlib
import re
import shutil

import pytest

from gpt1_keras.answers import Engine
from gpt1_keras.examples import Examples
from serving.prediction import answers_page as pages
from serving.prediction.answers_file import Layout, check_output
from serving.prediction.answers_page import AnswersPage, check_rows
from serving.prediction.input_files import InputFiles
from serving.prediction.predict_rows import predict

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "google-chrome"))), "")
SCRIPT = "<script>document.title = 'run'</script>"
HOSTILE = [
    SCRIPT,
    "<img src=x onerror='document.title = 1'>",
    "</p></td></tr></table></main><h1>moved</h1>",
    "\"'><svg onload=alert(1)>",
    "&lt;b&gt; &amp; &#60;",
    "<!-- --> ]]> $rows ${title} </style></script>",
    "\u202ereversed\u202c \x01 déjà 日本 😀",
]


class Document(html.parser.HTMLParser):
    """What is in a document: tags, attributes, texts of elements, and cells of rows."""

    VOID = ("meta", "link", "br", "img", "input")

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.rows, self.texts, self.open = [], [], [], {}, []
        self.marks = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag in self.VOID:
            return
        self.open.append(tag)
        if tag == "tr":
            self.rows.append((dict(attrs), []))
        if tag in ("td", "th"):
            self.rows[-1][1].append("")
        if tag == "mark":
            self.marks.append([dict(attrs), ""])

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] in ("script", "style", "title", "h1", "option"):
            self.texts.setdefault(self.open[-1], []).append(data)
        if {"td", "th"} & set(self.open):
            self.rows[-1][1][-1] += data
        if "mark" in self.open:
            self.marks[-1][1] += data


def document(texts, answers, source="new.csv", **options):
    page = AnswersPage(pathlib.Path("why.html"), **options)
    examples = Examples(texts, indices=range(2, 2 + len(answers)), source=source)
    page.add(examples, answers)
    return page.document()


def answer(label, score, **more):
    return {"label": label, "score": score, "scores": {label: score, "b": 1 - score}, **more}


def explained(text, *words):
    """The words of an answer, each with its share, at the bytes where it stands."""
    content = text.encode()
    starts = [content.index(word.encode()) for word, _ in words]
    return {
        "words": [word for word, _ in words],
        "word_fields": ["text"] * len(words),
        "word_shares": [share for _, share in words],
        "word_starts": starts,
        "word_ends": [start + len(w.encode()) for start, (w, _) in zip(starts, words)],
    }


def test_what_strangers_wrote_is_text():
    """In texts, words, names of classes, of fields and of files, and in reasons."""
    answers = [answer(text, 0.7, **explained(text, (text[:4], 1.0))) for text in HOSTILE]
    answers[-1] = {"problem": SCRIPT}
    name = f"{SCRIPT}.csv".replace("/", ":")
    text = document({"<b>x</b>": HOSTILE, "text": HOSTILE}, answers, name, has_files=True)
    found = Document(text)
    plain = Document(document({"text": ["a"]}, [answer("a", 0.7)]))
    own = {"h3", "mark", "label", "select", "option"}
    assert set(found.tags) - set(plain.tags) == own
    assert [found.tags.count(each) for each in ("script", "style", "h1", "table")] == [1] * 4
    assert not [key for key, _ in found.attributes if key.startswith("on") or key == "style"]
    assert {key for key, _ in found.attributes} & {"href", "src", "action", "srcset"} == set()
    assert "http" not in re.sub("http-equiv", "", text)
    rows = found.rows[1:]
    for written, (attributes, cells) in zip(HOSTILE, rows):
        assert cells[1].count(written) == 2 and name in cells[0]
        assert json.loads(attributes["data-labels"]) in ([written], [])
    assert SCRIPT in rows[-1][1][2]
    assert found.texts["title"] == found.texts["h1"] == [f"Answers to {name}"]


def test_only_the_page_s_own_style_and_script_may_run():
    found = Document(document({"text": ["a"]}, [answer("a", 0.7)]))
    [policy] = [value for _, value in found.attributes if value and "default-src" in value]
    rules = dict(each.strip().split(" ", 1) for each in policy.split(";"))
    assert rules["default-src"] == "'none'"
    for kind in ("script", "style"):
        [content] = found.texts[kind]
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert rules[f"{kind}-src"] == f"'sha256-{digest}'"


def test_words_stand_where_they_stand():
    """Offsets are bytes; the deepest colour has the largest share; a small share has none."""
    text = "café: not good, not bad"
    words = explained(text, ("café", 0.001), ("good", 4.0), ("bad", -1.0))
    found = Document(document({"text": [text]}, [answer("a", 0.7, **words)]))
    assert found.rows[1][1][1] == text
    shown = [(mark["class"], mark["title"], word) for mark, word in found.marks[2:]]  # the legend
    assert shown == [("for s9", "+4.000", "good"), ("against s4", "-1.000", "bad")]


def test_answers_counts_and_filters():
    answers = [
        answer("a", 0.97, is_sure=True),
        answer("c", 0.6, is_sure=False),
        answer("a", 0.999, is_sure=True, truncated=True),
        {"problem": "text is blank"},
    ]
    text = document({"text": ["one", "two", "three", ""]}, answers)
    found = Document(text)
    assert "4 texts · a 2 · c 1 · 1 unsure · 1 without an answer" in text
    options = ["all (4)", "a (2)", "c (1)", "all (4)", "sure (2)", "unsure (1)"]
    assert found.texts["option"] == options
    cells = [[cell.replace("\xa0", " ") for cell in cells] for _, cells in found.rows]
    assert cells[0] == ["Row", "Text", "Answer", "Score"]
    assert cells[1] == ["2", "one", "a", " 97 % sure"]
    assert cells[2] == ["3", "two", "cor b 40 %", " 60 % unsure"]
    assert cells[3][1:] == ["threeThe model has read only a part of this.", "a", " over 99 % sure"]
    assert cells[4] == ["5", "", "no answer: text is blank", ""]
    assert [row.get("data-sure") for row, _ in found.rows[1:]] == ["true", "false", "true", None]
    assert 'class="against' not in text  # nothing is explained, and no legend is shown


def test_other_kinds_of_answers():
    """Several labels, choices and scores."""
    both = {"labels": ["a", "b"], "scores": {"a": 0.9, "b": 0.6, "c": 0.1}}
    none = {"labels": [], "scores": {"a": 0.2, "b": 0.1, "c": 0.1}}
    found = Document(document({"text": ["x", "y"]}, [both, none]))
    assert found.rows[1][1][2] == "a, b" and "60" in found.rows[1][1][3]
    assert found.rows[2][1][2].startswith("none of the classes")
    assert found.texts["option"] == ["all (2)", "a (1)", "b (1)"]

    choice = {"label": "rain", "choice": 1, "score": 0.75, "scores": [0.25, 0.75]}
    texts = {"context": ["grey"], "choices": [["sun", "rain"]]}
    found = Document(document(texts, [choice | {"words": [], "word_fields": []} | explained("")]))
    assert found.rows[1][1][1] == "contextgreychoices, 1sunchoices, 2: the answerrain"
    assert found.rows[1][1][2] == "rain" and "option" not in found.texts

    found = Document(document({"text1": ["a"], "text2": ["b"]}, [{"score": 3.25}]))
    assert [cells for _, cells in found.rows] == [
        ["Row", "Text", "Answer"],
        ["2", "text1atext2b", "3.25"],
    ]


def test_a_page_is_bounded(tmp_path, monkeypatch):
    path = tmp_path / "why.html"
    check_rows(path, pages.MOST_ROWS)
    with pytest.raises(ValueError, match="2,001 rows.*2,000"):
        check_rows(path, pages.MOST_ROWS + 1)
    monkeypatch.setattr(pages, "_MOST_CHARACTERS", 1000)
    with pytest.raises(ValueError, match="1,000 characters.*line 3"):
        document({"text": ["a", "<" * 500]}, [answer("a", 0.7)] * 2)
    with pytest.raises(ValueError, match="--runner"):
        check_output(path, is_folder=True)
    assert list(tmp_path.iterdir()) == []


def test_a_page_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    source, output = tmp_path / "new.csv", tmp_path / "why.html"
    source.write_text("id,Comment\n7,good\n8,bad\n", encoding="utf-8")
    names = ["bad", "good"]

    def run(examples):
        texts = examples.texts["text"].tolist()
        scores = [[float(name == text) for name in names] for text in texts]
        words = {"words": [[each] for each in texts], "num_words": [1] * len(texts)}
        places = {"word_starts": [[0]] * len(texts), "word_ends": [[len(t)] for t in texts]}
        shares = {"word_shares": [[1.0]] * len(texts), "word_fields": [["text"]] * len(texts)}
        return {"label": texts, "scores": scores, **words, **places, **shares}

    outputs = ["label", "scores", "words", "word_shares", "word_starts", "word_ends"]
    engine = Engine(["text"], names, outputs, run)
    assert engine.columns == ["label", "score", "score_bad", "score_good", "words", "word_shares"]
    files = InputFiles([source], {"columns": {"text": "Comment"}}, ["text"]).survey().files

    def answer_all():
        return predict(engine, files, Layout([], [], [], ""), output, 2)

    assert answer_all().rows == 2
    before = output.read_bytes()
    found = Document(before.decode())
    assert [cells[:3] for _, cells in found.rows[1:]] == [
        ["2", "good", "good"],
        ["3", "bad", "bad"],
    ]
    assert [word for _, word in found.marks[2:]] == ["good", "bad"]
    monkeypatch.setattr(pages, "MOST_ROWS", 1)
    with pytest.raises(ValueError, match="2 rows"):
        answer_all()
    assert output.read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new.csv", "why.html"]


@pytest.mark.slow
@pytest.mark.skipif(not CHROMIUM, reason="Chromium is not installed on this machine")
def test_the_page_in_a_browser(tmp_path):
    """Nothing of strangers runs; rows are chosen and sorted."""
    from playwright.sync_api import sync_playwright

    scores = [0.9, 0.5, 0.7]
    answers = [answer("c", score, is_sure=score > 0.6) for score in scores]
    answers[2]["label"] = SCRIPT
    path = tmp_path / "why.html"
    path.write_text(document({"text": HOSTILE[:3]}, answers), encoding="utf-8")
    faults = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM)
        page = browser.new_page()
        for event in ("pageerror", "console", "dialog"):
            page.on(event, lambda what: faults.append(str(what)))
        page.goto(path.as_uri())
        assert page.title() == "Answers to new.csv"
        places = page.locator("tbody th:visible")
        page.get_by_role("button", name="Score").click()
        assert places.all_inner_texts() == ["3", "4", "2"]
        page.get_by_role("button", name="Score").click()
        assert places.all_inner_texts() == ["2", "4", "3"]
        page.get_by_label("Answer").select_option(label=f"{SCRIPT} (1)")
        assert places.all_inner_texts() == ["4"]
        page.get_by_label("Answer").select_option("")
        page.get_by_label("How sure").select_option("false")
        assert places.all_inner_texts() == ["3"]
        browser.close()
    assert faults == []
