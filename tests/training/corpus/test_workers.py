"""A corpus has the same bytes from any number of processes and from Beam, and ends cleanly."""

import importlib.util
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import psutil
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


@pytest.mark.slow
@needs_beam
@pytest.mark.parametrize("processes", [1, 2])
def test_beam_does_not_change_a_byte(processes, stories, tokenizer_dir, read_files, tmp_path):
    options = CorpusOptions(stories, tokenizer=tokenizer_dir, shard_mb=1e-4)
    make_corpus(options, tmp_path / "one")
    make_corpus(options, tmp_path / "beam", runner="FnApiRunner", processes=processes)
    assert read_files(tmp_path / "beam") == read_files(tmp_path / "one")


@pytest.fixture
def unreadable(stories):
    """The stories with one that cannot be read."""
    pathlib.Path(stories, "train", "d.txt").write_bytes(b"a caf\xe9\n")
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
        r"train-0000\d-of-0000\d.npy \(.*\): ValueError: .*/d.txt, line 1: is neither UTF-8 .*",
        str(raised.value),
    )
    assert not list((tmp_path / "out").iterdir())


@pytest.mark.slow
def test_a_worker_that_dies_is_an_error(stories, tokenizer_dir, tmp_path, monkeypatch):
    monkeypatch.setattr(build, "write_shard", _die)
    options = CorpusOptions(stories, tokenizer=tokenizer_dir, shard_mb=1e-4)
    with pytest.raises(ShardError, match="died.*--processes"):
        make_corpus(options, tmp_path / "corpus", processes=2)
    assert not (tmp_path / "corpus").exists()


def _die(unit, folder):
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "status"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -signal.SIGKILL)],
)
def test_a_stopped_run_leaves_no_corpus_and_no_process(
    number, status, stories, tokenizer_dir, tmp_path
):
    long = pathlib.Path(stories, "train", "d.txt")
    long.write_text("a film that is dull\n" * 500_000)  # other shards are written before it
    command = [sys.executable, "-m", "training.corpus", "--input", stories, "--shard-mb", "1e-4"]
    command += ["--tokenizer", tokenizer_dir, "--output", str(tmp_path / "out" / "corpus")]
    process = subprocess.Popen(
        [*command, "--processes", "2"], cwd=ROOT, stderr=subprocess.PIPE, text=True
    )
    wait_until(lambda: list(tmp_path.joinpath("out").rglob("*.npy")))
    workers = psutil.Process(process.pid).children(recursive=True)
    assert len(workers) >= 2
    process.send_signal(number)
    _, error = process.communicate(timeout=60)
    assert process.returncode == status
    assert not psutil.wait_procs(workers, timeout=60)[1]
    assert not (tmp_path / "out" / "corpus").exists()
    if number != signal.SIGKILL:
        assert error.endswith("\nInterrupted; there is no corpus.\n")
        assert "Traceback" not in error
        assert not list((tmp_path / "out").iterdir())


def wait_until(condition):
    deadline = time.monotonic() + 100
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
