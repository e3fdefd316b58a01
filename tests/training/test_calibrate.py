"""The program that calibrates: the preset's temperature, the files, and what it refuses."""

import json

import numpy as np
import pytest
import scipy.special

import gpt1_keras
from gpt1_keras.presets import load_task
from tests.helpers.eager import eagerly
from training.calibrate import main

WORDS = ("good", "bad", "kind", "dull", "lovely", "film")


@pytest.fixture
def write(tmp_path):
    """Writes rows to a file, and returns its path."""

    def write(rows, name="rows.jsonl"):
        path = tmp_path / name
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return str(path)

    return write


@pytest.fixture
def rows():
    random = np.random.default_rng(0)
    return [
        {"text": " ".join(random.choice(WORDS, 4)), "label": "ab"[int(random.random() < 0.6)]}
        for _ in range(80)
    ]


@pytest.fixture
def preset(tiny_backbone, tiny_tokenizer, tmp_path):
    """The folder of a classifier that is surer than it should be."""
    preprocessor = gpt1_keras.GPT1TextClassifierPreprocessor(tiny_tokenizer)
    model = gpt1_keras.GPT1TextClassifier(
        tiny_backbone, class_names=["a", "b"], preprocessor=preprocessor
    )
    model.head.kernel.assign(np.random.default_rng(0).normal(0.0, 0.5, model.head.kernel.shape))
    model.head.bias.assign([0.0, 1.5])
    model.save_to_preset(str(tmp_path / "best"))
    return tmp_path / "best"


def run(capsys, *arguments):
    with eagerly():
        status = main(list(map(str, arguments)))
    return status, capsys.readouterr()


@pytest.mark.slow
def test_it_writes_the_temperature_into_the_preset(preset, rows, write, tmp_path, capsys):
    weights = {path: path.read_bytes() for path in preset.rglob("*.h5")}
    before = load_task(preset)
    arguments = ("--model", preset, "--file", write(rows), "--output", tmp_path / "out")
    status, said = run(capsys, *arguments, "--sure-precision", "0.4")
    assert status == 0, said.err
    content = json.loads((tmp_path / "out/calibration.json").read_text())
    assert content["temperature"] > 1.2 and content["note"] is None
    assert f"Temperature {content['temperature']:.3g}: expected calibration error" in said.out
    assert (tmp_path / "out/calibration.svg").read_text().startswith("<?xml")
    assert {path: path.read_bytes() for path in preset.rglob("*.h5")} == weights
    after = load_task(preset)
    assert after.calibration.temperature == content["temperature"]
    assert after.calibration.sure_threshold == content["sure_threshold"]
    texts = np.array([row["text"] for row in rows], object)
    with eagerly():
        logits = [model.predict(texts, verbose=0) for model in (before, after)]
    np.testing.assert_array_equal(*logits)
    expected = scipy.special.softmax(logits[0] / content["temperature"], axis=1)
    np.testing.assert_allclose(after.probabilities(logits[1]), expected, atol=1e-6)
    # Again, without a threshold: from the same logits, whatever the preset holds. By default, the
    # figures go to the preset's run, where a next run looks for them.
    status, said = run(capsys, *arguments[:4])
    assert status == 1 and "Give --output" in said.err
    (tmp_path / "result.json").write_text("{}")
    assert run(capsys, *arguments[:4])[0] == 0
    assert json.loads((tmp_path / "calibration.json").read_text())["sure"] is None
    found = load_task(preset).calibration
    assert (found.temperature, found.sure_threshold) == (content["temperature"], None)


@pytest.mark.slow
def test_what_it_refuses_changes_nothing(
    preset, rows, write, tiny_backbone, tiny_tokenizer, tmp_path, capsys
):
    scores = gpt1_keras.GPT1TextClassifier(
        tiny_backbone,
        score_range=(0, 5),
        preprocessor=gpt1_keras.GPT1TextClassifierPreprocessor(tiny_tokenizer),
    )
    scores.save_to_preset(str(tmp_path / "scores"))
    file, before = write(rows), (preset / "task.json").read_bytes()
    for arguments, message in (
        (["--model", preset], "Give either --task or --file"),
        (["--model", preset, "--file", file, "--sure-precision", "95"],
         "sure_precision must be above 0 and below 1. Received: 95.0"),
        (["--model", preset, "--file", file, "--sure-precision", "0.999"],
         "No threshold shows a precision of 0.999 on these 80 examples"),
        (["--model", "gpt1_tiny_books", "--file", file], "Expected the folder of a fine-tuned"),
        (["--model", tmp_path / "scores", "--file", file], "predicts scores, which have no prob"),
        (["--model", preset, "--file", write([{"text": "a", "label": "c"}], "other.jsonl")],
         "has the labels ['c']; expected ['a', 'b']"),
    ):  # fmt: skip
        status, said = run(capsys, *arguments, "--output", tmp_path / "out")
        assert (status, said.err.count("\n")) == (1, 1) and message in said.err
    assert (preset / "task.json").read_bytes() == before
    assert not (tmp_path / "out").exists()
