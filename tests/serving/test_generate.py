"""The program that continues texts: each sampler, both forms of prompts, and its errors."""

import io
import sys

import keras
import keras_hub
import numpy as np
import pytest

import gpt1_keras
from gpt1_keras import presets
from gpt1_keras.presets import load_task
from serving import generate
from serving.generation.samplers import SamplerOptions

PROMPTS = ["a good film, and", "the"]
LENGTH = 12
CONTEXT = 16


@pytest.fixture(scope="module")
def lm(tiny_tokenizer):
    """A model of weights that make it write many different tokens."""
    keras.utils.set_random_seed(0)
    backbone = gpt1_keras.GPT1Backbone(
        tiny_tokenizer.vocabulary_size(),
        num_layers=1,
        num_heads=2,
        hidden_dim=32,
        intermediate_dim=64,
        max_sequence_length=CONTEXT,
    )
    random = np.random.default_rng(5)
    for variable in backbone.weights:
        variable.assign(variable + random.normal(0.0, 0.6, variable.shape))
    preprocessor = gpt1_keras.GPT1CausalLMPreprocessor(tiny_tokenizer, sequence_length=LENGTH)
    return gpt1_keras.GPT1CausalLM(backbone, preprocessor)


@pytest.fixture(scope="module")
def preset(lm, tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("lm") / "preset")
    lm.save_to_preset(folder)
    return folder


@pytest.fixture
def run(preset, capsys):
    """A function that runs the program and returns its exit status, output and error output."""

    def run(*arguments, model=preset):
        status = generate.main([f"--model={model}", *arguments])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return run


@pytest.fixture
def loaded(lm, monkeypatch):
    """Spares the program the loading of its model, which takes longer than its texts."""
    monkeypatch.setattr(presets, "load_task", lambda preset, *classes: lm)


def expect(lm, prompts, sampler, **arguments):
    """What the program must print; computed without a graph, and so without tracing one."""
    lm.compile(sampler=sampler, run_eagerly=True)
    return "".join(lm.generate([prompt], **arguments)[0] + "\n" for prompt in prompts)


@pytest.fixture(scope="module")
def greedy(lm):
    """What the program must print for `PROMPTS` with the greedy sampler."""
    return expect(lm, PROMPTS, "greedy")


def test_greedy(run, greedy):
    assert run("--sampler=greedy", *PROMPTS) == (0, greedy, "")
    assert [line[:3] for line in greedy.splitlines()] == [prompt[:3] for prompt in PROMPTS]


@pytest.mark.usefixtures("loaded")
def test_lines_of_the_standard_input_and_a_max_length(run, lm, monkeypatch):
    text = "\r\n".join([*PROMPTS, "k\xefnd"]).encode() + b" \xff\n"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
    prompts = [*PROMPTS, "k\xefnd \ufffd"]
    expected = expect(lm, prompts, "greedy", max_length=CONTEXT)
    assert run("--sampler=greedy", f"--max-length={CONTEXT}") == (0, expected, "")


@pytest.mark.usefixtures("loaded")
def test_beams(run, lm, greedy):
    sampler = keras_hub.samplers.BeamSampler(num_beams=3)
    expected = expect(lm, PROMPTS, sampler)
    assert run("--sampler=beam", "--beams=3", *PROMPTS) == (0, expected, "")
    assert expected != greedy


@pytest.mark.usefixtures("loaded")
def test_a_seed_gives_the_same_texts_and_another_seed_others(run, lm):
    options = ("--sampler=top_p", "--p=0.99", "--temperature=2", *PROMPTS)
    sampler = keras_hub.samplers.TopPSampler(p=0.99, temperature=2, seed=3)
    expected = expect(lm, PROMPTS, sampler)
    assert run(*options, "--seed=3") == (0, expected, "")
    assert run(*options, "--seed=4")[1] != expected


@pytest.mark.usefixtures("loaded")
def test_cold_or_narrow_sampling_is_greedy(run, greedy):
    first, _ = greedy.splitlines()
    for options in (("--k=1",), ("--sampler=random", "--temperature=1e-4")):
        assert run(*options, PROMPTS[0]) == (0, f"{first}\n", "")


def test_samplers_have_the_options_that_they_are_given():
    sampler = SamplerOptions(k=7, temperature=0.5, seed=1).make()
    assert isinstance(sampler, keras_hub.samplers.TopKSampler)
    assert (sampler.k, sampler.temperature, sampler.seed) == (7, 0.5, 1)
    assert SamplerOptions("top_p", p=0.3).make().p == 0.3
    assert SamplerOptions("beam", beams=2).make().num_beams == 2


@pytest.mark.usefixtures("loaded")
@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["a", ""], "Prompt 2 is empty; a text goes on from at least one token."),
        ([" \n"], "Prompt 1 is empty; "),
        (["the", "a" * 90], "Prompt 2 has 90 tokens, and max_length is 12: there is no room to go"),
        (["a", "--max-length=17"], "max_length must be from 1 to 16, the model's context. Receiv"),
        (["a", "--max-length=0"], "max_length must be from 1 to 16, the model's context. Received"),
        (["a", "--k=99"], "k must be at most 77, the model's tokens. Received: 99."),
        (["a", "--k=0"], "k must be at least 1. Received: 0."),
        (["a", "--sampler=top_p", "--p=1.1"], "p must be above 0 and at most 1. Received: 1.1."),
        (["a", "--sampler=beam", "--beams=0"], "beams must be at least 1. Received: 0."),
        (["a", "--temperature=0"], "temperature must be above 0. Received: 0.0."),
        (["a", "--temperature=nan"], "temperature must be above 0. Received: nan."),
        (["a", "--p=0.5"], "The sampler 'top_k' takes no p. Received: 0.5."),
        (["a", "--sampler=greedy", "--seed=0"], "The sampler 'greedy' takes no seed. Received: 0."),
        (["a", "--sampler=best"], "Unknown sampler 'best'; expected one of ['greedy', 'random', "),
    ],
)
def test_errors_are_one_line(run, arguments, error):
    status, out, err = run(*arguments)
    assert (status, out) == (1, "")
    assert err.startswith(f"error: {error}") and err.count("\n") == 1


@pytest.mark.usefixtures("loaded")
def test_no_prompt(run, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
    error = "error: There is no prompt, neither an argument nor a line of standard input.\n"
    assert run() == (1, "", error)


def test_presets_that_are_not_language_models(run, lm, tiny_tokenizer, tmp_path):
    nothing, backbone, classifier = (str(tmp_path / each) for each in ("no", "backbone", "task"))
    lm.backbone.save_to_preset(backbone)
    preprocessor = gpt1_keras.GPT1TextClassifierPreprocessor(tiny_tokenizer, CONTEXT)
    gpt1_keras.GPT1TextClassifier(lm.backbone, 2, preprocessor=preprocessor).save_to_preset(
        classifier
    )
    for folder, reason in [
        (nothing, "ships"),
        (backbone, "it has no task.json"),
        (classifier, "is a GPT1TextClassifier; expected a GPT1CausalLM."),
    ]:
        with pytest.raises((FileNotFoundError, ValueError), match=reason) as caught:
            load_task(folder, gpt1_keras.GPT1CausalLM)
        assert run("a", model=folder) == (1, "", f"error: {caught.value}\n")


def test_a_language_model_without_a_preprocessor(run, lm, tmp_path):
    gpt1_keras.GPT1CausalLM(lm.backbone).save_to_preset(str(tmp_path / "bare"))
    error = "error: The model has no preprocessor, and so no tokenizer for prompts.\n"
    assert run("a", model=str(tmp_path / "bare")) == (1, "", error)
