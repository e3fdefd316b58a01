"""The use of the context, for models where it is known."""

import json
import types

import keras
import numpy as np
import pytest
from keras import ops

import gpt1_keras
from gpt1_keras.models.causal_backbone import CausalBackbone, token_inputs
from training.evaluation import context_use
from training.evaluation.context_use import ContextUse, plot_series, spread_windows
from training.paper.commands import context_use as main

TOKENS, LENGTH = 40, 24
CONFIDENCE = 7.0  # the logit of the token that is copied, where all others are 0


class _Copy(keras.layers.Layer):
    """What followed the last earlier occurrence of each token, one-hot; else 0."""

    def call(self, token_ids):
        length = ops.shape(token_ids)[1]
        earlier = ops.arange(length)[:, None] > ops.arange(length)
        same = (token_ids[:, :, None] == token_ids[:, None, :]) & earlier
        last = ops.max(ops.where(same, ops.arange(length), -1), axis=-1)
        copied = ops.take_along_axis(token_ids, ops.maximum(last, -1) + 1, axis=1)
        return ops.where(last[..., None] >= 0, CONFIDENCE * ops.one_hot(copied, TOKENS), 0.0)

    def compute_output_shape(self, shape):
        return (*shape, TOKENS)


class CopyingBackbone(CausalBackbone):
    """A model that copies, and knows nothing else."""

    def __init__(self):
        self.embedding = keras.layers.ReversibleEmbedding(TOKENS, TOKENS)
        inputs = token_inputs()
        super().__init__(inputs=inputs, outputs=_Copy()(inputs["token_ids"]))
        self.embedding.build()
        self.embedding.embeddings.assign(np.eye(TOKENS))
        self.vocabulary_size = self.hidden_dim = TOKENS
        self.max_sequence_length = LENGTH

    @property
    def token_embedding(self):
        return self.embedding


@pytest.fixture(scope="module")
def bigram_lm():
    """A GPT-1 that sees no other token than the last: nothing passes attention, nor positions."""
    keras.utils.set_random_seed(0)
    backbone = gpt1_keras.GPT1Backbone(
        TOKENS, num_layers=1, num_heads=2, hidden_dim=16, intermediate_dim=16,
        max_sequence_length=LENGTH,
    )  # fmt: skip
    backbone.token_embedding.embeddings.assign(np.random.normal(size=(TOKENS, 16)))
    for variable in backbone.variables:
        if "attention/output_projection" in variable.path or "position" in variable.path:
            variable.assign(np.zeros(variable.shape))
    lm = gpt1_keras.GPT1CausalLM(backbone)
    lm.compile()
    return lm


def test_a_model_that_copies():
    lm = gpt1_keras.GPT1CausalLM(CopyingBackbone())
    lm.compile()
    # No token twice in a window: nothing to copy before the passage is read again.
    rows = [np.random.default_rng(seed).permutation(TOKENS)[: LENGTH + 1] for seed in range(6)]
    use = ContextUse(lm, np.array(rows, np.int32)).measure()
    unknown, known = np.log(TOKENS), np.log1p((TOKENS - 1) * np.exp(-CONFIDENCE))
    assert [each["loss"] for each in use["loss_by_position"]] == pytest.approx([unknown] * 3)
    assert [(each["from"], each["to"]) for each in use["loss_by_position"]] == [
        (0, 8), (8, 16), (16, 24)
    ]  # fmt: skip
    passage = use["repeated_passage"]
    assert passage["tokens"] == 12
    assert passage["first"] == pytest.approx(unknown)
    assert passage["second"] == pytest.approx(known, rel=1e-4)
    assert passage["gap"] == pytest.approx(unknown - known)
    assert passage["standard_error"] == pytest.approx(0, abs=1e-6)


def test_a_bigram_model(bigram_lm):
    """Its losses from its own table of bigrams; a passage costs the same each time."""
    windows = np.random.default_rng(0).integers(0, TOKENS, (10, LENGTH + 1)).astype(np.int32)
    states = bigram_lm.backbone({"token_ids": np.arange(TOKENS)[:, None].repeat(2, axis=1)})
    logits = states[:, 0].numpy() @ bigram_lm.backbone.token_embedding.embeddings.numpy().T
    table = np.log(np.exp(logits).sum(-1, keepdims=True)) - logits
    losses = table[windows[:, :-1], windows[:, 1:]]
    use = ContextUse(bigram_lm, windows).measure()
    for each in use["loss_by_position"]:
        part = losses[:, each["from"] : each["to"]].mean(axis=1)
        assert each["loss"] == pytest.approx(part.mean(), rel=1e-5)
        assert each["standard_error"] == pytest.approx(part.std(ddof=1) / 10**0.5, rel=1e-4)
    passage = use["repeated_passage"]
    assert passage["gap"] == pytest.approx(0, abs=1e-6)
    assert passage["first"] == pytest.approx(losses[:, :11].mean(), rel=1e-5)


