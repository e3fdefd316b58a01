"""The Python examples in the pages and in the docstrings run as they stand."""

import contextlib
import pathlib

import keras
import numpy as np
import pytest
from pytest_examples import CodeExample, EvalExample, find_examples

import gpt1_keras
from tests.helpers.eager import eagerly

ROOT = pathlib.Path(__file__).parents[2]
SOURCES = [ROOT / name for name in ("README.md", "docs", "gpt1_keras", "training", "serving")]
# By what stands in an example: why it is not run here.
NOT_RUN = {
    "num_tokens = num_tokens + 1": "tests/examples/test_on_device.py runs it",
    'TextModel("sst2.tflite")': "tests/serving/tflite/test_text_model.py runs such a file",
    'read_metadata("sst2.tflite")': "tests/serving/tflite/test_converter.py reads metadata",
    "GPT1Backbone()": "the paper's size takes seconds to build",
    "load_openai": "tests/gpt1_keras/convert/test_openai.py runs it",
}


# Pages whose code is a notebook's, which a test of its own runs.
NOTEBOOK_PAGES = {"own_data.md"}


def identify(example: CodeExample) -> str:
    return f"{example.path.relative_to(ROOT)}:{example.start_line}"


@pytest.fixture(scope="module")
def folder(tiny_tokenizer, tmp_path_factory):
    """A folder of what the examples name: presets, and OpenAI's and Hugging Face's files."""
    path = tmp_path_factory.mktemp("examples")
    keras.utils.set_random_seed(0)
    lm = gpt1_keras.GPT1CausalLM(
        gpt1_keras.GPT1Backbone(
            tiny_tokenizer.vocabulary_size(), 1, 2, 32, 128, max_sequence_length=64
        ),
        preprocessor=gpt1_keras.GPT1CausalLMPreprocessor(tiny_tokenizer),
    )
    lm.save_to_preset(path / "path/to/preset")
    gpt1_keras.GPT1TextClassifier(
        lm.backbone,
        class_names=["negative", "positive"],
        preprocessor=gpt1_keras.GPT1TextClassifierPreprocessor(tiny_tokenizer),
    ).save_to_preset(path / "runs/mine/best")
    (path / "path/to/openai-gpt").mkdir()
    gpt1_keras.convert.save_hugging_face(lm, path / "path/to/openai-gpt")
    return path


@pytest.mark.slow
@pytest.mark.parametrize("example", find_examples(*SOURCES), ids=identify)
def test_example(example: CodeExample, eval_example: EvalExample, folder, request):
    if example.path.name in NOTEBOOK_PAGES:
        pytest.skip("tests/examples/test_own_data.py runs it")
    for text, reason in NOT_RUN.items():
        if text in example.source:
            pytest.skip(reason)
    names = {"gpt1_keras": gpt1_keras, "np": np, "__name__": "example"}
    if "encoder_bpe_40000.json" in example.source:
        for file in map(pathlib.Path, request.getfixturevalue("original_files")):
            link = folder / file.name
            link.exists() or link.symlink_to(file)
    failure = None
    with contextlib.chdir(folder), eagerly():
        try:
            eval_example.run(example, module_globals=names)
        except Exception as error:  # pytest cannot print the traceback made of the page's lines
            failure = repr(error)
    assert failure is None
