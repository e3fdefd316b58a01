"""A search for the hyper-parameters of a fine-tuning, by its scores on the validation split.

Optuna suggests what to try, by its tree-structured Parzen estimator. It stores nothing: what it
suggests for a trial is a function of the trials before, which the run's folder holds.
"""

import dataclasses
import os
import pathlib
import shutil
import statistics
from collections.abc import Callable, Sequence
from typing import Any

import matplotlib.ticker

from gpt1_keras.cli import note
from gpt1_keras.files import atomic_path, read_json, write_text
from gpt1_keras.models.causal_backbone import CausalBackbone
from gpt1_keras.models.gpt1_backbone import GPT1Backbone
from gpt1_keras.presets import backbone_class, find_preset
from training.datasets.data_options import DEFAULT_DATA, DataOptions
from training.datasets.user_files import keep_quiet
from training.evaluation.plots import BLUE, ORANGE, new_figure, save
from training.evaluation.predictions import DivergedError
from training.runs.finetune_options import FinetuneOptions
from training.runs.finetuning import (
    as_recorded,
    find_dataset_of,
    finetune,
    fingerprints,
    load_splits,
    memory_freed,
    with_recipe,
)
from training.runs.run_folder import TRIALS, Run, facts_of, preset_folders

_LOGARITHMIC = ("learning_rate",)

_RATE_FACTOR = 8.0  # the search goes from the given rate divided by this to the rate times this
_LEAST_LAYER_DECAY = 0.5
_WORST_SCORE = -1.0  # of any metric: the score of a trial that has diverged


def write_report(run: Run, names: Sequence[str]) -> None:
    """Writes search.md and search.svg."""
    write_text(run.folder / "search.md", as_markdown(run.history, names))
    plot(run.history, names, run.folder / "search.svg")


def as_markdown(trials: Sequence[dict[str, Any]], names: Sequence[str]) -> str:
    """Formats trials as a table, the best first."""
    titles = [name.replace("_", " ") for name in names]
    lines = [
        f"| trial | {' | '.join(titles)} | median | scores | best epochs | seconds |",
        "|---:" * (len(names) + 5) + "|",
    ]
    numbered = list(enumerate(trials, start=1))
    numbered.sort(key=lambda pair: (pair[1]["median"] is None, -(pair[1]["median"] or 0.0)))
    for number, trial in numbered:
        scores = ", ".join(f"{100 * score:.1f}" for score in trial["scores"] or ())
        median = "diverged" if trial["median"] is None else f"{100 * trial['median']:.1f}"
        cells = [str(number), *(f"{trial[name]:.4g}" for name in names), median, scores]
        seconds = "" if trial["seconds"] is None else f"{trial['seconds']:.0f}"
        cells += [", ".join(map(str, trial["best_epochs"])), seconds]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def plot(trials: Sequence[dict[str, Any]], names: Sequence[str], path: pathlib.Path) -> None:
    """Plots scores against each hyper-parameter: each seed a dot, the medians larger."""
    figure, panels = new_figure(width=3.2 * len(names), height=3.6, columns=len(names))
    finished = [trial for trial in trials if trial["median"] is not None]
    for axes, name in zip(panels, names):
        for trial in finished:
            scores = [100 * score for score in trial["scores"]]
            axes.plot([trial[name]] * len(scores), scores, ".", color=BLUE, alpha=0.4)
        medians = [100 * trial["median"] for trial in finished]
        axes.plot([trial[name] for trial in finished], medians, "o", color=BLUE)
        if finished:
            best = max(finished, key=lambda trial: trial["median"])
            axes.plot([best[name]], [100 * best["median"]], "o", color=ORANGE)
        if name in _LOGARITHMIC:
            axes.set_xscale("log")
            axes.xaxis.set_minor_formatter(matplotlib.ticker.NullFormatter())  # they would overlap
        axes.set(xlabel=name.replace("_", " "))
    panels[0].set(ylabel="validation score")
    save(figure, path)


