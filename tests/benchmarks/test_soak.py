"""The soak's comparison of answers finds wrong ones."""

import collections
import re
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks import soak

SCORES = np.array([[[0.2, 0.8], [0.7, 0.3]], [[0.8, 0.2], [0.6, 0.4]]])  # of two exports


@pytest.mark.parametrize(
    ("version", "rows", "scores", "labels", "expected"),
    [
        (1, [1], [[0.6, 0.4]], ["negative"], "OK"),
        (2, [0, 1], [[0.2, 0.8], [0.7, 0.3]], ["positive", "negative"], "OK"),
        (None, [0], [[0.2, 0.8]], ["positive"], "OK"),
        (1, [0], [[0.2, 0.8]], ["positive"], "WRONG"),  # what the other export says
        (2, [0, 1], [[0.2, 0.8]], ["positive"], "WRONG"),
        (1, [1], [[0.6, 0.4]], ["positive"], "WRONG"),
        (1, [1], [[0.6004, 0.3996]], ["negative"], "WRONG"),
        (1, [1], [[float("nan")] * 2], ["negative"], "WRONG"),
        (3, [0], [[0.2, 0.8]], ["positive"], "WRONG"),  # a version that was never whole
        (None, [0], [[0.5, 0.5]], ["negative"], "WRONG"),
    ],
)
def test_answers_are_compared_with_what_the_version_must_say(
    version, rows, scores, labels, expected
):
    answers = soak.Answers(list(SCORES), {1: 1, 2: 0})
    assert answers.judge(version, rows, scores, labels) == expected


@pytest.mark.parametrize(
    ("outcomes", "threads", "is_clean"),
    [
        ({"OK": 2, "429": 1}, 5, True),
        ({"OK": 2, "WRONG": 1}, 5, False),
        ({"OK": 2, "INTERNAL": 1}, 5, False),
        ({"OK": 3}, 50, False),  # threads that stay
    ],
)
def test_a_report_says_whether_all_was_as_it_should(outcomes, threads, is_clean):
    kinds = {"REST": (None, 1, {"OK", "429"})}
    ended = {"REST": collections.Counter(outcomes)}
    requests = SimpleNamespace(
        kinds=kinds, outcomes=ended, latencies={"REST": [0.5, 0.5]}, not_sent=0
    )
    samples = [(100.0, 5, 3), (120.0, 60, 30), (101.0, threads, 3)]
    faults = SimpleNamespace(counts={"broken": 2}, failures=[])
    facts, tables, found = soak._report(1.0, 60.0, requests, samples, faults, 0)
    assert found == is_clean
    assert "3 were sent" in facts
    sent, levels, versions = tables
    assert re.search(r"\| +500 \| +500 \|", sent)
    assert "broken 2" in versions
    assert re.search(rf"\| +{threads} \| +60 \|", levels)
