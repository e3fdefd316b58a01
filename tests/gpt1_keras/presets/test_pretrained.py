"""The models that ship: found by name, small, refused when damaged, made as their cards say."""

import itertools
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import textwrap

import h5py
import keras
import keras_hub
import numpy as np
import pytest

import gpt1_keras
from gpt1_keras.presets import PRETRAINED, find_preset
from tests.helpers.commands import main_of, module_of
from training.corpus.build import make_corpus
from training.corpus.corpus_options import CorpusOptions
from training.perplexity import main

NAME = "gpt1_tiny_books"
ROOT = pathlib.Path(__file__).parents[3]


@pytest.fixture
def copy(tmp_path):
    """A copy of the preset, to be damaged."""
    return pathlib.Path(shutil.copytree(find_preset(NAME), tmp_path / "preset"))


@pytest.mark.parametrize(
    ("name", "megabytes"), [("gpt1_tiny_books", 12), ("gpt1_small_books", 24.5)]
)
def test_it_is_small_and_has_a_card(name, megabytes):
    folder = find_preset(name)
    assert sum(path.stat().st_size for path in folder.rglob("*")) <= megabytes * 1e6
    card = (folder / "README.md").read_text(encoding="utf-8")
    for subject in ("Data", "Training", "Perplexity", "Limits", "Licence"):
        assert f"## {subject}" in card
    assert f"{gpt1_keras.GPT1Backbone.from_preset(name).count_params():,} parameters" in card


@pytest.mark.slow
def test_every_class_finds_it_by_name():
    assert set(gpt1_keras.GPT1CausalLM.presets) == set(PRETRAINED)
    tokenizer = gpt1_keras.GPT1Tokenizer.from_preset(NAME)
    backbone = gpt1_keras.GPT1Backbone.from_preset(NAME)
    lm = gpt1_keras.GPT1CausalLM.from_preset(NAME)
    classifier = gpt1_keras.GPT1TextClassifier.from_preset(NAME, num_classes=3)
    preprocessor = gpt1_keras.GPT1TextClassifierPreprocessor.from_preset(NAME)
    assert isinstance(keras_hub.models.CausalLM.from_preset(NAME), gpt1_keras.GPT1CausalLM)
    for model in backbone, lm, classifier:
        assert model.dtype_policy.name == keras.config.dtype_policy().name
    for decoder in lm.backbone, classifier.backbone:
        for found, expected in zip(decoder.get_weights(), backbone.get_weights(), strict=True):
            np.testing.assert_array_equal(found, expected)
    for holder in lm.preprocessor, classifier.preprocessor, preprocessor:
        assert holder.tokenizer.fingerprint == tokenizer.fingerprint


def test_a_folder_of_the_same_name(tmp_path, monkeypatch):
    (tmp_path / NAME).mkdir()
    (tmp_path / NAME / "config.json").touch()
    monkeypatch.chdir(tmp_path)
    assert find_preset(f"./{NAME}") == tmp_path / NAME
    assert find_preset(NAME) != tmp_path / NAME