@pytest.mark.parametrize("shape", [(0, 9), (2, 3)])
def test_windows_that_hold_nothing_twice(shape, bigram_lm):
    with pytest.raises(ValueError, match="4 tokens"):
        ContextUse(bigram_lm, np.zeros(shape, np.int32))


def test_windows_are_spread_and_cross_no_shard():
    shards = [np.arange(20, dtype=np.uint16), np.arange(100, 104, dtype=np.uint16)]
    assert spread_windows(shards, 4, 2).tolist() == [[0, 1, 2, 3, 4], [10, 11, 12, 13, 14]]
    assert spread_windows(shards, 3, 9)[-1].tolist() == [100, 101, 102, 103]
    assert len(spread_windows(shards, 3, 9)) == 6
    assert spread_windows(shards, 20, 3).shape == (0, 21)


def test_tokens_that_were_never_trained_are_no_targets(bigram_lm, monkeypatch, tmp_path):
    """Windows in which another text begins are left out; a text's own `<start>` is only read."""
    shard = np.random.default_rng(0).integers(0, TOKENS - 3, 3 * (LENGTH + 1))
    shard[[0, LENGTH + 7]] = TOKENS - 3
    corpus = types.SimpleNamespace(split=lambda _: types.SimpleNamespace(shards=[shard]))
    monkeypatch.setattr(context_use, "Corpus", lambda _: corpus)
    monkeypatch.setattr(context_use, "load_for_corpus", lambda *_: bigram_lm)
    monkeypatch.setattr(bigram_lm.backbone, "num_untrained_tokens", 3)
    found = context_use.measure_context_use("preset", tmp_path, corpus="corpus")
    assert found["windows"] == 2
    assert found["loss_by_position"][0]["loss"] < 100.0
    shard[LENGTH:] = TOKENS - 3
    with pytest.raises(ValueError, match="<start>"):
        context_use.measure_context_use("preset", tmp_path, corpus="corpus")


@pytest.mark.slow
def test_the_program(pretrained, corpus, tmp_path, capsys):
    """Of a run, what its last entry says, and the same on its text."""
    folder, result = pretrained
    arguments = ["--preset", str(folder / "preset"), "--windows", "64"]
    assert main([*arguments, "--corpus", str(corpus), "--output", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    found = json.loads((tmp_path / "context_use.json").read_text())
    last = result["history"][-1]["context_use"]
    assert found["windows"] == last["windows"] and (tmp_path / "context_use.svg").exists()
    for ours, theirs in zip(found["loss_by_position"], last["loss_by_position"], strict=True):
        assert ours["loss"] == pytest.approx(theirs["loss"], abs=1e-5)
    gap = last["repeated_passage"]["gap"]
    assert found["repeated_passage"]["gap"] == pytest.approx(gap, abs=1e-5)
    assert f"a gap of {gap:.3f} nats" in printed

    text = corpus.parent / "texts" / "valid" / "c.txt"
    assert main([*arguments, "--text", str(text), "--output", str(tmp_path / "text")]) == 0
    from_text = json.loads((tmp_path / "text" / "context_use.json").read_text())
    assert from_text["loss_by_position"] == found["loss_by_position"]


@pytest.mark.slow
def test_errors_are_one_line(pretrained, corpus, tmp_path, capsys):
    (tmp_path / "short.txt").write_text("a film")
    preset, short = ["--preset", str(pretrained[0] / "preset")], str(tmp_path / "short.txt")
    for arguments, message in (
        ([*preset, "--text", short], "takes 129 tokens, and the longest text in "),
        ([*preset, "--text", "nowhere.txt"], "No such file or directory: 'nowhere.txt'"),
        ([*preset, "--corpus", str(corpus), "--text", short], "Give either --corpus or --text."),
        (preset, "Give either --corpus or --text."),
        ([*preset, "--corpus", str(corpus), "--windows", "0"], "windows must be at least 1"),
        (["--preset", "nowhere", "--text", short], "nowhere is not a preset"),
        (["--preset", "gpt1_tiny_books", "--corpus", str(corpus)], "made with another tokenizer"),
    ):
        assert main([*arguments, "--output", str(tmp_path / "out")]) == 1
        error = capsys.readouterr().err
        assert message in error and error.count("\n") == 1
        assert not (tmp_path / "out").exists()


def test_a_run_s_plot():
    def entry(step, gap):
        bins = [{"from": 0, "to": 8, "loss": 5.0, "standard_error": None}]
        passage = {"tokens": 12, "first": 5.0, "second": 5.0 - gap, "gap": gap}
        return {
            "step": step,
            "context_use": {"loss_by_position": bins, "repeated_passage": passage},
        }

    left, right = plot_series([entry(10 * i, 0.5 * i) for i in range(1, 9)], "a run").axes
    assert [text.get_text() for text in left.get_legend().get_texts()] == [
        f"after {step} updates" for step in (10, 30, 50, 60, 80)
    ]  # fmt: skip
    first, second = right.lines
    assert list(first.get_ydata()) == [5.0] * 8
    assert list(second.get_ydata()) == [5.0 - 0.5 * i for i in range(1, 9)]
    assert "last gap: 4.00" in right.get_title()