def search(
    options: FinetuneOptions,
    output: str | os.PathLike[str],
    trials: int,
    seeds: int,
    data: DataOptions = DEFAULT_DATA,
) -> dict[str, Any]:
    """Starts or resumes a search, and returns the content of `result.json`.

    The first trial has the options as given. Each further trial varies the learning rate (up to 8
    times lower or higher), the epochs (up to the given number), lambda (from 0 to 1) and, if the
    backbone has blocks, the layer-wise decay (from 0.5 to 1).

    Args:
        options: of all trials; a trial changes only what is searched.
        output: path of the folder. It gets `trials/`, with a run for each trial and seed;
            search.md, the table of all trials; search.svg; and `best`, the best trial's preset,
            from the seed with the median score, so that no lucky seed flatters it.
        trials: how many in all; a finished search goes on with a larger number.
        seeds: how many for each trial, from `options.seed` on; their median score counts.
    """
    options = as_recorded(options, output)
    if options.train is not None or options.epochs is None or options.learning_rate is None:
        dataset = find_dataset_of(options)
        train, validation = load_splits(options, dataset, data, keep_quiet)
        options = with_recipe(options, len(train))
    run = Run(output, {**facts_of(options), "seeds": seeds})
    if options.train is not None:  # published data sets do not change
        run.keep_data(fingerprints(train, validation))
    run.prepare(*preset_folders(options.preset, options.tokenizer))
    tell: Callable[[str], None] = note
    space = _Space(options)
    for number in range(len(run.history), trials):
        chosen = space.suggest(number, run.history)
        shown = ", ".join(f"{name} {value:.4g}" for name, value in chosen.items())
        print(f"Trial {number + 1} of {trials}: {shown}", flush=True)
        folder, results = _folder(run, number), []
        for seed in range(options.seed, options.seed + seeds):
            changed = dataclasses.replace(options, seed=seed, **chosen)
            try:
                with memory_freed():
                    results.append(finetune(changed, folder / f"seed_{seed}", data, tell))
            except DivergedError as error:
                print(f"Seed {seed}: {error}", flush=True)
                break
            finally:
                tell = keep_quiet  # as all trials have the same examples
        scores = [result["score"] for result in results] if len(results) == seeds else None
        run.start()  # the options are known to be good
        run.add(
            {
                **chosen,
                "scores": scores,
                "median": statistics.median(scores) if scores else None,
                "best_epochs": [result["best_epoch"] for result in results],
                "seconds": round(sum(each["seconds"] for each in results), 1) if scores else None,
            }
        )
        _keep_best_presets(run)
        write_report(run, space.names)
    return _finish(run, options, seeds)


class _Space:
    """The hyper-parameters that are searched, and what to try next."""

    def __init__(self, options: FinetuneOptions) -> None:
        try:
            import optuna
        except ImportError:
            raise ImportError("A search needs Optuna: pip install 'gpt1-keras[search]'.") from None
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._optuna = optuna
        self._seed = options.seed
        rate, epochs = options.learning_rate, options.epochs
        assert rate is not None and epochs is not None  # `with_recipe` has filled them in
        distributions = optuna.distributions
        self._given: dict[str, Any] = {
            "learning_rate": rate,
            "epochs": epochs,
            "lm_coefficient": options.lm_coefficient,
        }
        self._distributions = {
            "learning_rate": distributions.FloatDistribution(
                rate / _RATE_FACTOR, rate * _RATE_FACTOR, log=True
            ),
            "epochs": distributions.IntDistribution(1, epochs),
            "lm_coefficient": distributions.FloatDistribution(0, max(1, options.lm_coefficient)),
        }
        if _has_blocks(options):
            decay = options.layer_decay or 1.0
            self._given["layer_decay"] = decay
            self._distributions["layer_decay"] = distributions.FloatDistribution(
                min(_LEAST_LAYER_DECAY, decay), 1.0
            )

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._distributions)

    def suggest(self, number: int, history: list[dict[str, Any]]) -> dict[str, Any]:
        if not number:
            return self._given
        # A sampler has a state, so each trial gets its own.
        sampler = self._optuna.samplers.TPESampler(seed=self._seed + number)
        study = self._optuna.create_study(direction="maximize", sampler=sampler)
        for entry in history:
            study.add_trial(
                self._optuna.trial.create_trial(
                    params={name: entry[name] for name in self.names},
                    distributions=self._distributions,
                    value=_WORST_SCORE if entry["median"] is None else entry["median"],
                )
            )
        return study.ask(self._distributions).params


def _has_blocks(options: FinetuneOptions) -> bool:
    if options.preset is None:
        assert options.config is not None  # see `FinetuneOptions`
        return backbone_class(options.config) is GPT1Backbone
    preset = os.fspath(find_preset(options.preset))
    return hasattr(CausalBackbone.from_preset(preset, load_weights=False), "blocks")


def _finish(run: Run, options: FinetuneOptions, seeds: int) -> dict[str, Any]:
    best = _best(run)
    if best is None:
        raise ValueError(
            f"All {len(run.history)} trials have diverged. Try a lower --learning-rate in another "
            "--output."
        )
    entry = run.history[best]
    if run.result is None or run.result["history"] != run.history:
        median = statistics.median_low(entry["scores"])
        seed = options.seed + entry["scores"].index(median)
        source = _folder(run, best) / f"seed_{seed}"
        with atomic_path(run.folder / "best") as temporary:
            shutil.copytree(source / "best", temporary)
        baselines = read_json(source / "result.json")["baselines"]
        return run.finish(
            {"best_trial": best + 1, "best_seed": seed, "baselines": baselines, **entry}
        )
    return run.result


def _best(run: Run) -> int | None:
    """Returns the index of the trial with the highest median; None if all have diverged."""
    medians = [entry["median"] for entry in run.history]
    return max(
        (index for index, median in enumerate(medians) if median is not None),
        key=lambda index: medians[index],
        default=None,
    )


def _keep_best_presets(run: Run) -> None:
    """Deletes the presets of all trials except the best, so that they do not fill the disk."""
    for number in range(len(run.history)):
        if number != _best(run):
            for preset in _folder(run, number).glob("seed_*/best"):
                shutil.rmtree(preset)


def _folder(run: Run, number: int) -> pathlib.Path:
    return run.folder / TRIALS / f"{number + 1:03d}"
