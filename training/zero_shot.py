"""Tasks by a language model alone, without fine-tuning (section 5 of the paper).

    python -m training.zero_shot --preset gpt1_tiny_books --data-dir DIR --output DIR
    python -m training.zero_shot --run RUN --data-dir DIR --output DIR

Each probe asks which text the model finds likelier. DIR/result.json has the scores, and each as a
share of the way from guessing (0) to the best single model before the paper (1). RUN is a finished
pre-training with snapshots (`training.pretrain --snapshot-every N`): then all of them are scored,
and DIR/zero_shot.svg shows the shares against updates, as in the figure 2 of the paper; `--beside`
adds another run, such as the LSTM's, dashed. Interrupted, the same command goes on.
"""

import argparse
import json
import os
import pathlib
import re
import sys

import numpy as np

import gpt1_keras
from gpt1_keras.cli import check_at_least_one
from gpt1_keras.files import atomic_path
from gpt1_keras.presets import PRETRAINED, find_preset
from training.datasets.tfds_builders import prepared_builder, read_split
from training.evaluation.likelihood import Scorer
from training.evaluation.metrics import METRICS
from training.evaluation.plots import COLORS, new_axes, save
from training.paper.probes import PROBES, find_probe

_SNAPSHOT = re.compile(r"(\d{8})\.weights\.h5")


def zero_shot(preset, names, data_dir=None, download=False, limit=None):
    """Runs probes on a model.

    Args:
        preset: name of a preset that ships, or path of a language model's preset.
        names: keys of `training.paper.probes.PROBES`.
        data_dir, download, limit: as in `run_probe`.

    Returns:
        dict from name to what `run_probe` gives.

    Raises:
        FileNotFoundError: the preset or a data set is not there.
        ValueError: an unknown probe.
    """
    probes = {name: find_probe(name) for name in names}
    scorer = Scorer(_load(preset))
    return {name: run_probe(scorer, probes[name], data_dir, download, limit) for name in names}


def zero_shot_series(run, names, output, data_dir=None, download=False, limit=None):
    """Runs probes on all snapshots of a pre-training, and on what came out of it.

    Args:
        run: path of its folder.
        names, data_dir, download, limit: as in `zero_shot`.
        output: path of the file that keeps the scores, with which an interrupted series goes on.

    Returns:
        dict of what was asked, of `decoder`, and of `series`, a list of dicts of `step` and
        `probes`, in order.

    Raises:
        FileNotFoundError: the run, its snapshots or a data set is not there.
        ValueError: an unknown probe, or `output` holds another series.
    """
    probes = {name: find_probe(name) for name in names}
    run, output = pathlib.Path(run), pathlib.Path(output)
    result_file = run / "result.json"
    if not result_file.is_file():
        raise FileNotFoundError(f"{run} is no finished pre-training: it has no result.json.")
    snapshots = {
        int(_SNAPSHOT.fullmatch(path.name)[1]): path
        for path in sorted((run / "snapshots").glob("*.weights.h5"))
    }
    if not snapshots:
        raise FileNotFoundError(f"{run} has no snapshots: it ran without --snapshot-every.")
    snapshots[json.loads(result_file.read_text())["steps"]] = None  # the preset's own weights
    lm = _load(run / "preset")
    asked = {"run": str(run), "names": list(names), "limit": limit}
    result = _read_series(output, {**asked, "decoder": type(lm.backbone).__name__})
    scorer = Scorer(lm)
    for step in sorted(snapshots, key=lambda step: (snapshots[step] is None, step)):
        if step in [entry["step"] for entry in result["series"]]:
            continue
        lm.backbone.load_weights(snapshots[step] or run / "preset" / "model.weights.h5")
        scores = {
            name: run_probe(scorer, probes[name], data_dir, download, limit) for name in names
        }
        result["series"].append({"step": step, "probes": scores})
        _write(output, result)
        print(f"step {step}: {_line(scores)}", flush=True)
    return result


def run_probe(scorer, probe, data_dir=None, download=False, limit=None):
    """Runs a probe.

    Args:
        scorer: `training.evaluation.likelihood.Scorer`.
        probe: `training.paper.probes.Probe`.
        data_dir, download: as in `training.datasets.labelled_examples.load_examples`.
        limit: optional int, how many questions to ask, the first ones.

    Returns:
        dict of `score`, `relative` and `questions`.
    """
    questions = _load_questions(probe, probe.split, data_dir, download).first(limit)
    scores = _ask(scorer, questions)
    if probe.threshold_split is None:
        answers = np.array([np.argmax(of_question) for of_question in scores])
    else:
        known = _load_questions(probe, probe.threshold_split, data_dir, download).first(limit)
        threshold = best_threshold(
            np.concatenate(_ask(scorer, known)), known.labels, METRICS[probe.metric]
        )
        answers = (np.concatenate(scores) > threshold).astype(int)
    score = float(METRICS[probe.metric](questions.labels, answers))
    relative = (score - probe.guess) / (probe.best - probe.guess)
    return {"score": score, "relative": relative, "questions": len(answers)}


