"""Presets are published with their cards, and load from there."""

import json
import pathlib
import re
import shutil
import sys
import types
from html import unescape

import huggingface_hub
import keras
import markdown_it
import numpy as np
import pytest
import yaml
from keras_hub.src.utils import preset_utils

import gpt1_keras
from gpt1_keras.presets import find_preset, load_task, load_tokenizer, upload_preset
from gpt1_keras.presets.publishing import RunFacts, licence_of, update_card, write_card
from tests.helpers.hub_server import running_hub

FACTS = RunFacts(
    name="films",
    data={"source": "films.csv | more", "train_examples": 16},
    settings={"epochs": 2, "learning_rate": 6.25e-5, "dropout": None},
    scores=[{"epoch": 1, "accuracy": 0.75}, {"epoch": 2, "accuracy": 0.5}],
    best=1,
    baselines={"majority class": 0.5, "words | tf-idf": 0.625},
    base="hf://openai-community/openai-gpt",
    licence="mit",
)


@pytest.fixture(scope="module")
def classifier(tiny_tokenizer):
    backbone = gpt1_keras.GPT1Backbone(
        tiny_tokenizer.vocabulary_size(), 1, 2, 8, 32, max_sequence_length=16
    )
    preprocessor = gpt1_keras.GPT1TextClassifierPreprocessor(tiny_tokenizer)
    return gpt1_keras.GPT1TextClassifier(
        backbone, class_names=["bad", "good"], preprocessor=preprocessor
    )


