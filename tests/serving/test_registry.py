"""A user's task is exported through one entry in the registry; no other task is guessed."""

import dataclasses
import functools
import json
import pathlib

import keras
import keras_hub
import numpy as np
import pytest
from keras import ops

import gpt1_keras
from gpt1_keras.tasks.task import Task
from gpt1_keras.tokenization.padding import bucket_lengths
from serving import check, registry
from serving.export import export
from serving.export.task_answers import Answers
from serving.export.task_signatures import task_signatures
from serving.registry import TaskEntry, find_part, register_task
from serving.tflite import convert

TEXTS = ["a good film", "the staff were kind, and a dull one", ""]


class TextEmbedder(Task, keras_hub.models.Task):
    """A head of its own: a text's embedding is the mean of its tokens' projected states."""

    backbone_cls = gpt1_keras.GPT1Backbone
    preprocessor_cls = gpt1_keras.GPT1TextClassifierPreprocessor

    def __init__(self, backbone, preprocessor=None, dim=8, **kwargs):
        self.attach(backbone, preprocessor)
        self.dim = dim
        self.projection = keras.layers.Dense(dim, name="projection")
        token_ids = backbone.input["token_ids"]
        mask = keras.Input((None,), dtype="int32", name="padding_mask")
        outputs = self._embed(backbone({"token_ids": token_ids}), mask)
        inputs = {"token_ids": token_ids, "padding_mask": mask}
        super().__init__(inputs=inputs, outputs=outputs, **kwargs)

    def _embed(self, hidden_states, mask):
        weights = ops.expand_dims(ops.cast(mask, "float32"), -1)
        return ops.sum(self.projection(hidden_states) * weights, 1) / ops.sum(weights, 1)

    def predict_outputs(self, inputs):
        states = self.backbone({"token_ids": inputs["token_ids"]}, training=False)
        return self._embed(states, inputs["padding_mask"])

    def get_config(self):
        return {**super().get_config(), "dim": self.dim}


def embedding_signatures(spec):
    """`embedding`, float `[batch, dim]`; and `embed`, a signature more, from text to it alone."""
    signatures = task_signatures(spec, Answers(lambda answers: {"embedding": answers}))
    default = signatures.by_name["serving_default"]
    signatures.by_name["embed"] = dataclasses.replace(
        default,
        function=lambda **texts: {"embedding": default.function(**texts)["embedding"]},
        description="`embed` returns nothing but the embedding.",
    )
    return signatures


@pytest.fixture
def registered(monkeypatch):
    """The embedder, registered for one test."""
    monkeypatch.setattr(registry, "_registered", {})
    register_task(TextEmbedder, TaskEntry(embedding_signatures))


@pytest.fixture(scope="module")
def embedder(tiny_tokenizer):
    keras.utils.set_random_seed(0)
    backbone = gpt1_keras.GPT1Backbone(
        tiny_tokenizer.vocabulary_size(), 1, 2, 16, 32, max_sequence_length=24
    )
    preprocessor = gpt1_keras.GPT1TextClassifierPreprocessor(tiny_tokenizer)
    return TextEmbedder(backbone, preprocessor)


@pytest.mark.slow
def test_a_registered_task_is_exported(embedder, registered, run_cpp, tmp_path):
    path = pathlib.Path(export(embedder, tmp_path))
    expected = embedder.predict(np.array(TEXTS, object), verbose=0)
    assert np.ptp(expected, axis=0).max() > 0.01  # texts differ
    found = run_cpp(path, "serving_default", text=TEXTS)
    np.testing.assert_allclose(found["embedding"], expected, atol=1e-5)
    assert set(found) == {"embedding", "num_tokens", "truncated", "blank"}
    found = run_cpp(path, "embed", text=TEXTS)
    np.testing.assert_allclose(found["embedding"], expected, atol=1e-5)
    assert list(found) == ["embedding"]
    metadata = json.loads((path / "assets.extra" / "gpt1_keras.json").read_text())
    assert metadata["task"] == "TextEmbedder"


@pytest.mark.slow
def test_a_signature_more_is_described_and_checked(embedder, registered, capsys, tmp_path):
    """And nobody but the function that makes it knows of it."""
    path = pathlib.Path(export(embedder, tmp_path))
    readme = (path / "assets.extra" / "README.md").read_text()
    assert "### embed\n\n`embed` returns nothing but the embedding.\n\n| |" in readme
    assert check.main([str(path)]) == 0
    # A request for each length, and one of two texts.
    count = len(bucket_lengths(embedder.preprocessor.sequence_length)) + 1
    assert f"  embed, requests from the warm-up: {count}\n" in capsys.readouterr().out


def test_what_an_entry_leaves_out_is_refused(embedder, registered, tmp_path):
    with pytest.raises(ValueError, match="metric"):
        export(embedder, tmp_path / "export", validation=[{"text": "a", "label": "b"}])
    with pytest.raises(ValueError, match="device_graph"):
        convert(embedder, tmp_path / "model.tflite")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("write", [export, convert])
def test_an_unregistered_task_is_refused(embedder, tmp_path, write):
    """In words that say how to register it."""
    with pytest.raises(ValueError, match=r"registry.register_task\(TextEmbedder, "):
        write(embedder, tmp_path / "output")
    assert not list(tmp_path.iterdir())


def test_the_nearest_registered_class_counts(embedder, registered):
    class Better(TextEmbedder):
        pass

    class Best(Better):
        pass

    best = Best(embedder.backbone, embedder.preprocessor)

    def find(model):
        return find_part(model, {}, "signatures", "be exported")

    assert find(embedder) is find(best) is embedding_signatures
    register_task(Better, TaskEntry(other := functools.partial(embedding_signatures)))
    assert find(best) is other
    assert find(embedder) is embedding_signatures
