"""The quickstart runs the whole line, as a program."""

import csv
import re
import subprocess
import sys

import pytest

from examples.quickstart import SENTENCES


def test_sentences_are_balanced_and_distinct():
    with open(SENTENCES, newline="") as file:
        rows = list(csv.DictReader(file))
    assert len({row["text"] for row in rows}) == len(rows) == 480
    assert sum(row["label"] == "positive" for row in rows) == 240


@pytest.mark.slow
def test_quickstart_answers_three_questions(tmp_path):
    process = subprocess.run(
        [sys.executable, "-m", "examples.quickstart", "--output", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert process.returncode == 0, process.stderr
    found = re.search(r"Validation accuracy: (\S+) with .*, (\S+) without", process.stdout)
    accuracy, without = map(float, found.groups())
    assert accuracy > 0.75 and accuracy > without + 0.05  # of two classes alike
    answers = re.findall(r"^(positive|negative) +(0\.\d+|1\.0+) ", process.stdout, re.MULTILINE)
    assert [label for label, _ in answers] == ["positive", "negative", "positive"]
    assert (tmp_path / "export" / "sentences" / "1" / "saved_model.pb").exists()
