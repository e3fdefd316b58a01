"""What is prepared for a machine with a GPU runs on a CPU, and brings home the run's weights."""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys

import pytest

import gpt1_keras
from benchmarks.gpu import weights
from training.corpus.batches import validation_batches
from training.corpus.build import make_corpus
from training.corpus.corpus_format import Corpus
from training.corpus.corpus_options import CorpusOptions
from training.corpus.windows import SequentialWindows

ROOT = pathlib.Path(__file__).parents[2]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="JAX is not installed"),
]


@pytest.fixture
def work(tmp_path, tiny_tokenizer):
    """A working folder with a corpus, whose Python has no TensorFlow and needs no wheels."""
    for split, words in (("train", 2000), ("valid", 300)):
        (tmp_path / "texts" / split).mkdir(parents=True)
        (tmp_path / "texts" / split / "a.txt").write_text("a good film and a bad one. " * words)
    tiny_tokenizer.save_to_preset(str(tmp_path / "tokenizer"))
    options = CorpusOptions(str(tmp_path / "texts"), tokenizer=str(tmp_path / "tokenizer"))
    make_corpus(options, tmp_path / "work" / "corpus")
    (tmp_path / "work" / "site").mkdir()
    hidden = 'import sys\nsys.modules["tensorflow"] = None\n'
    (tmp_path / "work" / "site" / "sitecustomize.py").write_text(hidden)
    (tmp_path / "work" / "ready").touch()
    return tmp_path / "work"


@pytest.fixture
def run(work, tmp_path):
    """Runs run.sh, and returns its status and all that it printed."""

    def run(*arguments):
        process = subprocess.run(
            ["bash", "benchmarks/gpu/run.sh", tmp_path, tmp_path / "out", *map(str, arguments)],
            capture_output=True,
            text=True,
            cwd=ROOT,
            env={
                **os.environ,
                "WORK": str(work),
                "PATH": f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}",
            },
        )
        return process.returncode, process.stdout + process.stderr

    return run


def test_a_step(run):
    status, printed = run(
        "step", "--config", "gpt1_micro", "--batch-size", 2, "--length", 16, "--steps", 1,
        "--product", 64, "--dtype", "float32",
    )  # fmt: skip
    assert status == 0, printed
    assert "gpt1_micro, 2 x 16, float32" in printed and "of the product's" in printed


def test_weights_come_home(run, work, tmp_path):
    arguments = ["--config", "gpt1_micro", "--batch-size", 4, "--sequence-length", 32]
    status, printed = run("pretrain", *arguments, "--steps", 0)
    assert status != 0 and "its pre-training ended before it began" in printed
    status, printed = run("pretrain", *arguments, "--steps", 4)
    assert status == 0, printed
    parts = sorted((tmp_path / "out").glob("weights.npz.*"))
    (tmp_path / "weights.npz").write_bytes(b"".join(part.read_bytes() for part in parts))
    weights.keep(tmp_path / "weights.npz", work / "corpus", tmp_path / "kept")
    kept = gpt1_keras.GPT1CausalLM.from_preset(str(tmp_path / "kept"), preprocessor=None)
    history = json.loads((tmp_path / "out" / "history.json").read_text())
    corpus = Corpus(work / "corpus")
    validation = SequentialWindows(corpus.split("validation"), 32, 4)
    batches = validation_batches(validation, len(validation))
    kept.compile()
    loss = kept.evaluate(batches, verbose=0, return_dict=True)["loss"]
    assert loss == pytest.approx(history[-1]["validation_loss"], abs=1e-3)  # of float16
    (work / "run" / "preset").mkdir()  # as a run that ends has it where there is TensorFlow
    with pytest.raises(SystemExit, match="is its model: take that"):
        weights.take(work / "run", work / "corpus", tmp_path / "weights.npz")
