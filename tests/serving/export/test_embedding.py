"""The signature `embed`: hidden states of raw texts, equal to those of Hugging Face's model."""

import json
import pathlib

import keras
import numpy as np
import pytest
import tensorflow as tf
import torch
from transformers import OpenAIGPTModel

import gpt1_keras
from gpt1_keras.convert import save_hugging_face
from gpt1_keras.tokenization.padding import pad
from serving.check import main as check
from serving.export import export
from serving.export.export_options import POOLINGS, Embedding
from serving.export.exported_tasks import signatures_of
from serving.export.int8_calibration import calibrated_blocks
from serving.export.signature import ExportSpec
from serving.server.models.servable import Servable, ServingError

TEXTS = ["a good film", "", "a good film and a lovely one", "the Staff were KIND", "good " * 60]
CONTEXT = 24
WIDTH = 16


def spread(model):
    random = np.random.default_rng(0)
    for variable in model.weights:
        variable.assign(variable + random.normal(0.0, 0.2, variable.shape))
    return model


@pytest.fixture(scope="module")
def backbone(tiny_tokenizer):
    keras.utils.set_random_seed(0)
    size = tiny_tokenizer.vocabulary_size()
    return spread(
        gpt1_keras.GPT1Backbone(size, 2, 2, WIDTH, 4 * WIDTH, max_sequence_length=CONTEXT)
    )


@pytest.fixture(scope="module")
def lm(backbone, tiny_tokenizer):
    return gpt1_keras.GPT1CausalLM(backbone, gpt1_keras.GPT1CausalLMPreprocessor(tiny_tokenizer))


@pytest.fixture(scope="module")
def pairs(backbone, tiny_tokenizer):
    """A task whose own inputs have other names."""
    preprocessor = gpt1_keras.GPT1TextClassifierPreprocessor(
        tiny_tokenizer, fields=("premise", "hypothesis")
    )
    return gpt1_keras.GPT1TextClassifier(backbone, 2, preprocessor)


@pytest.fixture(scope="module")
def states(lm, tiny_tokenizer, tmp_path_factory):
    """Torch's hidden states of each text's tokens, float [tokens, width]."""
    folder = tmp_path_factory.mktemp("torch")
    save_hugging_face(lm, folder)
    model = OpenAIGPTModel.from_pretrained(folder).eval()
    found = []
    for ids in tiny_tokenizer(TEXTS).to_list():
        with torch.no_grad():
            ids = torch.tensor([ids[:CONTEXT]], dtype=torch.int64)
            found.append(model(ids).last_hidden_state[0].numpy() if ids.numel() else None)
    return [np.zeros((0, WIDTH)) if each is None else each for each in found]


def pooled(states, pooling):
    if not len(states):
        return np.zeros(WIDTH)
    return states.mean(axis=0) if pooling == "mean" else states[-1]


def unit(vectors):
    return vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-30)


@pytest.mark.slow
@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("pooling", POOLINGS)
def test_as_torch(lm, tiny_tokenizer, states, pooling, normalize):
    spec = ExportSpec(lm, embedding=Embedding(pooling, normalize))
    found = signatures_of(spec).by_name["embed"].compiled(text=tf.constant(TEXTS))
    change = unit if normalize else np.asarray
    assert found["num_tokens"].numpy().tolist() == [len(each) for each in states]
    assert found["truncated"].numpy().tolist() == [False] * 4 + [True]
    if pooling != "tokens":
        expected = np.stack([pooled(each, pooling) for each in states])
        np.testing.assert_allclose(found["embedding"], change(expected), atol=1e-5)
        assert set(found) == {"embedding", "num_tokens", "truncated"}
        return
    tokenized = pad(tiny_tokenizer(TEXTS)[:, :CONTEXT], tiny_tokenizer, CONTEXT)
    for name, values in tokenized.items():
        np.testing.assert_array_equal(found[name], values)
    assert found["embedding"].shape == (*found["token_ids"].shape, WIDTH)
    for row, expected in zip(found["embedding"].numpy(), states):
        np.testing.assert_allclose(row[: len(expected)], change(expected), atol=1e-5)
        assert not row[len(expected) :].any()


def test_an_lstm_s_states(tiny_tokenizer):
    """A backbone that only Keras can compute."""
    size = tiny_tokenizer.vocabulary_size()
    lstm = spread(gpt1_keras.LSTMBackbone(size, WIDTH, WIDTH, max_sequence_length=CONTEXT))
    preprocessor = gpt1_keras.GPT1TextClassifierPreprocessor(tiny_tokenizer)
    model = gpt1_keras.GPT1TextClassifier(lstm, 2, preprocessor)
    spec = ExportSpec(model, embedding=Embedding("mean"))
    found = signatures_of(spec).by_name["embed"].compiled(text=tf.constant(TEXTS[:3]))["embedding"]
    for row, ids in zip(found, tiny_tokenizer(TEXTS[:3]).to_list()):
        expected = np.mean(lstm({"token_ids": np.array([ids])})[0], axis=0) if ids else np.zeros(1)
        np.testing.assert_allclose(row, expected * np.ones(WIDTH), atol=1e-5)


@pytest.fixture(scope="module")
def exported(pairs, tmp_path_factory):
    """The path of an export of pairs with `embed`."""
    folder = tmp_path_factory.mktemp("export")
    return pathlib.Path(export(pairs, folder, embed=Embedding("mean", normalize=True)))


@pytest.mark.slow
def test_in_the_cpp_runtime(exported, states):
    """A task of two texts embeds one; batches may be empty, and bad ones are refused."""
    servable = Servable("pairs", 1, exported)
    expected = unit(np.stack([pooled(each, "mean") for each in states]))
    found = servable.predict("embed", {"text": tf.make_tensor_proto(TEXTS)})
    np.testing.assert_allclose(found["embedding"], expected, atol=1e-5)
    assert found["embedding"].dtype == np.float32
    empty = servable.predict("embed", {"text": tf.make_tensor_proto([], tf.string)})
    assert empty["embedding"].shape == (0, WIDTH)
    with pytest.raises(ServingError, match="shape") as caught:
        servable.predict("embed", {"text": tf.make_tensor_proto([["a", "b"]])})
    assert caught.value.code.name == "INVALID_ARGUMENT"


@pytest.mark.slow
def test_every_signature_runs_elsewhere(exported, capsys):
    assert check([str(exported)]) == 0, capsys.readouterr().out
    assert "embed, requests from the warm-up" in capsys.readouterr().out
    metadata = json.loads((exported / "assets.extra/gpt1_keras.json").read_text())
    assert metadata["embedding"] == {"pooling": "mean", "normalize": True}
    readme = (exported / "assets.extra/README.md").read_text()
    assert "`embed` returns the mean of a text's hidden states, of length 1." in readme


def test_products_in_8_bits(lm, states, int8_products):
    blocks, _ = calibrated_blocks(lm, [{"text": text} for text in TEXTS if text], "texts")
    spec = ExportSpec(lm, blocks=blocks, embedding=Embedding("mean", True))
    found = signatures_of(spec).by_name["embed"].compiled(text=tf.constant(TEXTS))
    expected = unit(np.stack([pooled(each, "mean") for each in states]))
    cosines = np.sum(found["embedding"] * expected, axis=-1)
    assert cosines[1] == 0.0 and np.delete(cosines, 1).min() > 0.99


def test_an_unknown_pooling():
    with pytest.raises(ValueError, match="pooling"):
        Embedding("max")
