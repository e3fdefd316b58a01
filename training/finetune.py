"""Fine-tunes a model on one of the paper's data sets, or on your own.

    python -m training.finetune --task sst2 --preset NAME --data-dir DIR --output DIR
    python -m training.finetune --train FILE --validation FILE --preset NAME --output DIR

FILE is a .csv, .tsv or .jsonl whose columns tell what the task is; see
`training.datasets.user_files`.

Interrupted, the same command goes on from the last checkpoint. DIR/best is the preset of the best
epoch on the validation split, with a model card, README.md, and calibrated on that split:
DIR/calibration.json and .svg say how far its probabilities can be trusted, before and after.
DIR/result.json has its score, and DIR/predictions.jsonl its answers on that split; DIR/logs are for
TensorBoard.

With `--search N` it searches for the rate, epochs, lambda and layer-wise decay of the best score on
the validation split, in N trials: DIR/search.md is the table of all, DIR/search.svg their plot, and
DIR/best the best one's preset. With more trials, the same command goes on.
"""

import dataclasses
import functools
import os
import pathlib
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from gpt1_keras.cli import check_at_least_one, option, program, warn
from gpt1_keras.optimization.optimizer import finetuning_optimizer
from gpt1_keras.presets.card import licence_of
from gpt1_keras.tasks.base import RawTextTask
from training.datasets.labelled_examples import LabelledExamples, load_examples
from training.datasets.length_batches import batch_order, count_tokens, make_batches
from training.datasets.task_models import build_model
from training.datasets.tasks import Task, find_task
from training.datasets.tfds_builders import DataOptions
from training.datasets.user_files import UserFileTask, find_user_file_task
from training.evaluation import calibration
from training.evaluation.predictions import write_predictions
from training.evaluation.scoring import (
    answers_of,
    check_scorable,
    predict_outputs,
    prediction_order,
    score,
)
from training.runs.calibration_files import read_calibration, write_calibration
from training.runs.card import write_run_card
from training.runs.finetune_options import FinetuneOptions
from training.runs.memory import memory_freed
from training.runs.run_folder import Run
from training.runs.search import search

_SEARCH = "search for hyper-parameters (rate, epochs, lambda, layer-wise decay)"  # in --help
_SECONDS_PER_CHECKPOINT = 120.0


