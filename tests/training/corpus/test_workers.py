"""A corpus has the same bytes from any number of processes and from Beam, and ends cleanly."""

import errno
import importlib.util
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import time

import pytest

from training.corpus import build
from training.corpus.build import make_corpus
from training.corpus.corpus_format import Corpus
from training.corpus.corpus_options import CorpusOptions
from training.corpus.shards import ShardError

ROOT = pathlib.Path(__file__).parents[3]
needs_beam = pytest.mark.skipif(
    importlib.util.find_spec("apache_beam") is None, reason="Apache Beam is not installed"
)


@pytest.mark.slow
def test_processes_do_not_change_a_byte(stories, tokenizer_dir, read_files, tmp_path):
    options = CorpusOptions(stories, tokenizer=tokenizer_dir, shard_mb=1e-4)
    make_corpus(options, tmp_path / "one")
    make_corpus(options, tmp_path / "two", processes=2)
    assert read_files(tmp_path / "two") == read_files(tmp_path / "one")
    assert len(Corpus(tmp_path / "one").split("train").shards) > 2


@needs_beam
@pytest.mark.parametrize("processes", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_beam_does_not_change_a_byte(processes, stories, tokenizer_dir, read_files, tmp_path):
    options = CorpusOptions(stories, tokenizer=tokenizer_dir, shard_mb=1e-4)
    make_corpus(options, tmp_path / "one")
    make_corpus(options, tmp_path / "beam", runner="FnApiRunner", processes=processes)
    assert read_files(tmp_path / "beam") == read_files(tmp_path / "one")


@pytest.fixture
def unreadable(stories):
    """The stories with one that cannot be read; root may read all files, but no socket."""
    path = os.path.join(stories, "train", "d.txt")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
    return stories


@pytest.mark.slow
@pytest.mark.parametrize(
    "how",
    [
        {},
        {"processes": 2},
        pytest.param({"runner": "FnApiRunner"}, marks=needs_beam),
    ],
)
def test_a_failure_names_the_document_and_leaves_nothing(how, unreadable, tokenizer_dir, tmp_path):
    options = CorpusOptions(unreadable, tokenizer=tokenizer_dir, shard_mb=1e-4)
    with pytest.raises(ShardError) as raised:
        make_corpus(options, tmp_path / "out" / "corpus", **how)
    assert re.fullmatch(
        r"train-0000\d-of-0000\d.npy \(.*\): OSError: \[Errno 6\] .*/d.txt'", str(raised.value)
    )
    assert not list((tmp_path / "out").iterdir())


@pytest.mark.slow
def test_a_worker_that_dies_is_an_error(stories, tokenizer_dir, tmp_path, monkeypatch):
    monkeypatch.setattr(build, "write_shard", _die)
    options = CorpusOptions(stories, tokenizer=tokenizer_dir, shard_mb=1e-4)
    with pytest.raises(ShardError, match="A worker process died, .* try fewer --processes"):
        make_corpus(options, tmp_path / "corpus", processes=2)
    assert not (tmp_path / "corpus").exists()


def _die(unit, folder):
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)]
)
def test_a_stopped_run_leaves_no_corpus_and_no_process(
    number, status, stories, tokenizer_dir, tmp_path
):
    pipe = os.path.join(stories, "train", "d.txt")
    os.mkfifo(pipe)  # a document that never ends
    command = [sys.executable, "-m", "training.corpus", "--input", stories, "--shard-mb", "1e-4"]
    command += ["--tokenizer", tokenizer_dir, "--output", str(tmp_path / "out" / "corpus")]
    process = subprocess.Popen(
        [*command, "--processes", "2"], cwd=ROOT, stderr=subprocess.PIPE, text=True
    )
    writer = wait_for(lambda: os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))  # until it is read
    process.send_signal(number)
    _, error = process.communicate(timeout=60)
    assert process.returncode == status
    with pytest.raises(BrokenPipeError):  # no process is left to read
        wait_for(lambda: os.write(writer, b"a film ") and None)
    os.close(writer)
    assert not (tmp_path / "out" / "corpus").exists()
    if number == signal.SIGINT:
        assert error.endswith("\nInterrupted; there is no corpus.\n")
        assert "Traceback" not in error
        assert not list((tmp_path / "out").iterdir())


def wait_for(function):
    """Calls a function until it returns something; a pipe that nobody reads is no error yet."""
    deadline = time.monotonic() + 100
    while time.monotonic() < deadline:
        try:
            result = function()
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            result = None
        if result is not None:
            return result
        time.sleep(0.02)
    raise TimeoutError
