"""The names that other people's scripts use; only a major version may remove one."""

import dataclasses
import inspect
import pathlib

import pytest

import gpt1_keras
from serving.export import __main__ as export_program
from serving.export import export
from serving.tflite import __main__ as tflite_program
from serving.tflite import convert
from tests.helpers.commands import commands_of, main_of

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
    "__version__",
    "convert",
    "optimizer",
    "presets",
}
PROGRAMS = [
    "training.paper.ablate",
    "training.paper.baselines",
    "training.compress_preset",
    "training.paper.context_use",
    "training.corpus",
    "training.evaluate",
    "training.finetune",
    "training.paper.learning_curve",
    "training.paper.ngrams",
    "training.perplexity",
    "training.paper.plot_pretraining",
    "training.pretrain",
    "training.paper.report",
    "training.paper.zero_shot",
    "serving.check",
    "serving.export",
    "serving.generate",
    "serving.predict",
    "serving.query",
    "serving.server",
    "serving.tflite",
]


def test_names_of_the_package():
    assert set(gpt1_keras.__all__) == NAMES
    assert all(hasattr(gpt1_keras, name) for name in NAMES)


def test_programs_of_the_readme():
    assert {command.split()[2] for command in commands_of(ROOT / "README.md")} <= set(PROGRAMS)


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
