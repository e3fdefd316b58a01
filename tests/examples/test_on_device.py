"""The examples for devices give the model's answers: Python, C, and a page in a browser."""

import contextlib
import functools
import http.server
import json
import pathlib
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import threading

import ai_edge_litert
import keras
import numpy as np
import pytest
from ai_edge_litert.compiled_model import CompiledModel
from ai_edge_litert.interpreter import Interpreter
from playwright.sync_api import expect, sync_playwright

import gpt1_keras
from serving.tflite import __main__ as command
from serving.tflite import convert, read_metadata

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples" / "on_device"
TEXT = "a lovely film, d\u00e9j\u00e0 vu"
LONG_NAME = "bad_" * 12


@pytest.fixture(scope="module")
def model_file(tiny_tokenizer, tmp_path_factory):
    """A classifier's file, as the command makes it, and its scores of TEXT in Python."""
    keras.utils.set_random_seed(0)
    preprocessor = gpt1_keras.GPT1TextClassifierPreprocessor(tiny_tokenizer)
    classifier = gpt1_keras.GPT1TextClassifier(
        gpt1_keras.GPT1Backbone(
            tiny_tokenizer.vocabulary_size(), 1, 2, 32, 64, max_sequence_length=32
        ),
        class_names=[LONG_NAME, "good"],
        preprocessor=preprocessor,
        sure_threshold=0.6,
    )
    classifier.head.kernel.assign(3.0 * np.random.default_rng(0).normal(size=(32, 2)))
    folder = tmp_path_factory.mktemp("on_device")
    classifier.save_to_preset(folder / "preset")
    path = folder / "model.tflite"
    arguments = ["--model", folder / "preset", "--output", path, "--quantize", "int8"]
    assert command.main([*map(str, arguments), "--max-bytes=128", "--sequence-length=32"]) == 0
    assert read_metadata(path)["weights"] == "int8"
    text = np.frombuffer(TEXT.encode().ljust(128, b"\0"), np.uint8).astype(np.int32)
    scores = Interpreter(str(path)).get_signature_runner("text")(text=text)["scores"]
    expected = keras.ops.softmax(classifier.predict([TEXT], verbose=0))[0]
    np.testing.assert_allclose(scores, expected, atol=0.02)
    return path, scores


def run(*command, **arguments):
    process = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, timeout=300, **arguments
    )
    assert process.returncode == 0, process.stderr[-3000:]
    return process.stdout


@pytest.fixture
def run_script(monkeypatch, capsys):
    """A function that runs an example in this process, and returns what it prints."""

    def run_it(name, *arguments):
        monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
        runpy.run_path(str(EXAMPLES / name))
        return capsys.readouterr().out

    return run_it


def test_score(model_file, run_script):
    path, scores = model_file
    first, second = map(json.loads, run_script("score.py", path, TEXT, "good").splitlines())
    np.testing.assert_allclose(list(first["scores"].values()), scores, atol=1e-4)
    assert first["label"] == [LONG_NAME, "good"][np.argmax(scores)]
    assert first["is_sure"] == (max(scores) >= 0.6)
    assert (second["num_tokens"], second["truncated"]) == (3, False)


@pytest.mark.slow
def test_generate(tiny_tokenizer, tmp_path, run_script):
    """With the likeliest token each time, the text is that of the Keras model."""
    keras.utils.set_random_seed(0)
    backbone = gpt1_keras.GPT1Backbone(
        tiny_tokenizer.vocabulary_size(), 1, 2, 32, 64, max_sequence_length=24
    )
    lm = gpt1_keras.GPT1CausalLM(backbone, gpt1_keras.GPT1CausalLMPreprocessor(tiny_tokenizer))
    random = np.random.default_rng(0)
    for variable in lm.weights:
        variable.assign(variable + random.normal(0.0, 0.2, variable.shape))
    path = convert(lm, tmp_path / "lm.tflite", 64)
    lm.compile(sampler="greedy")
    prompt = "the staff "
    found = run_script("generate.py", path, prompt, 1)
    assert lm.generate(prompt).strip() == (prompt + found).strip()
    assert len(tiny_tokenizer(run_script("generate.py", path, prompt))) > 10  # chosen at random
    assert run_script("generate.py", path, "") == "\n"


