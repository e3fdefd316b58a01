"""The format of the released checkpoint, written from a torch model that must agree."""

import numpy as np
import pytest
import torch

import gpt1_keras
from gpt1_keras.convert import load_openai, published_weights
from gpt1_keras.presets import find_preset
from tests.helpers.published_checkpoint import write_released


@pytest.fixture
def checkpoint(tmp_path, tiny_tokenizer, make_torch_model):
    """A folder as the paper's authors released it, and the torch model it was made from."""
    vocabulary_size = tiny_tokenizer.vocabulary_size() - 3
    model = make_torch_model(vocab_size=vocabulary_size, n_embd=128, n_head=2, n_layer=2)
    write_released(tmp_path, tiny_tokenizer, model)
    return tmp_path, model


def test_the_numbers_are_torchs(checkpoint, outputs_of, tiny_tokenizer):
    folder, model = checkpoint
    lm = load_openai(folder, normalization="bert")
    assert (lm.backbone.num_heads, lm.backbone.num_layers) == (2, 2)
    assert lm.backbone.max_sequence_length == lm.preprocessor.sequence_length == 24
    assert lm.preprocessor.tokenizer.get_vocabulary() == tiny_tokenizer.get_vocabulary()
    states, logits = outputs_of(lm)
    expected_states, expected_logits = outputs_of(model)
    np.testing.assert_allclose(states, expected_states, atol=2e-5, rtol=0)
    np.testing.assert_allclose(logits[:, :, :-3], expected_logits, atol=1e-4, rtol=0)


def test_a_vocabulary_far_below_zero(tmp_path, tiny_tokenizer, make_torch_model, loss_of):
    """As the released one may be: the special tokens, which it lacks, take no part."""
    model = make_torch_model(vocab_size=tiny_tokenizer.vocabulary_size() - 3, n_layer=2)
    write_released(tmp_path, tiny_tokenizer, model)
    lm = load_openai(tmp_path, normalization="bert", num_heads=2)
    texts = ["a good film, and a lovely one", "the staff were kind"]
    with torch.no_grad():
        expected = loss_of(model, tiny_tokenizer(texts).to_list()).item()
    lm.compile(run_eagerly=True)
    assert lm.evaluate(texts, verbose=0)[0] == pytest.approx(expected, abs=1e-4)


def test_the_number_of_heads(checkpoint):
    folder, _ = checkpoint
    assert load_openai(folder, "bert", num_heads=8).backbone.num_heads == 8
    for wrong in (3, 0, -2):
        with pytest.raises(ValueError, match=f"num_heads={wrong}"):
            load_openai(folder, "bert", num_heads=wrong)


@pytest.mark.slow
def test_the_normalization_is_that_of_the_weights(checkpoint, capsys):
    """One line says so, unless it was asked for."""
    published_weights._say.cache_clear()
    load_openai(checkpoint[0], "bert")
    assert "normalization" not in capsys.readouterr().err
    tokenizer = load_openai(checkpoint[0]).preprocessor.tokenizer
    assert "normalization='original', which the weights were" in capsys.readouterr().err
    assert tokenizer.normalization == "original"
    assert tokenizer.detokenize(tokenizer("a and a's")) == "a and a 's".replace("'", "<unk>")


def test_where_a_preset_is_asked_for(checkpoint):
    """The error says what makes one."""
    for load in (find_preset, gpt1_keras.GPT1CausalLM.from_preset):
        with pytest.raises(FileNotFoundError, match="load_openai"):
            load(str(checkpoint[0]))


def test_a_width_that_does_not_say_how_many_heads_there_are(
    tmp_path, tiny_tokenizer, make_torch_model, outputs_of
):
    model = make_torch_model(
        vocab_size=tiny_tokenizer.vocabulary_size() - 3, n_embd=96, n_head=4, n_layer=2
    )
    write_released(tmp_path, tiny_tokenizer, model)
    with pytest.raises(ValueError, match="96.* `num_heads`"):
        load_openai(tmp_path, "bert")
    states, _ = outputs_of(load_openai(tmp_path, "bert", num_heads=4))
    np.testing.assert_allclose(states, outputs_of(model)[0], atol=2e-5, rtol=0)
