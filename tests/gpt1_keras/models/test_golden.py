"""Our backbone gives the stored numbers of Hugging Face's torch model."""

import json
import pathlib

import numpy as np
import pytest

import gpt1_keras
from gpt1_keras.convert.published_weights import block_variables


@pytest.fixture(scope="module")
def golden():
    return json.loads(pathlib.Path(__file__).with_name("golden.json").read_text())


@pytest.fixture(scope="module")
def lm(golden):
    """A language model with the weights of make_golden.py's formula."""
    config = golden["config"]
    backbone = gpt1_keras.GPT1Backbone(
        config["vocab_size"],
        num_layers=config["n_layer"],
        num_heads=config["n_head"],
        hidden_dim=config["n_embd"],
        intermediate_dim=4 * config["n_embd"],
        max_sequence_length=config["n_positions"],
    )
    variables = [backbone.token_embedding.embeddings, backbone.embedding.positions.embeddings]
    for block in backbone.blocks:
        variables += block_variables(block)
    for number, variable in enumerate(variables):
        index = np.arange(np.prod(variable.shape), dtype=np.float64)
        values = 0.4 * np.sin(index**2 + number).reshape(variable.shape)
        variable.assign(values + (variable.name == "gamma"))
    lm = gpt1_keras.GPT1CausalLM(backbone)
    lm.compile(sampler="greedy", jit_compile=False)
    return lm


def test_logits(golden, lm):
    logits = lm({"token_ids": np.array(golden["ids"])})
    np.testing.assert_allclose(logits, golden["logits"], atol=2e-5, rtol=0)


@pytest.mark.slow
def test_greedy_continuation(golden, lm):
    continuation, ids = np.array(golden["continuation"]), np.array(golden["ids"])
    token_ids = np.zeros_like(continuation)
    token_ids[:, : ids.shape[1]] = ids
    mask = np.arange(continuation.shape[1]) < ids.shape[1]
    inputs = {"token_ids": token_ids, "padding_mask": np.tile(mask, (2, 1))}
    np.testing.assert_array_equal(lm.generate(inputs)["token_ids"], continuation)