def test_the_calls_of_kotlin(model_file):
    """`TextScorer.kt`, in Python: buffers of all inputs and outputs that the metadata names."""
    path, scores = model_file
    metadata, model = read_metadata(path), CompiledModel.from_file(str(path))
    inputs = {n: model.create_input_buffer_by_name("text", n) for n in metadata["fields"]}
    outputs = {n: model.create_output_buffer_by_name("text", n) for n in metadata["outputs"]}
    slots = np.zeros(metadata["max_bytes"]["text"], np.int32)
    text = TEXT.encode()
    slots[: len(text)] = np.frombuffer(text, np.int8)  # signed, as in Kotlin
    inputs["text"].write(slots)
    model.run_by_name("text", inputs, outputs)
    found = outputs["scores"].read(len(metadata["class_names"]), np.float32)
    np.testing.assert_allclose(found, scores, atol=1e-4)
    assert outputs["is_sure"].read(1, np.int32) == [int(scores.max() >= 0.6)]
    assert outputs["truncated"].read(1, np.int32) == [0]
    del outputs["is_sure"]
    with pytest.raises(RuntimeError, match="missing some output"):
        model.run_by_name("text", inputs, outputs)


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
def test_c(model_file, tmp_path):
    """By the command at the file's head."""
    path, scores = model_file
    shutil.copy(EXAMPLES / "score.c", tmp_path)
    [command] = re.findall(r"cc score\.c .*", (tmp_path / "score.c").read_text())
    command = command.replace("PATH", str(pathlib.Path(ai_edge_litert.__file__).parent))
    warnings = ["-std=c11", "-Wall", "-Wextra", "-Werror"]
    run(*shlex.split(command), *warnings, cwd=tmp_path)
    lines = run(tmp_path / "score", path, f"text={TEXT}").splitlines()
    answers = dict(line.split(": ", 1) for line in lines)
    assert json.loads(answers["metadata"]) == read_metadata(path)
    np.testing.assert_allclose(np.fromstring(answers["scores"], sep=" "), scores, atol=1e-4)
    assert (answers["truncated"], answers["is_sure"]) == ("0", str(int(scores.max() >= 0.6)))
    with pytest.raises(AssertionError, match="takes text=TEXT, at least once and at most 1 times"):
        run(tmp_path / "score", path, "text=a", "text=b")


@pytest.fixture(scope="module")
def site(model_file, tmp_path_factory):
    """The address of the page with the model, served on this machine."""
    if shutil.which("chromium") is None or shutil.which("npm") is None:
        pytest.skip("a browser test needs chromium and npm")
    folder = tmp_path_factory.mktemp("site") / "on_device"
    shutil.copytree(EXAMPLES, folder, ignore=shutil.ignore_patterns("node_modules"))
    shutil.copy(model_file[0], folder / "model.tflite")
    npm = ["npm", "install", "--no-audit", "--no-fund", "--prefix", str(folder)]
    if subprocess.run(npm, capture_output=True, timeout=300).returncode:
        pytest.skip("npm cannot install LiteRT.js")
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=folder)
    with http.server.ThreadingHTTPServer(("localhost", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://localhost:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture
def page(site):
    """The page in a window of a phone's width, with LiteRT loaded."""
    with contextlib.ExitStack() as stack:
        playwright = stack.enter_context(sync_playwright())
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"))
        stack.callback(browser.close)
        page = browser.new_page(viewport={"width": 320, "height": 640})
        page.goto(site)
        expect(page.locator("#status")).to_have_text("Type a text.", timeout=60_000)
        yield page


@pytest.mark.slow
def test_browser(model_file, page, tiny_tokenizer):
    _, scores = model_file
    box, status = page.get_by_label("text"), page.locator("#status")
    assert page.locator(".score").count() == 0  # there is no answer to an empty box
    box.fill(TEXT)
    tokens = 2 + len(tiny_tokenizer(TEXT))
    is_sure = "sure" if scores.max() >= 0.6 else "not sure"
    expect(status).to_have_text(re.compile(f"^{is_sure}; {tokens} tokens; "))
    found = json.loads(page.locator("body").get_attribute("data-scores"))
    np.testing.assert_allclose(found, scores, atol=1e-4)
    expect(page.locator(".score span:first-child")).to_have_text([LONG_NAME, "good"])
    assert page.evaluate("document.documentElement.scrollWidth") <= 320
    box.fill(" \n")
    expect(status).to_have_text("Type a text.")
    assert page.locator(".score").count() == 0


@pytest.mark.slow
def test_browser_starts_with_the_text_of_the_address(page, site):
    page.goto(f"{site}/?text=good")
    expect(page.locator("#status")).to_have_text(re.compile("3 tokens"), timeout=60_000)
