"""The format of the released checkpoint, written from a torch model that must agree."""

import json

import numpy as np
import pytest
import torch

import gpt1_keras
from gpt1_keras.convert import load_openai, published_weights
from gpt1_keras.presets import find_preset

ORDER = [
    "attn.c_attn.weight",
    "attn.c_attn.bias",
    "attn.c_proj.weight",
    "attn.c_proj.bias",
    "ln_1.weight",
    "ln_1.bias",
    "mlp.c_fc.weight",
    "mlp.c_fc.bias",
    "mlp.c_proj.weight",
    "mlp.c_proj.bias",
    "ln_2.weight",
    "ln_2.bias",
]


def write_released(folder, tokenizer, model):
    """Writes the files of the release from a torch model of two blocks."""
    weights = {
        name: parameter.numpy() for name, parameter in model.transformer.state_dict().items()
    }
    arrays = [weights["positions_embed.weight"], weights["tokens_embed.weight"]]
    for i in range(2):
        for name in ORDER:
            array = weights[f"h.{i}.{name}"]
            arrays.append(array[None] if array.ndim == 2 else array)
    flat = np.concatenate([array.ravel() for array in arrays])
    for number, part in enumerate(np.array_split(flat, 10)):
        np.save(folder / f"params_{number}.npy", part)
    shapes = [list(array.shape) for array in arrays]
    (folder / "params_shapes.json").write_text(json.dumps(shapes))
    tokenizer.save_files(folder / "encoder_bpe_40000.json", folder / "vocab_40000.bpe")


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


def test_a_vocabulary_far_below_zero(tmp_path, tiny_tokenizer, make_far_below, loss_of):
    """As the released one may be: the special tokens, which it lacks, take no part."""
    model = make_far_below(vocab_size=tiny_tokenizer.vocabulary_size() - 3, n_layer=2)
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
        with pytest.raises(
            ValueError, match=f"must divide 128 dimensions. Received: num_heads={wrong}"
        ):
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
        with pytest.raises(
            FileNotFoundError, match=r"Make a preset .*load_openai\('.*'\)\.save_to"
        ):
            load(str(checkpoint[0]))


@pytest.mark.parametrize(
    "name",
    ["params_0.npy", "params_9.npy", "params_shapes.json", "encoder_bpe_40000.json"]
    + ["vocab_40000.bpe"],
)
def test_a_missing_file(checkpoint, name):
    folder, _ = checkpoint
    (folder / name).unlink()
    with pytest.raises(FileNotFoundError, match=name):
        load_openai(folder, normalization="bert")


def test_missing_numbers(checkpoint):
    folder, _ = checkpoint
    np.save(folder / "params_9.npy", np.load(folder / "params_9.npy")[:-1])
    with pytest.raises(ValueError, match="is damaged: params_shapes.json lists 26 arrays"):
        load_openai(folder, normalization="bert")


@pytest.mark.parametrize("kept", [0, 50, -1])
def test_a_truncated_file(checkpoint, kept):
    folder, _ = checkpoint
    content = (folder / "params_4.npy").read_bytes()
    (folder / "params_4.npy").write_bytes(content[:kept])
    with pytest.raises(ValueError, match="damaged.*params_4.npy|params_4.npy.*damaged"):
        load_openai(folder, normalization="bert")


def test_pickled_arrays_are_not_read(checkpoint):
    folder, _ = checkpoint
    np.save(folder / "params_0.npy", np.array([{"a": 1}], object), allow_pickle=True)
    with pytest.raises(ValueError, match="pickle"):
        load_openai(folder, normalization="bert")


@pytest.mark.parametrize("content", ["[", "{}", "[]"])
def test_damaged_shapes(checkpoint, content):
    folder, _ = checkpoint
    (folder / "params_shapes.json").write_text(content)
    with pytest.raises(ValueError, match="params_shapes.json"):
        load_openai(folder, normalization="bert")


def test_a_vocabulary_that_does_not_fit(checkpoint):
    folder, _ = checkpoint
    vocabulary = json.loads((folder / "encoder_bpe_40000.json").read_text())
    vocabulary["one more"] = len(vocabulary)
    (folder / "encoder_bpe_40000.json").write_text(json.dumps(vocabulary))
    with pytest.raises(ValueError, match="74 token embeddings, but the tokenizer has 78 tokens"):
        load_openai(folder, normalization="bert")


def test_a_width_that_does_not_say_how_many_heads_there_are(
    tmp_path, tiny_tokenizer, make_torch_model, outputs_of
):
    model = make_torch_model(
        vocab_size=tiny_tokenizer.vocabulary_size() - 3, n_embd=96, n_head=4, n_layer=2
    )
    write_released(tmp_path, tiny_tokenizer, model)
    with pytest.raises(
        ValueError, match="a width of 96; expected a multiple of 64, or `num_heads`"
    ):
        load_openai(tmp_path, "bert")
    states, _ = outputs_of(load_openai(tmp_path, "bert", num_heads=4))
    np.testing.assert_allclose(states, outputs_of(model)[0], atol=2e-5, rtol=0)


def npy(header, version=b"\x01\x00"):
    return b"\x93NUMPY" + version + len(header).to_bytes(2, "little") + header


@pytest.mark.parametrize(
    "content",
    [
        npy(b"{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000,), }\n"),
        npy(b"(" * 9000),
        npy(b"{'descr': '<U4', 'fortran_order': False, 'shape': (0,), }\n"),
        b"PK\x05\x06" + bytes(18),
    ],
    ids=["shape", "nested", "strings", "archive"],
)
def test_arrays_of_strangers(checkpoint, content, time_limit):
    folder, _ = checkpoint
    (folder / "params_4.npy").write_bytes(content)
    with pytest.raises(ValueError, match=r"params_4.npy is damaged"):
        load_openai(folder, normalization="bert")


@pytest.mark.parametrize("shape", [[10**12] * 4, ["1"], [[2]], 3, [-1, 2], [0]])
def test_shapes_of_strangers(checkpoint, shape):
    folder, _ = checkpoint
    (folder / "params_shapes.json").write_text(json.dumps([shape] * 14))
    with pytest.raises(ValueError, match=r"params_shapes.json must list shapes"):
        load_openai(folder, normalization="bert")


def test_weights_that_are_not_finite(checkpoint):
    folder, _ = checkpoint
    part = np.load(folder / "params_9.npy")
    part[-1] = np.inf
    np.save(folder / "params_9.npy", part)
    with pytest.raises(ValueError, match="has 1 weights of 128 that are NaN or infinite"):
        load_openai(folder, normalization="bert")
