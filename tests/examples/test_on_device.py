"""The examples for devices give the model's scores: Python, C, and a page in a browser."""

import functools
import http.server
import json
import pathlib
import re
import shutil
import subprocess
import sys
import threading

import ai_edge_litert
import keras
import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter

import gpt1_keras
from serving.tflite import __main__ as command
from serving.tflite import read_metadata

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples" / "on_device"
TEXT = "a lovely film, d\u00e9j\u00e0 vu"


@pytest.fixture(scope="module")
def model_file(tiny_tokenizer, tmp_path_factory):
    """A classifier's file, as the command makes it, and its scores of TEXT in Python."""
    keras.utils.set_random_seed(0)
    preprocessor = gpt1_keras.GPT1TextClassifierPreprocessor(tiny_tokenizer)
    classifier = gpt1_keras.GPT1TextClassifier(
        gpt1_keras.GPT1Backbone(
            tiny_tokenizer.vocabulary_size(), 1, 2, 32, 64, max_sequence_length=32
        ),
        class_names=["bad", "good"],
        preprocessor=preprocessor,
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


def test_python(model_file):
    path, scores = model_file
    [line] = run(sys.executable, EXAMPLES / "score.py", path, TEXT).splitlines()
    found, text = re.fullmatch(r"\[(.*)\] (.*)", line).groups()
    np.testing.assert_allclose(np.fromstring(found, sep=" "), scores, atol=1e-4)
    assert text == TEXT


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
def test_c(model_file, tmp_path):
    path, scores = model_file
    library = pathlib.Path(ai_edge_litert.__file__).parent / "libLiteRt.so"
    rpath = f"-Wl,-rpath,{library.parent}"
    warnings = ["-std=c11", "-Wall", "-Wextra", "-Werror"]
    run("cc", *warnings, EXAMPLES / "score.c", "-o", tmp_path / "score", library, rpath)
    lines = run(tmp_path / "score", path, f"text={TEXT}").splitlines()
    answers = dict(line.split(": ", 1) for line in lines)
    assert json.loads(answers["metadata"]) == read_metadata(path)
    np.testing.assert_allclose(np.fromstring(answers["scores"], sep=" "), scores, atol=1e-4)
    assert answers["truncated"] == "0"


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


def test_browser(model_file, site, tiny_tokenizer):
    arguments = ["--headless=new", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=60000"]
    page = run("chromium", *arguments, "--dump-dom", f"{site}/?text={TEXT.replace(' ', '+')}")
    assert "Error" not in page
    [scores] = re.findall(r'data-scores="\[(.*?)\]"', page)
    np.testing.assert_allclose(np.fromstring(scores, sep=","), model_file[1], atol=1e-4)
    assert f"{2 + len(tiny_tokenizer(TEXT))} tokens;" in page
    assert "good" in page and "bad" in page
