"""Hostile input takes linear time; what is nested too deeply stays as it is."""

import pytest

from gpt1_keras.tokenization.normalization.original.splitting import MAX_STEPS

LENGTH = 50_000
HOSTILE = {
    "one letter": "a",
    "one accented letter": "é",
    "dots": ".",
    "suffixes and infixes": "a:b.C",
    "addresses": "1.2.3.",
    "users": "@a.bc",
    "references": "&eacute;",
    "references to punctuation": "&amp; ",
    "nested references": "&amp;amp;amp; ",
    "large numbers": "&#99999999999999999999;",
    "starts of references": "&#x ",
    "tags": "<&lt;",
    "escapes": "\x1b[31",
    "line ends": "\r\n",
    "mojibake": "Ã©",
    "mojibake of mojibake": "ÃƒÂ©",
    "parts of mojibake": "漢Ã©",
    "punctuation": "!-/",
    "controls": "\x00\x01\x02",
    "Hangul": "\u1100\u1161\u11a8",
}


@pytest.fixture(autouse=True)
def _limited(split, time_limit):
    """What takes more than linear time does not end soon enough."""


@pytest.mark.parametrize("name", HOSTILE)
def test_long_input(split, pipeline, name):
    piece = HOSTILE[name]
    text = piece * (LENGTH // len(piece))
    assert len(split([text, "a", text[1:]])) == 3
    text = text[:500]  # what takes the pipeline much longer than linear time, too
    assert split([text, "a", text[1:]]) == [pipeline(text), ["a"], pipeline(text[1:])]


def test_marks_on_one_character(split):
    assert split(["e" + "\u0301" * LENGTH]) == [["é" + "\u0301" * (LENGTH - 1)]]


@pytest.mark.parametrize("count", [2, 2 * MAX_STEPS - 1, 2 * MAX_STEPS])
def test_prefixes_and_suffixes_up_to_the_bound(split, pipeline, count):
    texts = [":" * count, "a" + ":" * (count // 2), ":" * (count // 2) + "a"]
    assert split(texts) == [pipeline(text) for text in texts]


def test_prefixes_and_suffixes_beyond_the_bound(split):
    """What is left stays one token, and nothing is lost."""
    (words,) = split([":" * LENGTH])
    left = LENGTH - 2 * MAX_STEPS
    assert words == [":"] * MAX_STEPS + [":" * left] + [":"] * MAX_STEPS


def test_references_beyond_the_bound_of_rounds(split):
    assert split(["&" + "amp;" * 8]) == [["&"]]
    assert split(["&" + "amp;" * 10]) == [["&", "amp", ";", "amp", ";"]]
