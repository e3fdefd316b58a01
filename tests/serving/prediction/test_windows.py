"""Rows are answered in batches of similar lengths, and come back in their order."""

import itertools
import random
import threading

import pytest

from serving.prediction import row_model
from serving.prediction.row_model import RowModel
from serving.prediction.rows import Line, RowAnswer
from serving.prediction.windows import answered, windows


class Echo:
    """Answers each text with itself, and remembers the batches."""

    fields = ("text",)

    def __init__(self):
        self.batches = []
        self._lock = threading.Lock()

    def answers(self, rows):
        with self._lock:
            self.batches.append([len(row["text"]) for row in rows])
        return [RowAnswer({"label": row["text"]}) for row in rows]


def lines(texts):
    return (Line([text], {"text": text}, number) for number, text in enumerate(texts, 2))


def test_order_and_batches():
    generator = random.Random(0)
    texts = [f"{number} " + "x" * generator.randrange(200) for number in range(5000)]
    model = Echo()
    found = list(answered(model, windows(lines(texts), model.fields)))
    assert [line.cells[0] for window, _ in found for line in window] == texts
    assert [answer.values["label"] for _, answers in found for answer in answers] == texts
    assert max(map(len, model.batches)) <= 256
    assert max(map(sum, model.batches)) <= 2**14 + 205
    # A window of 2,048 rows has every length; a batch has only similar ones.
    assert max(max(batch) - min(batch) for batch in model.batches) < 60


def test_memory_is_bounded():
    """However many rows there are, a few windows are read ahead of what is answered."""
    read = itertools.count()
    endless = (Line([], {"text": "x" * 100}, next(read)) for _ in itertools.count())
    model = Echo()
    found = answered(model, windows(endless, model.fields))
    for _ in range(3):
        next(found)
    assert next(read) <= 5 * 2048
    found.close()


def test_long_texts_make_small_windows():
    found = windows(lines(["x" * 2**20] * 10), ["text"])
    assert [len(window) for window in found] == [4, 4, 2]


def test_a_failure_ends_the_run():
    model = Echo()
    model.answers = lambda rows: 1 / 0
    with pytest.raises(ZeroDivisionError):
        list(answered(model, windows(lines("abc"), model.fields)))


def test_rows_that_are_refused(monkeypatch):
    """The others of their batch are answered."""
    monkeypatch.setattr(row_model, "as_tensors", lambda rows, fields: rows)
    asked = []

    def run(rows):
        asked.append(len(rows))
        if any("bad" in row["text"] for row in rows):
            raise ValueError("Expected good. Received: bad.\nwhere")
        scores = row_model.np.array([len(row["text"]) for row in rows], "float32")
        return {"score": scores, "truncated": scores > 3}

    model = RowModel(["text"], None, {"score", "truncated"}, run)
    texts = ["a", "bbb", " ", "bad", "cccc", ["a"], ""]
    answers = model.answers([{"text": text} for text in texts])
    assert [answer.values.get("score") for answer in answers] == [1, 3, None, None, 4, None, None]
    assert [answer.problem for answer in answers] == [
        *("", "", "text is blank", "Expected good. Received: bad", ""),
        *("text is a list", "text is blank"),
    ]
    assert [answer.truncated for answer in answers] == [False] * 4 + [True, False, False]
    assert asked == [4, 2, 2, 1, 1]


@pytest.mark.parametrize(
    ("label", "names"),
    [("good", ["good", "bad"]), ("other", ["bad", "good"]), ("good", ["bad", "good", "so so"])],
)
def test_answers_of_other_classes_are_refused(monkeypatch, label, names):
    """Otherwise the scores would fill the columns of other classes."""
    monkeypatch.setattr(row_model, "as_tensors", lambda rows, fields: rows)
    outputs = {
        "label": row_model.np.array([label.encode()], object),
        "scores": row_model.np.array([[0.25, 0.75]], "float32"),
        "truncated": row_model.np.array([False]),
    }
    model = RowModel(["text"], names, outputs, lambda texts: outputs)
    with pytest.raises(ValueError, match="class names"):
        model.answers([{"text": "a"}])
