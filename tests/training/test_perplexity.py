"""The perplexity of a preset on a corpus."""

import re

import pytest

import gpt1_keras
from training.corpus.corpus_format import Corpus
from training.evaluation.likelihood import perplexity
from training.perplexity import main


@pytest.mark.slow
def test_it_is_what_the_pre_training_says(pretrained, corpus, capsys):
    folder, result = pretrained
    assert main(["--preset", str(folder / "preset"), "--corpus", str(corpus)]) == 0
    found = float(re.search(r"Perplexity: (\S+)", capsys.readouterr().out)[1])
    assert found == pytest.approx(result["validation_perplexity"], abs=6e-4)


def test_a_corpus_of_another_tokenizer(pretrained, corpus, tmp_path):
    """Or of the other normalization."""
    model = gpt1_keras.GPT1CausalLM.from_preset(str(pretrained[0] / "preset"))
    files = tmp_path / "vocabulary", tmp_path / "merges"
    model.preprocessor.tokenizer.save_files(*files)
    for name, tokenizer, message in (
        ("text", gpt1_keras.GPT1Tokenizer.learn(["a text"] * 3, num_merges=5), "fingerprint"),
        ("rules", gpt1_keras.GPT1Tokenizer(*files, normalization="original"), "'bert'.*'original'"),
    ):
        preprocessor = gpt1_keras.GPT1CausalLMPreprocessor(tokenizer)
        lm = gpt1_keras.GPT1CausalLM(model.backbone, preprocessor)
        lm.save_to_preset(str(tmp_path / name))
        with pytest.raises(ValueError, match=message):
            perplexity(str(tmp_path / name), Corpus(corpus))


def test_errors_are_one_line(pretrained, corpus, tmp_path, capsys):
    preset = str(pretrained[0] / "preset")
    for arguments, message in (
        (["--preset", str(tmp_path), "--corpus", str(corpus)], "is not a preset: neither one that"),
        (["--preset", preset, "--corpus", str(tmp_path)], " makes it: it has no index.json"),
        (["--preset", preset, "--corpus", str(corpus), "--split", "x"], "has no split 'x'"),
    ):
        assert main(arguments) == 1
        captured = capsys.readouterr()
        assert message in captured.err and captured.err.count("\n") == 1
