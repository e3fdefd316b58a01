"""Tokenizers from all kinds of folders that may hold them."""

import json
import shutil

import pytest

import gpt1_keras
from gpt1_keras.presets.loading import describe_tokenizer, load_tokenizer

TEXT = "A good film, and a lovely one; unknown: \u00e9\u4e2d\U0001f600"


@pytest.mark.parametrize("write", ["save_to_preset", "save_assets"])
def test_what_a_tokenizer_saves_gives_the_same_ids(write, tiny_tokenizer, tmp_path):
    getattr(tiny_tokenizer, write)(str(tmp_path))
    tokenizer = load_tokenizer(tmp_path)
    assert tokenizer.get_vocabulary() == tiny_tokenizer.get_vocabulary()
    assert tokenizer(TEXT).numpy().tolist() == tiny_tokenizer(TEXT).numpy().tolist()
    assert describe_tokenizer(tokenizer) == describe_tokenizer(tiny_tokenizer)


def test_a_whole_preset_holds_a_tokenizer(tiny_backbone, tiny_tokenizer, tmp_path):
    preprocessor = gpt1_keras.GPT1CausalLMPreprocessor(tiny_tokenizer)
    gpt1_keras.GPT1CausalLM(tiny_backbone, preprocessor).save_to_preset(str(tmp_path))
    assert load_tokenizer(tmp_path).get_vocabulary() == tiny_tokenizer.get_vocabulary()


def test_the_published_files_are_found_by_their_names(original_files, original_tokenizer, tmp_path):
    for path in original_files:
        shutil.copy(path, tmp_path)
    tokenizer = load_tokenizer(str(tmp_path))
    assert describe_tokenizer(tokenizer) == describe_tokenizer(original_tokenizer)
    assert tokenizer.vocabulary_size() == 40481


def test_what_is_missing_is_named(tmp_path, tiny_tokenizer):
    with pytest.raises(FileNotFoundError, match=r"vocabulary.json' does not exist. .*tokenizer.js"):
        load_tokenizer(tmp_path)
    tiny_tokenizer.save_assets(tmp_path)
    (tmp_path / "merges.txt").unlink()
    with pytest.raises(FileNotFoundError, match="The merges file .* does not exist"):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "tokenizer.json does not describe a tokenizer"),
        ("{}", "tokenizer.json must describe a GPT1Tokenizer. Received: <class 'dict'>"),
        (
            json.dumps({"module": "nowhere", "class_name": "Tokenizer", "config": {}}),
            "tokenizer.json does not describe a tokenizer",
        ),
        (
            json.dumps({"module": "keras.layers", "class_name": "Dense", "config": {"units": 3}}),
            "tokenizer.json must describe a GPT1Tokenizer. Received: .*Dense",
        ),
    ],
)
def test_an_odd_description_is_refused(content, message, tmp_path):
    (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(ValueError, match=message):
        load_tokenizer(tmp_path)


def test_the_fingerprint_tells_vocabularies_merges_and_their_order_apart():
    def fingerprint(tokens, merges):
        vocabulary = {token: id for id, token in enumerate(tokens)}
        return describe_tokenizer(gpt1_keras.GPT1Tokenizer(vocabulary, merges))["fingerprint"]

    tokens = ["<unk>", "a", "b", "a</w>", "b</w>", "ab</w>", "ba</w>"]
    fingerprints = [
        fingerprint(tokens, ["a b</w>", "b a</w>"]),
        fingerprint(tokens, ["b a</w>", "a b</w>"]),
        fingerprint(tokens, ["a b</w>"]),
        fingerprint(tokens[::-1], ["a b</w>", "b a</w>"]),
    ]
    assert len(set(fingerprints)) == 4
    # The order of a JSON object says nothing.
    shuffled = dict(sorted({token: id for id, token in enumerate(tokens)}.items()))
    again = describe_tokenizer(gpt1_keras.GPT1Tokenizer(shuffled, ["a b</w>", "b a</w>"]))
    assert again["fingerprint"] == fingerprints[0]


def test_the_normalization_of_files_that_say_nothing(tiny_tokenizer, tmp_path):
    tiny_tokenizer.save_assets(tmp_path)
    assert load_tokenizer(tmp_path).normalization == "bert"
    assert load_tokenizer(tmp_path, "original").normalization == "original"
    with pytest.raises(ValueError, match="normalization='newest' is unknown"):
        load_tokenizer(tmp_path, "newest")


def test_a_tokenizer_keeps_the_normalization_that_it_was_saved_with(tiny_tokenizer, tmp_path):
    tiny_tokenizer.save_to_preset(str(tmp_path))
    assert load_tokenizer(tmp_path, "bert").normalization == "bert"
    with pytest.raises(ValueError, match="made with normalization='bert', .* Received: 'original'"):
        load_tokenizer(tmp_path, "original")
