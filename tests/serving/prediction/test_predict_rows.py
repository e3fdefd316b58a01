"""Rows are answered in batches of similar lengths, and come back in their order."""

import itertools
import random
import threading

import pytest

from gpt1_keras.answers import Engine, answer_each
from gpt1_keras.examples import Examples
from gpt1_keras.labelled_files import Row
from serving.prediction.predict_rows import answered, windows


class Echo:
    """An engine that answers each text with itself, and remembers the batches."""

    def __init__(self):
        self.batches = []
        self._lock = threading.Lock()
        self.engine = Engine(["text"], None, ["score"], self.run)

    def run(self, examples):
        texts = examples.texts["text"].tolist()
        with self._lock:
            self.batches.append(list(map(len, texts)))
        return {"score": [len(text) for text in texts], "truncated": [False] * len(texts)}


def rows(texts):
    return ((Row({"text": text}, number), [text]) for number, text in enumerate(texts, 2))


def test_order_and_batches():
    generator = random.Random(0)
    texts = [f"{number} " + "x" * generator.randrange(200) for number in range(5000)]
    echo = Echo()
    found = list(answered(echo.engine, windows(rows(texts), ["text"], "a.csv")))
    assert [cells for window, _ in found for cells in window.cells] == [[text] for text in texts]
    lines = [line for window, _ in found for line in window.examples.indices]
    assert lines == list(range(2, 5002))
    scores = [answer["score"] for _, answers in found for answer in answers]
    assert scores == list(map(len, texts))
    assert max(map(len, echo.batches)) <= 256
    assert max(map(sum, echo.batches)) <= 2**14 + 205
    # A window of 2,048 rows has every length; a batch has only similar ones.
    assert max(max(batch) - min(batch) for batch in echo.batches) < 60


def test_memory_is_bounded():
    """However many rows there are, a few windows are read ahead of what is answered."""
    read = itertools.count()
    endless = ((Row({"text": "x" * 100}, next(read)), []) for _ in itertools.count())
    found = answered(Echo().engine, windows(endless, ["text"], "a.csv"))
    for _ in range(3):
        next(found)
    assert next(read) <= 5 * 2048
    found.close()


def test_long_texts_make_small_windows():
    found = windows(rows(["x" * 2**20] * 10), ["text"], "a.csv")
    assert [len(window.cells) for window in found] == [4, 4, 2]


def test_a_failure_ends_the_run():
    engine = Engine(["text"], None, ["score"], lambda examples: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        list(answered(engine, windows(rows("abc"), ["text"], "a.csv")))


def test_rows_that_are_refused():
    """The others of their batch are answered. The engine's word on what is blank counts."""
    asked = []

    def run(examples):
        texts = examples.texts["text"].tolist()
        asked.append(len(texts))
        if any("bad" in text for text in texts):
            raise ValueError("Expected good. Received: bad.\nwhere")
        scores = [float(len(text)) for text in texts]
        of_texts = {
            "truncated": [score > 3 for score in scores],
            "blank": [t == "?" for t in texts],
        }
        return {
            "score": [-float("inf") if text == "i" else len(text) for text in texts],
            **of_texts,
        }

    texts = ["a", "bbb", " ", "bad", "cccc", ["a"], "", "?", "i"]
    engine = Engine(["text"], None, {"score", "truncated", "blank"}, run)
    answers = answer_each(engine, Examples({"text": texts}))
    assert [answer.get("problem", "") for answer in answers] == [
        *("", "", "", "Expected good. Received: bad", "", "text is a list", "text is blank"),
        *("text is blank", "its score is -inf"),
    ]
    assert [answer["score"] for answer in answers if "problem" not in answer] == [1, 3, 1, 4]
    assert [answer["truncated"] for answer in answers if "problem" not in answer][-1]
    assert asked[0] == 7 and sorted(asked)[:2] == [1, 1]
    older = Engine(["text"], None, {"score"}, lambda examples: {"score": [0.5] * len(examples)})
    problems = [
        answer.get("problem") for answer in answer_each(older, Examples({"text": texts[:3]}))
    ]
    assert problems == [None, None, "text is blank"]


@pytest.mark.parametrize(
    ("label", "names"),
    [("good", ["good", "bad"]), ("other", ["bad", "good"]), ("good", ["bad", "good", "so so"])],
)
def test_answers_of_other_classes_are_refused(label, names):
    """Otherwise the scores would fill the columns of other classes."""
    outputs = {"label": [label], "scores": [[0.25, 0.75]]}
    engine = Engine(["text"], names, outputs, lambda examples: outputs)
    with pytest.raises(ValueError, match="class names"):
        answer_each(engine, Examples({"text": ["a"]}))
