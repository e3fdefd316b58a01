"""The soak compares answers: one that finds no wrong answer must be able to find one."""

import numpy as np
import pytest

from benchmarks.soak.request_mix import Answers

SCORES = np.array([[[0.2, 0.8], [0.7, 0.3]], [[0.8, 0.2], [0.6, 0.4]]])  # of two exports


@pytest.mark.parametrize(
    ("version", "rows", "scores", "labels", "expected"),
    [
        (1, [1], [[0.6, 0.4]], ["negative"], "OK"),
        (2, [0, 1], [[0.2, 0.8], [0.7, 0.3]], None, "OK"),
        (None, [0], [[0.2, 0.8]], ["positive"], "OK"),
        (1, [0], [[0.2, 0.8]], ["positive"], "WRONG"),  # what the other export says
        (2, [0, 1], [[0.2, 0.8]], None, "WRONG"),
        (1, [1], [[0.6, 0.4]], ["positive"], "WRONG"),
        (1, [1], [[0.6004, 0.3996]], None, "WRONG"),
        (1, [1], [[float("nan")] * 2], None, "WRONG"),
        (3, [0], [[0.2, 0.8]], None, "WRONG"),  # a version that was never whole
        (None, [0], [[0.5, 0.5]], None, "WRONG"),
    ],
)
def test_answers_are_compared_with_what_the_version_must_say(
    version, rows, scores, labels, expected
):
    answers = Answers(list(SCORES))
    answers.exports[2] = 0
    assert answers.judge(version, rows, scores, labels) == expected