def best_threshold(scores, labels, metric):
    """The percentile of the scores above which the metric of saying yes is best.

    A reconstruction: the paper does not say how it chose.

    Args:
        scores: float array `[texts]`.
        labels: int array `[texts]`, 1 for yes.
        metric: function of true and predicted labels.
    """
    candidates = np.quantile(scores, np.linspace(0.01, 0.99, 99))
    found = [metric(labels, (scores > candidate).astype(int)) for candidate in candidates]
    return candidates[int(np.argmax(found))]


def plot_series(results, path):
    """Draws shares of the way from guessing to the best, against updates.

    Args:
        results: list of what `zero_shot_series` gives, the first solid, the second dashed.
        path: of the picture.
    """
    figure, axes = new_axes()
    names = results[0]["names"]
    for result, style in zip(results, ("-", "--")):
        kind = "LSTM" if result["decoder"] == "LSTMBackbone" else "Transformer"
        steps = [entry["step"] for entry in result["series"]]
        for name, color in zip(names, COLORS):
            shares = [entry["probes"][name]["relative"] for entry in result["series"]]
            axes.plot(steps, shares, style, color=color, label=f"{name}, {kind}")
    axes.axhline(0, color="0.5", linewidth=0.8)
    axes.set_xlim(left=0)
    axes.set(xlabel="updates", ylabel="0: guessing, 1: the best before the paper")
    axes.legend(edgecolor="none", ncols=len(results))
    save(figure, path)


def _load(preset):
    return gpt1_keras.GPT1CausalLM.from_preset(os.fspath(find_preset(preset)))


def _load_questions(probe, split, data_dir, download):
    builder = prepared_builder(probe.dataset, data_dir, download)
    return probe.ask(read_split(builder, split))


def _ask(scorer, questions):
    """The scores of each question's candidates, a list of arrays."""
    counts = [len(pairs) for pairs in questions.candidates]
    scores = scorer([pair for pairs in questions.candidates for pair in pairs])
    return np.split(scores, np.cumsum(counts)[:-1])


def _read_series(path, asked):
    """A series that has begun, or a new one."""
    if not path.is_file():
        return {**asked, "gpt1_keras": gpt1_keras.__version__, "series": []}
    result = json.loads(path.read_text())
    for name, value in asked.items():
        if result.get(name) != value:
            raise ValueError(
                f"{path} holds another series: its {name} is {result.get(name)}, not {value}."
            )
    return result


def _write(path, result):
    with atomic_path(path) as temporary:
        pathlib.Path(temporary).write_text(json.dumps(result, indent=2) + "\n")


def _line(scores):
    """Scores for people to read."""
    return ", ".join(f"{name} {found['score']:.4f}" for name, found in scores.items())


def main(arguments=None):
    parser = argparse.ArgumentParser(
        prog="python -m training.zero_shot",
        description="Ask a language model, or all snapshots of its pre-training, without "
        "fine-tuning.",
        epilog="Interrupted, the same command goes on.",
    )
    add = parser.add_argument
    add("--preset", help=f"{', '.join(PRETRAINED)}, or a preset's folder; or else")
    add("--run", help="folder of a pre-training with snapshots")
    add("--output", required=True, help="folder for result.json, and zero_shot.svg of a run")
    add("--beside", metavar="FILE", help="result.json of another run, to draw dashed")
    add("--probes", default="cola,sst2,race_middle,dprd", help="of " + ", ".join(PROBES))
    add("--data-dir", help="folder of prepared TensorFlow Datasets (default: TFDS's own)")
    add("--download", action="store_true", help="fetch and prepare data sets that are missing")
    add("--limit", type=int, help="ask this many questions of each probe (default: all)")
    options = parser.parse_args(arguments)
    place = {"data_dir": options.data_dir, "download": options.download, "limit": options.limit}
    try:
        if (options.preset is None) == (options.run is None):
            raise ValueError("Give either --preset or --run.")
        check_at_least_one(options, "limit")
        names, output = options.probes.split(","), pathlib.Path(options.output)
        if options.run is not None:
            result = zero_shot_series(options.run, names, output / "result.json", **place)
            results = [result]
            if options.beside is not None:
                results.append(json.loads(pathlib.Path(options.beside).read_text()))
            plot_series(results, output / "zero_shot.svg")
            return 0
        scores = zero_shot(options.preset, names, **place)
        asked = {"preset": options.preset, "limit": options.limit, "probes": scores}
        _write(output / "result.json", {**asked, "gpt1_keras": gpt1_keras.__version__})
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    for name, found in scores.items():
        print(f"{name}: {found['score']:.4f}, relative {found['relative']:.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
