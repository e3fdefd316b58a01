"""The zero-shot probes: each score against a slow, simple implementation."""

import json
import re

import numpy as np
import pytest
import sklearn.metrics
import tensorflow_datasets as tfds

import gpt1_keras
from tests.helpers.eager import eagerly
from training.datasets.data_options import DataOptions
from training.evaluation.likelihood import Scorer
from training.paper.commands import zero_shot as main
from training.paper.probes import PROBES
from training.paper.zero_shot import best_threshold, run_probe, zero_shot_series
from training.runs.pretrain_options import CheckpointSchedule, PretrainOptions
from training.runs.pretraining import pretrain

ASKED = 12


@pytest.fixture(scope="module")
def lm(tiny_lm_parts):
    backbone, tokenizer = tiny_lm_parts
    return gpt1_keras.GPT1CausalLM(backbone, gpt1_keras.GPT1CausalLMPreprocessor(tokenizer))


@pytest.fixture(scope="module")
def tiny_lm_parts(original_tokenizer):
    backbone = gpt1_keras.GPT1Backbone(40481, 1, 2, 16, 32, max_sequence_length=64, dropout=0.0)
    random = np.random.default_rng(3)
    for variable in backbone.trainable_variables:
        if len(variable.shape) > 1:
            variable.assign(random.normal(0.0, 0.3, variable.shape))
    return backbone, original_tokenizer


def log_probabilities(lm, text):
    """Of each token of a text but the first, in a forward pass of its own."""
    tokens = lm.preprocessor.tokenizer(text).numpy()
    logits = np.array(lm({"token_ids": tokens[None]}))[0].astype("float64")
    shifted = logits - logits.max(axis=-1, keepdims=True)
    logs = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return logs[np.arange(len(tokens) - 1), tokens[1:]]


@pytest.mark.slow
def test_a_score_is_the_mean_of_the_ending_s_tokens(lm):
    tokenizer = lm.preprocessor.tokenizer
    pairs = [(b"the road was", b"long and dark"), (b"", b"a good film"), (b"so", b"it ends")]
    expected = []
    for prefix, ending in pairs:
        logs = log_probabilities(lm, (prefix + b" " + ending).decode())
        count = len(tokenizer(ending.decode()))
        expected.append(logs[-count:].mean())
    np.testing.assert_allclose(Scorer(lm)(pairs), expected, atol=1e-5)


@pytest.mark.slow
def test_a_long_prefix_is_cut_on_its_left(lm):
    words = ("the", "road", "was", "long")
    long = " ".join(words[i % 4] for i in range(100))
    # 64 tokens go in and the last two come out, so 65 are read.
    cut = " ".join(words[i % 4] for i in range(100 - 63, 100))
    ending = b"and dark"
    found = Scorer(lm)([(long.encode(), ending), (cut.encode(), ending)])
    assert found[0] == pytest.approx(found[1], abs=1e-6)


def test_nothing_to_predict_is_never_likelier(lm):
    assert Scorer(lm)([(b"", b"film"), (b"a", b""), (b"a", b"film")])[:2].tolist() == [-np.inf] * 2


def real(name, data_dir, split=None):
    probe = PROBES[name]
    builder = tfds.builder(probe.tfds_name, data_dir=data_dir)
    return list(tfds.as_numpy(builder.as_dataset(split=split or probe.split)))


@pytest.mark.slow
def test_cola(lm, tfds_dir):
    """Above a threshold, that of the train split where Matthews' coefficient is best."""

    def score(rows):
        return np.array([log_probabilities(lm, row["sentence"].decode()).mean() for row in rows])

    train, rows = real("cola", tfds_dir, "train")[:ASKED], real("cola", tfds_dir)[:ASKED]
    known = score(train)
    labels = [row["label"] for row in train]
    best = max(
        np.quantile(known, np.linspace(0.01, 0.99, 99)),
        key=lambda value: sklearn.metrics.matthews_corrcoef(labels, known > value),
    )
    expected = sklearn.metrics.matthews_corrcoef([row["label"] for row in rows], score(rows) > best)
    found = run_probe(Scorer(lm), PROBES["cola"], DataOptions(tfds_dir), limit=ASKED)
    assert found["score"] == pytest.approx(expected)
    assert found["questions"] == ASKED
    assert found["relative"] == pytest.approx(expected / 0.35)


@pytest.mark.slow
def test_sst2(lm, tfds_dir):
    """The likelier of two words, one token each, after the sentence and "very"."""
    tokenizer, right = lm.preprocessor.tokenizer, 0
    rows = real("sst2", tfds_dir)[:ASKED]
    for row in rows:
        tokens = tokenizer(row["sentence"].decode() + " very").numpy()
        logits = np.array(lm({"token_ids": tokens[None, -64:]}))[0, -1]
        right += (logits[6353] > logits[9503]) == row["label"]
    assert [tokenizer(word).numpy().tolist() for word in ("negative", "positive")] == [
        [9503],
        [6353],
    ]
    found = run_probe(Scorer(lm), PROBES["sst2"], DataOptions(tfds_dir), limit=ASKED)
    assert found["score"] == pytest.approx(right / ASKED)


