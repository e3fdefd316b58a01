"""resources.json, and the script that makes it."""

import json

import pytest

from benchmarks.peers.python_pipeline import RULES_FILE, text_standardize
from gpt1_keras.tokenization.normalization.original.resources import load_resources
from tests.helpers import make_original_tables
from tests.helpers.spacy_rules import SpacyRules


@pytest.mark.slow
def test_shipped_tables_are_what_the_packages_do():
    """Made again from spaCy's rules and the installed ftfy, but for newer versions of Unicode."""
    rules = SpacyRules(**json.loads(RULES_FILE.read_text(encoding="utf-8")))
    made, shipped = make_original_tables.make_resources(rules), load_resources()
    if made["unicode"] != shipped["unicode"]:
        pytest.skip(f"This Python has Unicode {made['unicode']}; the tables {shipped['unicode']}")
    assert set(made) == set(shipped)
    for name in made:
        assert made[name] == shipped[name], name


def test_the_tables_hold_what_the_vocabulary_shows():
    """The published vocabulary has `may.`, `c'mon` and `this'll`, and no `prof.`."""
    exceptions = load_resources()["exceptions"]
    assert exceptions["May."] == ["May."]
    assert not {"C'mon", "This'll", "Prof."} & set(exceptions)


def test_clean_up_is_the_pipelines():
    texts = ["a--b ~~!?c\\\\d++e", " x\n\n \ty [z] {_} ", "— – ― … ´", "\x0c\u3000a\xa0 b\u2003"]
    for text in texts:
        assert make_original_tables.standardize(text) == text_standardize(text)


def test_a_wheel_that_is_missing(tmp_path):
    with pytest.raises(FileNotFoundError, match="spacy-2.0.18.*does not exist"):
        make_original_tables.find_wheels(tmp_path)


def test_a_wheel_that_is_not_the_published_one(tmp_path):
    for name in make_original_tables.SOURCES:
        (tmp_path / name).write_bytes(b"PK\x03\x04 something else")
    with pytest.raises(
        ValueError, match="is not the published wheel: its SHA-256 is .*; expected "
    ):
        make_original_tables.find_wheels(tmp_path)


def test_errors_are_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["make_original_tables", str(tmp_path)])
    assert make_original_tables.main() == 1
    captured = capsys.readouterr()
    assert captured.err.startswith("error: The wheel") and captured.err.count("\n") == 1