def finetune(
    options: FinetuneOptions,
    output: str | os.PathLike[str],
    data_dir: str | None = None,
    download: bool = False,
    verbose: str | int = "auto",
) -> dict[str, Any]:
    """Starts or resumes a fine-tuning.

    Args:
        options: what determines the run.
        output: path of the run's folder.
        data_dir: folder of the prepared data sets; TensorFlow Datasets' own by default.
        download: whether to download and prepare a missing data set.
        verbose: progress bars, as in `keras.Model.fit`.

    Returns:
        The content of `result.json`.

    Raises:
        FileNotFoundError: the data set does not exist.
        ValueError: `output` holds a run with other options, or a damaged checkpoint; or the data
            cannot be scored.
        OSError: the run's files cannot be written.
    """
    run = Run(output, options.as_facts(), keep=1)
    if run.result:
        return run.result
    run.prepare(*options.sources)
    licence = None if options.preset is None else licence_of(options.preset)
    task = _find_task(options)
    train = load_examples(task, "train", data_dir, download).labelled()
    if options.limit_examples is not None:
        train = train.sample(options.limit_examples, options.seed)
    validation = load_examples(task, "validation", data_dir, download).labelled()
    _check_examples(options, task, train, validation)
    keras.utils.set_random_seed(options.seed)
    class_weight = None if options.class_weight is None else train.balanced_class_weights()
    model = build_model(options, task, train)

    started = time.monotonic()
    lengths = count_tokens(train, model.preprocessor)
    validation_order = prediction_order(model, validation)  # before training, where it may fail
    steps = -(-len(train) // options.batch_size)
    model.compile(
        finetuning_optimizer(
            options.learning_rate, steps * options.epochs, options.layer_decay or 1.0
        ),
        lm_coefficient=options.lm_coefficient,
    )
    step = run.checkpoints.restore(model)
    run.start()
    metric = task.metrics[0]
    for epoch in range(len(run.history), options.epochs):
        if _has_stopped_improving(run.history, metric, options.patience):
            break
        order = batch_order(lengths, options.batch_size, options.seed, epoch)
        order = order[step - epoch * steps :]
        if order:  # else the run was cut off between the epoch's end and its score
            model.fit(
                make_batches(train, order),
                epochs=epoch + 1,
                initial_epoch=epoch,
                class_weight=class_weight,
                callbacks=[
                    keras.callbacks.TensorBoard(run.folder / "logs"),
                    keras.callbacks.LambdaCallback(on_train_batch_end=_saver(run, model, step)),
                ],
                verbose=verbose,
            )
        step = (epoch + 1) * steps
        outputs = predict_outputs(model, validation, verbose, validation_order)
        scores = score(validation, answers_of(outputs), task.metrics)
        _finish_epoch(run, model, step, scores, outputs, validation, time.monotonic() - started)
        started = time.monotonic()
        shown = ", ".join(f"{name} {value:.4f}" for name, value in scores.items())
        print(f"Epoch {epoch + 1}: validation {shown}", flush=True)
    best = max(run.history, key=lambda epoch: epoch[metric])
    calibrated = read_calibration(run.folder)
    if calibrated is not None:
        print(calibration.describe(calibrated), flush=True)
    facts = {
        "score": best[metric],
        "metric": metric,
        "best_epoch": best["epoch"],
        "class_names": train.class_names,
        "temperature": calibrated and calibrated["temperature"],
        "train_examples": len(train),
        "validation_examples": len(validation),
        "decoder": type(model.backbone).__name__,
        "parameters": model.count_params(),
        "seconds": round(sum(epoch["seconds"] for epoch in run.history), 1),
        "tensorflow": tf.__version__,
    }
    write_run_card(run, options, facts, licence)
    return run.finish(facts)


def finetune_all(
    runs: Mapping[str, FinetuneOptions],
    folder: pathlib.Path,
    data_dir: str | None,
    download: bool,
    verbose: str | int,
    after_each: Callable[[pathlib.Path], None] = lambda path: None,
) -> None:
    """Starts or resumes runs, one after the other, on data sets of the paper.

    Args:
        runs: from a run's path below `folder` to its options.
        folder: of the runs.
        data_dir, download, verbose: as in `finetune`.
        after_each: called with the folder of each run that has ended.
    """
    for number, (name, options) in enumerate(runs.items(), start=1):
        print(f"Run {number} of {len(runs)}: {name}", flush=True)
        with memory_freed():
            finetune(options, folder / name, data_dir, download, verbose)
        after_each(folder / name)


def _find_task(options: FinetuneOptions) -> Task | UserFileTask:
    if options.task is not None:
        return find_task(options.task)
    assert options.train is not None and options.validation is not None
    return find_user_file_task(options.train, options.validation)


def _check_examples(
    options: FinetuneOptions,
    task: Task | UserFileTask,
    train: LabelledExamples,
    validation: LabelledExamples,
) -> None:
    """Raises ValueError for what would fail after an epoch; warns of what teaches nothing."""
    if not len(train):
        raise ValueError(f"The training data of {options.task or options.train} has no label.")
    what = f"The validation data of {options.task or options.validation}"
    check_scorable(validation, task.metrics, what)
    if train.class_names is not None and np.ptp(train.labels) == 0:
        label = train.class_names[train.labels[0]]
        warn(f"All {len(train)} training examples have the label {label!r}: nothing to learn.")


def _has_stopped_improving(
    history: list[dict[str, Any]], metric: str, patience: int | None
) -> bool:
    """Whether that many epochs have passed without a better score than before them."""
    if patience is None or len(history) <= patience:
        return False
    scores = [epoch[metric] for epoch in history]
    return max(scores[-patience:]) <= max(scores[:-patience])


def _saver(run: Run, model: RawTextTask, step: int) -> Callable[..., None]:
    """A callback that saves a checkpoint after a batch, if the last one was some time ago.

    Steps are batches: in float16, the optimizer does not count those whose gradients overflow.
    """
    saved = time.monotonic()

    def on_batch_end(batch: int, logs: dict[str, float] | None = None) -> None:
        nonlocal saved
        if time.monotonic() - saved >= _SECONDS_PER_CHECKPOINT:
            run.checkpoints.save(model, step + batch + 1)
            saved = time.monotonic()

    return on_batch_end


def _finish_epoch(
    run: Run,
    model: RawTextTask,
    step: int,
    scores: dict[str, float],
    outputs: np.ndarray,
    validation: LabelledExamples,
    seconds: float,
) -> None:
    """Saves a checkpoint, the model if it is the best so far, calibrated, and last the scores.

    So wherever this is cut off, a resumed run scores the epoch again.
    """
    run.checkpoints.save(model, step)
    metric, value = next(iter(scores.items()))
    if value > max((epoch[metric] for epoch in run.history), default=float("-inf")):
        _calibrate(run, model, outputs, validation)
        write_predictions(run.folder, validation, answers_of(outputs))
        run.save_preset(model, "best")
    epoch = len(run.history)
    with tf.summary.create_file_writer(str(run.folder / "logs" / "validation")).as_default():
        tf.summary.scalar("epoch_score", value, step=epoch)
    run.add({"epoch": epoch + 1, **scores, "seconds": round(seconds, 2)})


def _calibrate(
    run: Run, model: RawTextTask, outputs: np.ndarray, validation: LabelledExamples
) -> None:
    """Calibrates a model whose answers have probabilities on the validation data."""
    if model.calibration is None:
        return
    report = calibration.calibrate(model, outputs, validation.labels)
    model.calibration = report.calibration
    write_calibration(run.folder, {"examples": len(validation), **report.as_json()})


@dataclasses.dataclass(frozen=True)
class _OutputOptions:
    output: str = option("folder of the run: best/, result.json, logs/")


@dataclasses.dataclass(frozen=True)
class _SearchOptions:
    search: int | None = option(
        "how many trials; the first is of the options as they are", None, group=_SEARCH, metavar="N"
    )
    seeds: int = option("of each trial, whose median counts", 1, group=_SEARCH)

    def __post_init__(self) -> None:
        check_at_least_one(self, "search", "seeds")
        if self.search is None and self.seeds > 1:
            raise ValueError("seeds are for --search; a single run has one --seed.")


@program("training.finetune", resumable=True)
def main(
    options: FinetuneOptions, run: _OutputOptions, data: DataOptions, trials: _SearchOptions
) -> None:
    """Fine-tune a model on one of the paper's data sets, or on your own."""
    if trials.search is not None:
        finetune_one = functools.partial(finetune, **vars(data))
        found = search(options, run.output, trials.search, trials.seeds, finetune_one)
        print(f"Best: trial {found['best_trial']}, median {found['median']:.4f}")
        return
    result = finetune(options, run.output, **vars(data))
    print(f"{result['metric']}: {result['score']:.4f} (epoch {result['best_epoch']})")


if __name__ == "__main__":
    sys.exit(main())