@pytest.mark.slow
def test_race(lm, tfds_dir):
    """The choice whose tokens are likeliest after passage and question."""
    scorer, right, asked = Scorer(lm), 0, 0
    for row in real("race_middle", tfds_dir)[:3]:
        options = [[text.decode() for text in texts] for texts in row["options"].to_list()]
        for question, answer, choices in zip(row["questions"], row["answers"], options):
            prefix = f"{row['article'].decode()} {question.decode()}".encode()
            scores = [scorer([(prefix, choice.encode())])[0] for choice in choices]
            right += "ABCD"[int(np.argmax(scores))] == answer.decode()
            asked += 1
    found = run_probe(scorer, PROBES["race_middle"], DataOptions(tfds_dir), limit=asked)
    assert (found["score"], found["questions"]) == (pytest.approx(right / asked), asked)


@pytest.mark.slow
def test_dprd(lm, tfds_dir):
    """The name after which, instead of the pronoun, the rest is likelier."""
    right, rows = 0, real("dprd", tfds_dir)[:ASKED]
    tokenizer = lm.preprocessor.tokenizer
    for row in rows:
        sentence, pronoun = row["sentence"].decode(), row["pronoun"].decode()
        start = re.search(rf"\b{re.escape(pronoun)}\b", sentence, re.IGNORECASE).start()
        rest = sentence[start + len(pronoun) :]
        scores = []
        for candidate in row["candidates"]:
            logs = log_probabilities(lm, sentence[:start] + candidate.decode() + " " + rest)
            scores.append(logs[-len(tokenizer(rest)) :].mean())
        right += int(np.argmax(scores)) == row["label"]
    found = run_probe(Scorer(lm), PROBES["dprd"], DataOptions(tfds_dir), limit=ASKED)
    assert found["score"] == pytest.approx(right / len(rows))
    assert found["relative"] == pytest.approx((found["score"] - 0.5) / (0.7641 - 0.5))


def test_the_threshold_is_the_best_percentile():
    scores, labels = np.arange(100.0), np.arange(100) >= 30
    threshold = best_threshold(scores, labels, sklearn.metrics.accuracy_score)
    assert ((scores > threshold) == labels).mean() >= 0.99


@pytest.fixture
def run(pretrained):
    return pretrained[0]


@pytest.mark.slow
def test_a_series_of_snapshots_and_its_figure(run, pretrained, tfds_dir, tmp_path, capsys):
    assert sorted(path.name for path in (run / "snapshots").iterdir()) == [
        "00000002.weights.h5",
        "00000004.weights.h5",
    ]
    arguments = ["--run", str(run), "--probes", "dprd,sst2", "--limit", "6"]
    arguments += ["--data-dir", tfds_dir, "--output", str(tmp_path)]
    assert main(arguments) == 0
    result = json.loads((tmp_path / "result.json").read_text())
    assert [entry["step"] for entry in result["series"]] == [2, 4, 5]
    assert result["passes_per_update"] == 4 * 128 / pretrained[1]["train_tokens"]
    plot = (tmp_path / "zero_shot.svg").read_text()
    assert ">passes over the corpus</text>" in plot

    # The last one is the preset's; each is that of the snapshot's weights.
    lm = gpt1_keras.GPT1CausalLM.from_preset(str(run / "preset"))
    last = run_probe(Scorer(lm), PROBES["dprd"], DataOptions(tfds_dir), limit=6)
    assert result["series"][-1]["probes"]["dprd"] == last
    lm.backbone.load_weights(run / "snapshots" / "00000002.weights.h5")
    first = run_probe(Scorer(lm), PROBES["dprd"], DataOptions(tfds_dir), limit=6)
    assert result["series"][0]["probes"]["dprd"] == first

    # The same command goes on: here from the last entry, which was not kept.
    (tmp_path / "result.json").write_text(json.dumps({**result, "series": result["series"][:2]}))
    capsys.readouterr()
    beside = tmp_path / "beside.json"
    beside.write_text(json.dumps({**result, "decoder": "LSTMBackbone"}))
    assert main([*arguments, "--beside", str(beside)]) == 0
    assert capsys.readouterr().out.count("step ") == 1
    assert json.loads((tmp_path / "result.json").read_text()) == result
    assert (tmp_path / "zero_shot.svg").read_text() != plot

    with pytest.raises(ValueError, match="limit is 6, not 7"):
        zero_shot_series(
            [run], ["dprd", "sst2"], tmp_path / "result.json", DataOptions(tfds_dir), limit=7
        )


