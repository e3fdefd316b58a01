"""The commands of the model card, on a slice of the books."""

import itertools
import re
import shlex

import pytest

from gpt1_keras.presets import find_preset
from tests.helpers.commands import main_of, module_of

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
    for split in ("train", "valid"):
        (tmp_path / "books" / split).mkdir(parents=True)
        novel = sorted((books_dir / split).iterdir())[0]
        with open(novel, encoding="utf-8") as file:
            lines = list(itertools.islice(file, 300))
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
        assert not main_of(module_of(f"{command} {name}"))(arguments), capsys.readouterr().err
    score = main_of("training.perplexity")
    assert score(["--preset", "./gpt1_tiny_books", "--corpus", "corpus"]) == 0
    assert float(re.search(r"Perplexity: (\S+)", capsys.readouterr().out)[1]) > 1
