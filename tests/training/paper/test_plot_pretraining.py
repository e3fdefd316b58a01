"""The plot of a pre-training: its curves, its lines, and its errors."""

import json

import numpy as np
import pytest
from matplotlib.colors import to_rgb

from training.paper.commands import plot_pretraining
from training.paper.perplexity_plot import make_figure

HISTORY = [
    {"step": 200, "loss": 6.0, "validation_loss": 5.0, "validation_perplexity": 148.4},
    {"step": 400, "loss": 5.0, "validation_loss": 4.0, "validation_perplexity": 54.6},
    {
        "step": 500,
        "loss": 4.5,
        "validation_loss": 3.9,
        "validation_perplexity": 49.4,
        "validation_tokens": 640,
    },
]
OPTIONS = {"config": "gpt1_tiny", "corpus_fingerprint": "abc"}
SCORES = {
    "corpus_fingerprint": "abc",
    "validation_tokens": 640,
    "unigram_perplexity": 725.76,
    "trigram_perplexity": 90.898,
}


@pytest.fixture
def write(tmp_path):
    """Writes a run's files, and n-grams' scores beside it; a file of None is left out."""

    def write(history=HISTORY, options=OPTIONS, scores=SCORES):
        files = {"history": history, "options": options, "ngrams": scores}
        for name, content in files.items():
            if content is not None:
                (tmp_path / f"{name}.json").write_text(json.dumps(content))
        return tmp_path

    return write


def test_the_curves_and_lines():
    baselines = {"unigram": 725.76, "trigram": 90.898}
    axes = make_figure(HISTORY, baselines, "gpt1_tiny").axes[0]
    training, validation, unigram, trigram = axes.lines
    # A loss stands in the middle of the updates that it is the mean of.
    assert training.get_xdata().tolist() == [100, 300, 450]
    np.testing.assert_allclose(training.get_ydata(), np.exp([6.0, 5.0, 4.5]))
    assert list(validation.get_xdata()) == [200, 400, 500]
    assert list(validation.get_ydata()) == [148.4, 54.6, 49.4]
    assert set(unigram.get_ydata()) == {725.76} and set(trigram.get_ydata()) == {90.898}
    assert axes.get_yscale() == "log" and axes.get_xlim()[0] == 0
    styles = [(line.get_color(), line.get_linestyle(), line.get_marker()) for line in axes.lines]
    assert len(set(styles)) == 4
    # In greys too, no two lines of the same style have the same brightness.
    luminance = [np.dot(to_rgb(line.get_color()), [0.299, 0.587, 0.114]) for line in axes.lines]
    assert abs(luminance[0] - luminance[1]) > 0.2 < abs(luminance[2] - luminance[3])


def test_a_run_without_validation_has_no_curve_of_it():
    history = [{"step": 200, "loss": 6.0}]
    (training,) = make_figure(history, {}, "gpt1_tiny").axes[0].lines
    assert training.get_xdata().tolist() == [100]


def test_an_svg_for_people_that_is_the_same_each_time(write):
    folder = write()
    arguments = ["--run", str(folder), "--ngrams", str(folder / "ngrams.json"), "--output"]
    for name in ("first.svg", "second.svg"):
        assert plot_pretraining([*arguments, str(folder / "new" / name)]) == 0
    first, second = ((folder / "new" / name).read_bytes() for name in ("first.svg", "second.svg"))
    assert first == second
    for text in (
        "gpt1_tiny",
        "updates",
        "perplexity of a token (log scale)",
        "training (last: 90.0)",
        "validation (last: 49.4)",
        "unigram (725.8)",
        "trigram, Kneser-Ney (90.9)",
    ):
        assert f">{text}</text>" in first.decode(), text


def test_a_png(write):
    folder = write(scores=None)
    assert plot_pretraining(["--run", str(folder), "--output", str(folder / "run.png")]) == 0
    assert (folder / "run.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("files", "output", "error"),
    [
        ({}, "run.jpg", "The output must end in one of ['.svg', '.png']. Received: "),
        ({}, "run", "The output must end in one of ['.svg', '.png']. Received: "),
        ({"history": None}, "run.svg", "has no history.json, so there is no pre-training to plot."),
        ({"history": []}, "run.svg", "holds no pre-training: expected entries with `step` and"),
        ({"history": [{"score": 1}]}, "run.svg", "holds no pre-training: expected entries with"),
        ({"scores": None}, "run.svg", "No such file"),
        ({"scores": {"corpus_fingerprint": "abc"}}, "run.svg", "holds no scores of n-grams, as"),
        (
            {"scores": {**SCORES, "corpus_fingerprint": "x"}},
            "run.svg",
            "has the corpus_fingerprint x, and the run has abc.",
        ),
        (
            {"scores": {**SCORES, "validation_tokens": 641}},
            "run.svg",
            "has the validation_tokens 641, and the run has 640.",
        ),
    ],
)
def test_errors_are_one_line(write, capsys, files, output, error):
    folder = write(**files)
    arguments = ["--run", str(folder), "--ngrams", str(folder / "ngrams.json")]
    assert plot_pretraining([*arguments, "--output", str(folder / output)]) == 1
    captured = capsys.readouterr()
    assert captured.err.startswith("error: ") and captured.err.count("\n") == 1
    assert error in captured.err
    assert not (folder / output).exists()


def test_a_damaged_history_is_named(write, capsys):
    folder = write()
    (folder / "history.json").write_text("[{")
    assert plot_pretraining(["--run", str(folder), "--output", str(folder / "run.svg")]) == 1
    assert f"error: {folder / 'history.json'} is not JSON" in capsys.readouterr().err