@pytest.mark.slow
def test_runs_that_go_on_are_one_series(corpus, run, tfds_dir, tmp_path, capsys):
    """Of the first run what the second went on from, and none of its decay."""
    schedule = CheckpointSchedule(checkpoint_every=2, snapshot_every=2)
    runs = [tmp_path / "first", tmp_path / "second"]
    for steps, folder in zip((8, 12), runs):
        options = PretrainOptions(
            *("gpt1_micro", steps, 4, 128), warmup_steps=1, decay_steps=4
        )  # decays from 4, and from 8
        before = None if folder == runs[0] else runs[0]
        with eagerly():
            pretrain(
                *(options, corpus, folder),
                checkpoint_schedule=schedule,
                resume_from=before,
            )
    asked = ["--probes", "dprd", "--limit", "4", "--data-dir", tfds_dir]
    both = [*asked, "--run", *map(str, runs), "--output", str(tmp_path / "both")]
    assert main(both) == 0
    series = json.loads((tmp_path / "both" / "result.json").read_text())["series"]
    assert [entry["step"] for entry in series] == [2, 4, 6, 8, 10, 12]
    snapshots = sorted(path.name for path in runs[0].glob("snapshots/*"))
    assert snapshots[-1] == "00000008.weights.h5"  # after the decay, and left out
    assert main([*asked, "--run", str(runs[1]), "--output", str(tmp_path / "last")]) == 0
    last = json.loads((tmp_path / "last" / "result.json").read_text())["series"]
    assert series[2:] == last

    for several, message in (
        ([run, runs[1]], "both need --decay-steps. Received: None in"),
        ([tmp_path, runs[1]], "is not a pre-training: it has no options.json"),
    ):
        arguments = [*asked, "--run", *map(str, several), "--output", str(tmp_path / "none")]
        assert main(arguments) == 1
        assert message in capsys.readouterr().err


@pytest.mark.slow
def test_errors_are_one_line(run, corpus, tmp_path, capsys):
    beside = tmp_path / "beside.json"
    beside.write_text(json.dumps({"names": ["dprd"], "passes_per_update": 0.1}))
    for arguments, message in (
        ([], "Give either --preset or --run"),
        (["--preset", "nowhere"], "nowhere is not a preset"),
        (["--run", str(tmp_path)], "is not a finished pre-training: it has no result.json"),
        (["--run", str(run), "--probes", "dprd,x"], "Unknown probe 'x'; expected one of ['cola'"),
        (["--run", str(run), "--limit", "0"], "limit must be at least 1. Received: 0"),
        (["--run", str(run), "--data-dir", str(tmp_path)], "glue/cola is not in"),
        (
            ["--run", str(run), "--beside", str(beside)],
            "is no result of gpt1 paper zero_shot --run",
        ),
    ):
        assert main([*arguments, "--output", str(tmp_path / "out")]) == 1
        error = capsys.readouterr().err
        assert message in error and error.count("\n") == 1


def test_a_missing_data_set_is_found_before_any_probe(tfds_dir, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(
        "training.paper.zero_shot.Scorer", lambda _: pytest.fail("a probe has begun")
    )
    arguments = ["--preset", "gpt1_tiny_books", "--probes", "dprd,race_high"]
    assert main([*arguments, "--data-dir", tfds_dir, "--output", str(tmp_path)]) == 1
    assert "race/high is not in" in capsys.readouterr().err


def test_finished_probes_are_kept(tfds_dir, tmp_path, monkeypatch, capsys):
    ran = []

    def run_probe(scorer, probe, *_):
        ran.append(probe.tfds_name)
        if ran == ["definite_pronoun_resolution", "glue/sst2"]:
            raise OSError("the disk is gone")
        return {"score": 0.5, "relative": 0.0, "questions": 1}

    monkeypatch.setattr("training.paper.zero_shot.run_probe", run_probe)
    monkeypatch.setattr("training.paper.zero_shot.Scorer", lambda _: run_probe)
    monkeypatch.setattr("training.paper.zero_shot.load_task", lambda *_: None)
    arguments = ["--preset", "gpt1_tiny_books", "--probes", "dprd,sst2", "--data-dir", tfds_dir]
    arguments += ["--output", str(tmp_path)]
    assert main(arguments) == 1
    assert list(json.loads((tmp_path / "result.json").read_text())["probes"]) == ["dprd"]
    assert main(arguments) == 0
    assert ran == ["definite_pronoun_resolution", "glue/sst2", "glue/sst2"]
    assert "dprd: 0.5000" in capsys.readouterr().out
    assert main([*arguments, "--limit", "3"]) == 1
    assert "holds another result: its limit is None, not 3" in capsys.readouterr().err