@pytest.fixture(scope="module")
def saved(classifier, tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved")
    classifier.save_to_preset(folder)
    return folder


@pytest.fixture
def preset(saved, tmp_path):
    """A copy, to be changed."""
    return pathlib.Path(shutil.copytree(saved, tmp_path / "preset"))


@pytest.fixture
def hub(tmp_path):
    with running_hub(tmp_path / "cache") as hub:
        yield hub


def contents(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def assert_same_weights(found, expected):
    for ours, theirs in zip(found.get_weights(), expected.get_weights(), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_the_card_says_what_the_run_knows(preset):
    write_card(preset, FACTS)
    text = (preset / "README.md").read_text(encoding="utf-8")
    data = huggingface_hub.ModelCard(text).data
    assert (data.license, data.library_name) == ("mit", "keras-hub")
    assert (data.pipeline_tag, data.base_model) == (
        "text-classification",
        "openai-community/openai-gpt",
    )
    [result] = data.eval_results
    assert (result.metric_type, result.metric_value) == ("accuracy", 0.75)
    for subject in ("Model", "Data", "Training", "Scores", "Limits", "Licence"):
        assert f"\n## {subject}\n" in text
    for row in (
        "| class names | bad, good |",
        "| normalization | bert |",
        "| source | films.csv \\| more |",
        "| learning rate | 6.25e-05 |",
        "| 1 (this preset) | 0.7500 |",
        "| 2 | 0.5000 |",
        "| baseline | accuracy |",
        "| words \\| tf-idf | 0.6250 |",
        'model.classify(["a text"])',
    ):
        assert f"\n{row}\n" in text
    assert "dropout" not in text
    parameters = json.loads((preset / "metadata.json").read_text())["parameter_count"]
    assert f"| parameters | {parameters:,} |" in text
    assert licence_of(preset) == "mit"


@pytest.mark.parametrize(
    ("score", "expected"),
    [
        *((kind(0.75), 0.75) for kind in (np.float16, np.float32, np.float64, np.longdouble)),
        (np.float32(0.9), 0.9),  # not 0.8999999761581421
        (np.array(0.9, "float32"), 0.9),
        (keras.ops.convert_to_tensor(0.9), 0.9),
        *((kind(1), 1) for kind in (int, np.int64, np.uint8)),
        *((kind(each), None) for kind in (float, np.float32) for each in ("nan", "inf", "-inf")),
        (None, None),
    ],
)
def test_scores_of_any_library(preset, score, expected):
    """The head is YAML that any reader takes; JSON and some hubs have neither NaN nor infinity."""
    scores = [{"epoch": np.int64(1), "accuracy": score}, {"epoch": 2, "f1": 0.5}]
    write_card(preset, RunFacts(name="films", scores=scores, best=1, licence="mit"))
    text = (preset / "README.md").read_text(encoding="utf-8")
    head = yaml.safe_load(text.split("---\n")[1])
    assert licence_of(preset) == head["license"] == "mit"
    assert ("model-index" in head) == (expected is not None)
    if expected is not None:
        [metric] = head["model-index"][0]["results"][0]["metrics"]
        assert metric == {"type": "accuracy", "value": expected}
    shown = "" if score is None else f"{float(score):.4f}"
    assert (
        f"\n| epoch | accuracy | f1 |\n| --- | --- | --- |\n| 1 (this preset) | {shown} |" in text
    )
    assert "\n| 2 |  | 0.5000 |\n" in text


def test_a_score_that_is_no_number(preset):
    with pytest.raises(ValueError, match="accuracy"):
        write_card(preset, RunFacts(scores=[{"epoch": 1, "accuracy": np.array([0.5, 1.0])}]))
    assert not (preset / "README.md").exists()


def test_baselines_without_scores(preset):
    write_card(preset, RunFacts(baselines={"majority": np.float32(0.5), "unknown": None}))
    text = (preset / "README.md").read_text(encoding="utf-8")
    assert "\n| baseline | score |\n| --- | --- |\n| majority | 0.5000 |\n\n" in text


def test_names_as_markdown_shows_them(preset):
    """Read by another reader of Markdown: names in cells are as they were, but for line ends."""
    names = r'a|b  say "hi"  R&amp;D  <pad>  **  _a_  `x`  [a](b)  a: b  \|  #  $1$'.split("  ")
    task = json.loads((preset / "task.json").read_text())
    task["config"]["class_names"] = [*names, "two\nlines"]
    (preset / "task.json").write_text(json.dumps(task))
    facts = {name: name for name in names}
    scores = [{"epoch": 1, **dict.fromkeys(names, 0.5)}]
    write_card(preset, RunFacts('a: "b"\n| c', facts, facts, scores, 1, dict.fromkeys(names, 0.5)))
    text = (preset / "README.md").read_text(encoding="utf-8")
    head = yaml.safe_load(text.split("---\n")[1])
    metrics = head["model-index"][0]["results"][0]["metrics"]
    assert [each["type"] for each in metrics] == names
    assert head["model-index"][0]["name"] == 'a: "b"\n| c'
    html = markdown_it.MarkdownIt().enable("table").render(text.split("---\n", 2)[2])
    assert html.startswith("<h1>a: &quot;b&quot;\\n| c</h1>")
    rows = [
        [unescape(cell) for cell in re.findall("<t[hd]>(.*)</t[hd]>", row)]
        for row in html.split("</tr>")
    ]
    assert ["class names", ", ".join([*names, "two\\nlines"])] in rows
    assert ["epoch", *names] in rows
    assert all([name.replace("_", " ").strip(), name] in rows for name in names)
    assert all([name, "0.5000"] in rows for name in names)


def test_a_card_learns_of_a_calibration(preset):
    write_card(preset, FACTS)
    before = (preset / "README.md").read_text(encoding="utf-8")
    update_card(preset)
    assert (preset / "README.md").read_text(encoding="utf-8") == before
    task = json.loads((preset / "task.json").read_text())
    task["config"] |= {"temperature": 1.5, "sure_threshold": 0.75}
    (preset / "task.json").write_text(json.dumps(task))
    update_card(preset)
    rows = (preset / "README.md").read_text(encoding="utf-8").splitlines()
    assert [row for row in rows if row not in before.splitlines()] == [
        "| temperature | 1.5 |",
        "| sure threshold | 0.75 |",
    ]
    (preset / "README.md").unlink()
    update_card(preset)
    assert not (preset / "README.md").exists()


def test_a_card_of_a_run_that_nobody_recorded(preset):
    write_card(preset)
    text = (preset / "README.md").read_text(encoding="utf-8")
    assert text.count("Not recorded.") == 3
    assert "Not stated" in text
    assert licence_of(preset) is None
    assert licence_of("gpt1_tiny_books") == "apache-2.0"
    (preset / "README.md").write_text("---\nlicense: [\n---\n")
    assert licence_of(preset) is None


@pytest.mark.slow
def test_to_a_hub_and_back(hub, preset, classifier, tmp_path):
    write_card(preset, FACTS)
    upload_preset("hf://someone/films", preset)
    assert hub.repositories["someone/films"] == contents(preset)
    assert_same_weights(load_task("hf://someone/films"), classifier)
    assert load_tokenizer("hf://someone/films").normalization == "bert"
    backbone = gpt1_keras.GPT1Backbone.from_preset("hf://someone/films")
    assert_same_weights(backbone, classifier.backbone)
    # From there to a folder.
    upload_preset(str(tmp_path / "copy"), "hf://someone/films")
    assert contents(tmp_path / "copy") == contents(preset)


def test_a_preset_of_the_hub_that_lost_its_head(hub, preset):
    hub.add_folder("someone/films", preset)
    del hub.repositories["someone/films"]["task.weights.h5"]
    with pytest.raises(ValueError, match="task.weights.h5"):
        load_task("hf://someone/films")


def test_a_damaged_preset_of_the_hub(hub, preset):
    hub.add_folder("someone/films", preset)
    content = hub.repositories["someone/films"]["model.weights.h5"]
    hub.damaged["model.weights.h5"] = content[:-1] + b"?"
    with pytest.raises(ValueError, match="model.weights.h5 of hf://.*removed"):
        gpt1_keras.GPT1Backbone.from_preset("hf://someone/films")


def test_to_a_folder(preset, classifier, tmp_path):
    """What has no card of its own is published with one."""
    target = tmp_path / "published" / "films"
    target.mkdir(parents=True)
    (target / "of_before").touch()
    upload_preset(str(target), preset)
    published = contents(target)
    assert b"# GPT1TextClassifier\n" in published.pop("README.md")
    assert published == contents(preset)
    assert_same_weights(load_task(target), classifier)


def test_a_backbone_alone(classifier, tmp_path):
    classifier.backbone.save_to_preset(tmp_path / "preset")
    upload_preset(str(tmp_path / "copy"), tmp_path / "preset")
    assert "# GPT1Backbone\n" in (tmp_path / "copy" / "README.md").read_text()


def test_what_is_not_published(preset, hub, tmp_path):
    for uri in ("modelscope://someone/films", "gs://bucket/films"):
        with pytest.raises(ValueError, match=uri):
            upload_preset(uri, preset)
    with pytest.raises(FileNotFoundError, match="nowhere"):
        upload_preset("hf://someone/films", tmp_path / "nowhere")
    (preset / "model.weights.h5").write_bytes(b"")
    with pytest.raises(ValueError, match="model.weights.h5"):
        upload_preset("hf://someone/films", preset)
    assert not hub.requests


def test_a_hub_that_cannot_be_reached(preset, hub):
    hub.server_close()
    with pytest.raises(OSError, match="hf://someone/films") as caught:
        upload_preset("hf://someone/films", preset)
    assert "\n" not in str(caught.value)
    with pytest.raises(ValueError):
        upload_preset("hf://some one/films", preset)


def test_from_and_to_kaggle(preset, classifier, monkeypatch):
    """By KerasHub's client, which is asked for one file at a time."""
    handle, uploaded = "someone/gpt1/keras/films", []

    def download(found, path):
        assert found == handle
        if not (preset / path).is_file():
            raise ValueError(f"{path} is not present in the model files")
        return str(preset / path)

    monkeypatch.setattr(preset_utils.kagglehub, "model_download", download)
    monkeypatch.setattr(
        preset_utils.kagglehub, "model_upload", lambda *arguments: uploaded.append(arguments)
    )
    assert find_preset(f"kaggle://{handle}") == preset
    assert_same_weights(load_task(f"kaggle://{handle}"), classifier)
    tokenizer = gpt1_keras.GPT1Tokenizer.from_preset(f"kaggle://{handle}")
    assert tokenizer.fingerprint == classifier.preprocessor.tokenizer.fingerprint
    write_card(preset)
    upload_preset(f"kaggle://{handle}", preset)
    assert uploaded == [(handle, str(preset))]
    with pytest.raises(ValueError, match="Kaggle model handles"):
        find_preset("kaggle://films")

    def fail(found, path):
        raise ConnectionError("Max retries\nexceeded")

    monkeypatch.setattr(preset_utils.kagglehub, "model_download", fail)
    with pytest.raises(OSError, match="config.json of kaggle://.*Max retries e"):
        load_task(f"kaggle://{handle}")


def test_from_modelscope(preset, classifier, monkeypatch):
    """Whose client is not installed here, and downloads whole repositories."""
    with pytest.raises(ImportError, match="modelscope"):
        load_task("modelscope://someone/films")
    client = types.ModuleType("modelscope.hub.snapshot_download")
    client.snapshot_download = {"someone/films": str(preset)}.__getitem__
    for name in ("modelscope", "modelscope.hub"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, client.__name__, client)
    assert_same_weights(load_task("modelscope://someone/films"), classifier)
    with pytest.raises(OSError, match="config.json of modelscope://nobody/x"):
        load_task("modelscope://nobody/x")
