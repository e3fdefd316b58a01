"""Explained answers as people see them: pairs, choices, and texts of any bytes."""

from serving.client.explained_text import coloured, table

WORDS = {"label": "a", "scores": [0.75, 0.25], "num_words": 3}
PAIR = WORDS | {
    "words": ["d\u00e9j\u00e0", "No", "\ufffd", ""],
    "word_fields": ["premise", "hypothesis", "hypothesis", ""],
    "word_starts": [1, 0, 3, 0],
    "word_ends": [7, 2, 4, 0],
    "word_shares": [-2.0, 0.01, 1.0, 0.0],
}


def test_a_table_of_a_pair():
    assert list(table(PAIR)) == [
        " -2.0000  premise     d\u00e9j\u00e0",
        " +0.0100  hypothesis  No",
        " +1.0000  hypothesis  \ufffd",
    ]


def test_the_colours_of_a_pair():
    """Offsets are bytes; what is not UTF-8 is shown as such; small shares have no colour."""
    premise, hypothesis = coloured(
        {"premise": " d\u00e9j\u00e0 vu", "hypothesis": b"No \xff!"}, PAIR
    )
    assert premise.plain == "premise:  d\u00e9j\u00e0 vu"
    assert hypothesis.plain == "hypothesis: No \ufffd!"
    [deepest] = premise.spans
    assert (premise.plain[deepest.start : deepest.end], deepest.style) == (
        "d\u00e9j\u00e0",
        "black on rgb(230,159,0)",
    )
    [half] = hypothesis.spans
    assert (half.start, half.end, half.style) == (15, 16, "black on rgb(170,218,244)")


def test_the_colours_of_choices():
    """An empty one has its own index, and no line."""
    answer = WORDS | {
        "words": ["sun", "rain", "sun"],
        "word_fields": ["context", "choices", "choices"],
        "word_choices": [-1, 0, 2],
        "word_starts": [0, 0, 0],
        "word_ends": [3, 4, 3],
        "word_shares": [0.0, -1.0, 1.0],
    }
    lines = list(coloured({"context": "sun", "choices": ["rain", "", "sun"]}, answer))
    assert [line.plain for line in lines] == ["context: sun", "choices: rain", "choices: sun"]
    assert [len(line.spans) for line in lines] == [0, 1, 1]
