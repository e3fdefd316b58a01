"""The names that other people's scripts use; only a major version may remove one."""

import dataclasses
import inspect
import pathlib

import pytest

import gpt1_keras
from gpt1_keras.programs import PROGRAMS as TABLE
from serving.export import __main__ as export_program
from serving.export import export
from serving.tflite import __main__ as tflite_program
from serving.tflite import convert
from tests.helpers.commands import commands_of, main_of, module_of

ROOT = pathlib.Path(__file__).parents[2]
NAMES = {
    "GPT1Backbone",
    "GPT1CausalLM",
    "GPT1CausalLMPreprocessor",
    "GPT1MultipleChoice",
    "GPT1MultipleChoicePreprocessor",
    "GPT1TextClassifier",
    "GPT1TextClassifierPreprocessor",
    "GPT1TextSimilarity",
    "GPT1TextSimilarityPreprocessor",
    "GPT1Tokenizer",
    "LSTMBackbone",
}
# Those that `from gpt1_keras import *` leaves out, as users have variables of these names.
OTHERS = {"__version__", "convert", "optimizer", "presets"}
# From what follows `gpt1` to what follows `python -m`.
COMMANDS = {
    "calibrate": "training.calibrate",
    "check": "serving.check",
    "compress_preset": "training.compress_preset",
    "corpus": "training.corpus",
    "evaluate": "training.evaluate",
    "export": "serving.export",
    "finetune": "training.finetune",
    "generate": "serving.generate",
    "paper": "training.paper",
    "perplexity": "training.perplexity",
    "predict": "serving.predict",
    "pretrain": "training.pretrain",
    "query": "serving.query",
    "serve": "serving.server",
    "tflite": "serving.tflite",
}
PROGRAMS = list(COMMANDS.values())
PAPER = (
    *("ablate", "report", "learning_curve", "zero_shot"),
    *("context_use", "ngrams", "plot_pretraining"),
)


def test_names_of_the_package():
    assert set(gpt1_keras.__all__) == NAMES
    assert set(dir(gpt1_keras)) == NAMES | OTHERS
    assert all(hasattr(gpt1_keras, name) for name in NAMES | OTHERS)


@pytest.mark.parametrize("name", sorted(NAMES))
def test_help_on_a_property_says_what_it_is(name):
    bases = [base for base in getattr(gpt1_keras, name).__mro__ if "gpt1_keras" in base.__module__]
    properties = [
        value for base in bases for value in vars(base).values() if isinstance(value, property)
    ]
    documented = {each.fget.__name__: each.__doc__ for each in properties if each.fget}
    assert not [name for name, doc in documented.items() if doc is None or len(doc.split()) < 5]


def test_programs_of_the_command():
    assert {name: module for group in TABLE.values() for name, module in group.items()} == COMMANDS


def test_programs_of_the_readme():
    assert {module_of(command) for command in commands_of(ROOT / "README.md")} <= set(PROGRAMS)


@pytest.mark.parametrize(
    ("function", "options", "in_objects"),
    [
        (
            export,
            export_program._ExportOptions,
            {"embed_normalize", "explain_steps", "explain_max_words"},
        ),
        (convert, tflite_program._ConvertOptions, set()),
    ],
)
def test_functions_take_the_options_of_their_programs(function, options, in_objects):
    names = {field.name for field in dataclasses.fields(options)} - in_objects
    assert names <= set(inspect.signature(function).parameters)


@pytest.mark.parametrize("program", PROGRAMS)
def test_help(program, capsys):
    with pytest.raises(SystemExit) as stopped:
        main_of(program)(["--help"])
    assert stopped.value.code == 0
    assert capsys.readouterr().out.startswith(f"Usage: python -m {program} ")


@pytest.mark.parametrize("name", PAPER)
def test_help_of_the_papers_programs(name, capsys):
    with pytest.raises(SystemExit) as stopped:
        main_of("training.paper")([name, "--help"])
    assert stopped.value.code == 0
    assert capsys.readouterr().out.startswith(f"Usage: python -m training.paper {name} ")
