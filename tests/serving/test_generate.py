"""The program that continues texts: the signature's texts, in pieces, and its errors."""

import io
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

import gpt1_keras
from gpt1_keras import presets
from serving import generate
from serving.export.exported_tasks import signatures_of
from serving.export.generation_options import GenerationOptions
from serving.export.generation_stream import TextStream, find_end
from serving.export.signature import ExportSpec
from tests.helpers.eager import eagerly

PROMPTS = ["a good film, and", "the"]
CONTEXT = 24
LENGTH = 12


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
    preprocessor = gpt1_keras.GPT1CausalLMPreprocessor(tiny_tokenizer, sequence_length=CONTEXT)
    return gpt1_keras.GPT1CausalLM(backbone, preprocessor)


@pytest.fixture(scope="module")
def signature(lm):
    """A function that returns what the export's `generate` makes of a prompt."""
    call = signatures_of(ExportSpec(lm)).by_name["generate"].compiled

    def run(prompt, **options):
        values = {**vars(GenerationOptions()), "length": LENGTH, "stop": [""], **options}
        tensors = {
            name: tf.constant([value], call.structured_input_signature[1][name].dtype)
            for name, value in values.items()
        }
        return call(text=tf.constant([prompt]), **tensors)["text"].numpy()[0].decode()

    return run


@pytest.fixture(scope="module")
def preset(lm, tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("lm") / "preset")
    lm.save_to_preset(folder)
    return folder


@pytest.fixture
def run(preset, capsys):
    """A function that runs the program and returns its exit status, output and error output."""

    def run(*arguments, model=preset):
        status = generate.main([f"--model={model}", f"--length={LENGTH}", *arguments])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return run


@pytest.fixture
def loaded(lm, monkeypatch):
    """Spares the program the loading and tracing of its model, which take longer than its texts."""
    monkeypatch.setattr(presets, "load_task", lambda preset, *classes: lm)
    with eagerly():
        yield


@pytest.mark.slow
def test_the_defaults_are_the_signatures(run, signature):
    expected = "".join(signature(prompt) + "\n" for prompt in PROMPTS)
    assert run(*PROMPTS) == (0, expected, "")


@pytest.mark.usefixtures("loaded")
@pytest.mark.parametrize(
    "options",
    [
        {"temperature": 0.0},
        {"temperature": 2.0, "top_k": 0, "top_p": 0.95, "seed": 3},
        {"temperature": 2.0, "top_k": 7, "seed": -2, "stop": ["a"]},
        {"temperature": 2.0, "top_k": 0, "seed": 4, "stop": ["no such words", "THE", "."]},
        {"temperature": 2.0, "top_k": 0, "seed": 3, "stop": ["a text that never comes", "a"]},
        {"length": 1},
    ],
)
def test_options_are_the_signatures(run, signature, options):
    arguments = [
        f"--{name.replace('_', '-')}={each}"
        for name, value in options.items()
        for each in (value if name == "stop" else [value])
    ]
    expected = "".join(signature(prompt, **options) + "\n" for prompt in PROMPTS)
    assert run(*arguments, *PROMPTS) == (0, expected, "")


@pytest.mark.usefixtures("loaded")
def test_lines_of_the_standard_input(run, signature, monkeypatch):
    text = "\r\n".join([*PROMPTS, "k\xefnd"]).encode() + b" \xff\n"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
    expected = "".join(signature(prompt) + "\n" for prompt in [*PROMPTS, "k\xefnd \ufffd"])
    assert run() == (0, expected, "")


@pytest.mark.usefixtures("loaded")
def test_a_text_comes_in_pieces_that_nothing_changes_later(lm, signature):
    """No piece is taken back when words are joined, or before a stop text."""
    for seed in range(4):
        options = {"length": 15, "temperature": 3.0, "top_k": 0, "seed": seed}
        options["stop"] = ["good"] if seed % 2 else [""]
        stream = TextStream(lm, GenerationOptions(**{**options, "stop": ("good",) * (seed % 2)}))
        pieces = list(stream.pieces(b"it didn't"))
        assert "".join(pieces) == signature("it didn't", **options)
        assert seed % 2 or len(pieces) > 2


def test_only_what_may_become_a_stop_text_is_held_back():
    """A continuation that comes in pieces ends where Python's `find` says, with any stop texts."""
    random = np.random.default_rng(0)

    def letters(most):
        return "".join(random.choice([*"ab "], random.integers(1, most)))

    for _ in range(2000):
        whole, stops = letters(16), [letters(8) for _ in range(random.integers(4))]
        found = [whole.find(stop) for stop in stops if stop in whole]
        for length in range(1, len(whole) + 1):
            text = whole[:length]
            end, is_stopped = find_end(text, stops, length == len(whole))
            assert end == length or any(stop.startswith(text[end:][: len(stop)]) for stop in stops)
            assert end <= min(found, default=length)
            if is_stopped:
                break
        assert end == min(found, default=len(whole)) and is_stopped == bool(found)


@pytest.mark.usefixtures("loaded")
@pytest.mark.parametrize(
    ("arguments", "noun"),
    [
        (["a", ""], "Prompt 2 is empty"),
        ([" \n"], "Prompt 1 is empty"),
        (["the", "a" * 90], "Prompt 2 has 90 tokens"),
        (["a", "--length=24"], "length"),
        (["a", "--length=0"], "length"),
        (["a", "--top-k=-1"], "top_k"),
        (["a", "--top-p=1.1"], "top_p"),
        (["a", "--temperature=-1"], "temperature"),
        (["a", "--temperature=nan"], "temperature"),
        (["a", "--stop=\n"], "stop text"),
        ([], "prompt"),
    ],
)
def test_errors_are_one_line(run, monkeypatch, arguments, noun):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
    status, out, err = run(*arguments)
    assert (status, out) == (1, "")
    assert err.startswith("error: ") and noun in err and err.count("\n") == 1


def test_presets_that_do_not_go_on(run, lm, tiny_tokenizer, tmp_path):
    preprocessor = gpt1_keras.GPT1TextClassifierPreprocessor(tiny_tokenizer, CONTEXT)
    lm.backbone.save_to_preset(str(tmp_path / "backbone"))
    classifier = gpt1_keras.GPT1TextClassifier(lm.backbone, 2, preprocessor=preprocessor)
    classifier.save_to_preset(str(tmp_path / "classifier"))
    gpt1_keras.GPT1CausalLM(lm.backbone).save_to_preset(str(tmp_path / "bare"))
    for name, noun in [
        ("nothing", "ships"),
        ("backbone", "task.json"),
        ("classifier", "GPT1TextClassifier"),
        ("bare", "preprocessor"),
    ]:
        status, out, err = run("a", model=str(tmp_path / name))
        assert (status, out) == (1, "") and err.startswith("error: ") and noun in err
        assert err.count("\n") == 1
