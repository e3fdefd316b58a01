"""The quickstart works from a clone, without a network."""

import csv
import os
import re
import signal
import socket
import sys
import threading
import urllib.request

import pytest

from examples import quickstart


def test_sentences_are_balanced_and_distinct():
    with open(quickstart.SENTENCES, newline="") as file:
        rows = list(csv.DictReader(file))
    assert len({row["text"] for row in rows}) == len(rows) == 480
    assert sum(row["label"] == "positive" for row in rows) == 240


@pytest.fixture
def no_network(monkeypatch):
    """Makes a connection to another machine an error."""
    connect = socket.socket.connect

    def only_here(self, address):
        if self.family != socket.AF_UNIX and address[0] not in ("127.0.0.1", "::1", "localhost"):
            raise OSError(f"This test reaches no network. Received: {address}.")
        return connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", only_here)


@pytest.fixture
def interruptible():
    """As at a terminal: in what a script starts in the background, SIGINT is ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_ends_the_wait_for_it(capsys, time_limit, interruptible):
    timer = threading.Timer(0.1, os.kill, [os.getpid(), signal.SIGINT])
    timer.start()
    quickstart.wait_for_interrupt("http://localhost:1234/")
    assert capsys.readouterr().out.split("\n") == [
        "",
        "Try the model in a browser: http://localhost:1234/",
        "Ctrl-C stops the server.",
        "",
        "Stopping.",
        "",
    ]


@pytest.mark.slow
def test_quickstart_answers_three_questions(no_network, tmp_path, monkeypatch, capsys):
    """With half as many epochs, pre-training makes even more of a difference."""
    monkeypatch.setattr(quickstart, "EPOCHS", quickstart.EPOCHS // 2)
    monkeypatch.setattr(sys, "argv", ["quickstart", "--serve", "--output", str(tmp_path)])
    pages = []

    def visit(url):
        with urllib.request.urlopen(url) as page:
            pages.append(page.read().decode())

    monkeypatch.setattr(quickstart, "wait_for_interrupt", visit)
    quickstart.main()
    printed = capsys.readouterr().out
    found = re.search(r"Validation accuracy: (\S+) with .*, (\S+) without", printed)
    accuracy, without = map(float, found.groups())
    assert accuracy > 0.75 and accuracy > without + 0.05  # of two classes alike
    answers = re.findall(r"^(positive|negative) +(0\.\d+|1\.0+) ", printed, re.MULTILINE)
    assert [label for label, _ in answers] == ["positive", "negative", "positive"]
    [page] = pages
    assert '<option value="sentences">sentences</option>' in page
    assert (tmp_path / "export" / "sentences" / "1" / "saved_model.pb").exists()