def cut_short(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def turn_a_bit(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def make_empty(path):
    path.write_bytes(b"")


def drop_an_array(path):
    with h5py.File(path, "a") as file:
        names = []
        file.visititems(
            lambda name, item: names.append(name) if getattr(item, "ndim", 0) == 2 else None
        )
        del file[names[0]]


@pytest.mark.parametrize("damage", [cut_short, turn_a_bit, make_empty, drop_an_array])
def test_damaged_weights(damage, copy):
    damage(copy / "model.weights.h5")
    with pytest.raises(ValueError, match=r"model\.weights\.h5"):
        gpt1_keras.GPT1TextClassifier.from_preset(str(copy), num_classes=2)


def test_another_model_s_weights(copy, tiny_backbone):
    tiny_backbone.save_weights(copy / "model.weights.h5")
    with pytest.raises(ValueError, match="another model's weights"):
        gpt1_keras.GPT1CausalLM.from_preset(str(copy))


def test_a_vocabulary_that_is_not_the_one_it_was_trained_with(copy, tiny_tokenizer):
    tiny_tokenizer.save_assets(copy / "assets" / "tokenizer")
    with pytest.raises(ValueError, match="8bcc"):
        gpt1_keras.GPT1CausalLM.from_preset(str(copy))


@pytest.mark.slow
def test_a_tokenizer_with_more_tokens_than_the_model(copy, original_tokenizer):
    for path in copy.glob("*.json"):  # as if the preset did not know which tokenizer it had
        text = path.read_text(encoding="utf-8")
        path.write_text(re.sub('"fingerprint": "[0-9a-f]+"', '"fingerprint": null', text))
    original_tokenizer.save_assets(copy / "assets" / "tokenizer")
    with pytest.raises(ValueError, match="40481.*8228"):
        gpt1_keras.GPT1CausalLM.from_preset(str(copy))


@pytest.mark.slow
@pytest.mark.parametrize("name", PRETRAINED)
def test_the_perplexity_of_the_card(name, books_dir, tmp_path, capsys):
    """That of one novel, which is quick; the same command measures all of them."""
    card = (find_preset(name) / "README.md").read_text(encoding="utf-8")
    expected = float(re.search(r"The Time Machine \| \*\*(\d+\.\d+)\*\*", card)[1])
    (tmp_path / "books" / "valid").mkdir(parents=True)
    novel = "H_G_Wells__The_Time_Machine.txt"
    shutil.copy(books_dir / "valid" / novel, tmp_path / "books" / "valid")
    make_corpus(CorpusOptions(str(tmp_path / "books"), tokenizer=name), tmp_path / "corpus")
    assert main(["--preset", name, "--corpus", str(tmp_path / "corpus")]) == 0
    found = float(re.search(r"Perplexity: (\S+)", capsys.readouterr().out)[1])
    assert found == pytest.approx(expected, abs=0.006)


OFFLINE = """
import socket

connect = socket.socket.connect

def only_here(self, address):
    if self.family != socket.AF_UNIX and address[0] not in ("127.0.0.1", "::1"):
        raise OSError(f"This test reaches no network. Received: {address}.")
    return connect(self, address)

socket.socket.connect = only_here

import keras

import gpt1_keras
from serving.export import export
from serving.query import ask
from serving.server import Server

keras.utils.set_random_seed(0)
texts = ["a lovely day", "a dull day", "a kind man", "a cruel man"] * 4
labels = ["good", "bad"] * 8
classifier = gpt1_keras.GPT1TextClassifier.from_preset(
    "gpt1_tiny_books", class_names=["bad", "good"]
)
optimizer = gpt1_keras.optimizer.finetuning_optimizer(1e-3)
classifier.compile(optimizer, jit_compile=False)  # as compiling takes longer than these steps
classifier.fit(texts, labels, batch_size=8, epochs=10, verbose=0)
with Server("days", export(classifier, "days") and "days", port=0, rest_api_port=0) as server:
    answers = ask(f"localhost:{server.port}", "days", texts[:4])
print(gpt1_keras.__file__, [answer["label"] for answer in answers])
"""


@pytest.mark.slow
def test_an_installed_wheel_fine_tunes_exports_and_serves_without_a_network(tmp_path):
    """From a clone, the quickstart does; see tests/examples."""
    installed = tmp_path / "installed"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    source = tmp_path / "source"  # pip builds in it
    for folder in ("gpt1_keras", "training", "serving", "examples"):
        shutil.copytree(ROOT / folder, source / folder)
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    build = ["--no-build-isolation", "--target", str(installed), str(source)]
    subprocess.run([*pip, *build], check=True, timeout=300)
    process = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(OFFLINE)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert process.returncode == 0, process.stderr
    where, labels = process.stdout.splitlines()[-1].split(" ", 1)
    assert where == str(installed / "gpt1_keras" / "__init__.py")
    assert labels == "['good', 'bad', 'good', 'bad']"


# Values that make the commands take seconds instead of hours.
LESS = {
    "--input": "books",
    "--num-merges": "200",
    "--steps": "4",
    "--decay-steps": "1",
    "--batch-size": "2",
    "--warmup-steps": "2",
    "--checkpoint-every": "2",
    "--snapshot-every": "2",
    "--jit-compile": "off",
    "--pair-share": "0",  # so few merges do not make its words
}


@pytest.mark.slow
def test_the_commands_that_made_it(books_dir, tmp_path, monkeypatch, capsys):
    for split, count in (("train", 300), ("valid", 40)):
        (tmp_path / "books" / split).mkdir(parents=True)
        novel = sorted((books_dir / split).iterdir())[0]
        with open(novel, encoding="utf-8") as file:
            lines = list(itertools.islice(file, count))
        (tmp_path / "books" / split / novel.name).write_text("".join(lines), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    card = (find_preset("gpt1_tiny_books") / "README.md").read_text(encoding="utf-8")
    block = re.search(r"```\n(gpt1 corpus.+?)```", card, re.DOTALL)[1]
    commands = [shlex.split(line) for line in block.replace("\\\n", " ").splitlines()]
    names = [name for _, name, *_ in commands]
    assert names == ["corpus", *["pretrain"] * 6, "compress_preset"]
    for command, name, *arguments in commands:
        for index in range(0, len(arguments), 2):
            option = arguments[index]
            arguments[index + 1] = LESS.get(option, arguments[index + 1])
        if name == "pretrain":
            arguments += ["--sequence-length", "32", "--validation-batches", "1"]
        assert not main_of(module_of(f"{command} {name}"))(arguments), capsys.readouterr().err
    score = main_of("training.perplexity")
    assert score(["--preset", "./gpt1_tiny_books", "--corpus", "corpus"]) == 0
    assert float(re.search(r"Perplexity: (\S+)", capsys.readouterr().out)[1]) > 1
