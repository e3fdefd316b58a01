"""Fine-tunes a model on labelled data, and keeps the weights of the epoch with the best score."""

import dataclasses
import os
import pathlib
import sys
import time
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from gpt1_keras.cli import warn
from gpt1_keras.files import read_json, write_json
from gpt1_keras.optimization.optimizer import finetuning_optimizer
from gpt1_keras.presets.card import licence_of
from gpt1_keras.tasks.task import Task
from training.datasets.data_options import DEFAULT_DATA, DataOptions
from training.datasets.labelled_examples import LabelledExamples
from training.datasets.length_batches import batch_order, count_tokens, make_batches
from training.datasets.user_files import Dataset
from training.evaluation import temperature_scaling
from training.evaluation.answer_report import plot_report, write_report
from training.evaluation.baseline_scores import score_baselines
from training.evaluation.dataset_metrics import check_scorable, score
from training.evaluation.predictions import (
    answers_of,
    predict_outputs,
    prediction_order,
    write_predictions,
)
from training.evaluation.preset_calibration import CALIBRATION, DIAGRAM
from training.evaluation.reliability import plot_reliability
from training.runs.checkpoint_saver import CheckpointSaver
from training.runs.finetune_model import build_model
from training.runs.finetune_options import FinetuneOptions
from training.runs.recipe_options import as_recorded, with_recipe
from training.runs.run_card import write_run_card
from training.runs.run_folder import TRIALS, Run, facts_of, preset_folders
from training.runs.training_data import (
    find_dataset_of,
    fingerprints,
    load_training_examples,
    load_validation_examples,
)


def finetune(
    options: FinetuneOptions,
    output: str | os.PathLike[str],
    data: DataOptions = DEFAULT_DATA,
) -> dict[str, Any]:
    """Starts or resumes a fine-tuning, and returns the content of `result.json`.

    Raises:
        KeyboardInterrupt: SIGINT or SIGTERM; the state has been saved.
        ValueError: `output` holds a run with other options or on other data; or see `Run`.
    """
    if pathlib.Path(output, TRIALS).is_dir():
        raise ValueError(
            f"{output} holds a search: give --search to go on with it, or choose another --output."
        )
    options = as_recorded(options, output)
    run = Run(output, facts_of(options), keep=1)
    if run.result is None:
        run.prepare(*preset_folders(options.preset, options.tokenizer))
    elif options.task is not None:
        return run.result  # published data sets do not change, and are long to read
    dataset = find_dataset_of(options)
    train = load_training_examples(options, dataset, data)
    validation = load_validation_examples(dataset, data)
    run.keep_data(fingerprints(train, validation))
    if run.result is not None:
        return run.result
    licence = None if options.preset is None else licence_of(options.preset)
    _check_examples(options, dataset, train, validation)
    options = with_recipe(options, len(train))
    assert options.epochs is not None and options.learning_rate is not None
    run.choose(dataclasses.asdict(options))
    keras.utils.set_random_seed(options.seed)
    class_weight = None if options.class_weight is None else train.balanced_class_weights()
    model = build_model(options, dataset, train)
    baselines = score_baselines(dataset, train, validation, options.seed)

    started = time.monotonic()
    lengths = count_tokens(train, model.preprocessor)
    validation_order = prediction_order(model, validation)  # before training, because it may fail
    steps = -(-len(train) // options.batch_size)
    model.compile(
        finetuning_optimizer(
            options.learning_rate, steps * options.epochs, options.layer_decay or 1.0
        ),
        lm_coefficient=options.lm_coefficient,
    )
    step = run.checkpoints.restore(model)
    if step and options.lm_coefficient:
        model.backbone.num_untrained_tokens = 0  # L1 has trained them
    run.start()
    if options.train is not None and options.validation is None:
        validation.write(run.folder / "validation.jsonl")
    metric = dataset.metrics[0]
    saver = CheckpointSaver(run.checkpoints)
    for epoch in range(len(run.history), options.epochs):
        if _has_stopped_improving(run.history, metric, options.patience):
            break
        order = batch_order(lengths, options.batch_size, options.seed, epoch)
        order = order[step - epoch * steps :]
        if order:  # empty if the run was cut off between the epoch's end and its score
            with saver.during_fit(step):
                fitted = model.fit(
                    make_batches(train, order),
                    epochs=epoch + 1,
                    initial_epoch=epoch,
                    class_weight=class_weight,
                    callbacks=[keras.callbacks.TensorBoard(run.folder / "logs"), saver],
                    verbose=1 if sys.stdout.isatty() else 2,
                )
                step = (epoch + 1) * steps
                if np.isfinite(fitted.history["loss"][-1]):  # else its predictions will say so
                    run.checkpoints.save(model, step)
                saver.saved()
        outputs = predict_outputs(model, validation, validation_order)
        scores = score(validation, answers_of(outputs), dataset.metrics)
        _finish_epoch(run, model, scores, outputs, validation, time.monotonic() - started)
        started = time.monotonic()
        shown = ", ".join(f"{name} {value:.4f}" for name, value in scores.items())
        print(f"Epoch {epoch + 1}: validation {shown}", flush=True)
    best = max(run.history, key=lambda epoch: epoch[metric])
    calibrated = None
    if model.calibration is not None:
        calibrated = read_json(run.folder / CALIBRATION)
        plot_reliability(calibrated, run.folder / DIAGRAM)
        print(temperature_scaling.describe(calibrated), flush=True)
    plot_report(run.folder, train.class_names)
    facts = {
        "score": best[metric],
        "metric": metric,
        "best_epoch": best["epoch"],
        "class_names": train.class_names,
        "temperature": calibrated and calibrated["temperature"],
        "train_examples": len(train),
        "validation_examples": len(validation),
        "baselines": baselines,
        "decoder": type(model.backbone).__name__,
        "parameters": model.count_params(),
        "seconds": round(sum(epoch["seconds"] for epoch in run.history), 1),
        "tensorflow": tf.__version__,
    }
    write_run_card(run, options, facts, licence)
    return run.finish(facts)


def _check_examples(
    options: FinetuneOptions,
    dataset: Dataset,
    train: LabelledExamples,
    validation: LabelledExamples,
) -> None:
    """Raises ValueError for data that would fail after an epoch; warns of labels all alike."""
    what = f"The validation data of {options.task or options.validation or options.train}"
    check_scorable(validation, dataset.metrics, what)
    if train.class_names is not None and np.ptp(train.labels) == 0:
        label = train.class_names[train.labels[0]]
        warn(f"All {len(train)} training examples have the label {label!r}: nothing to learn.")


def _has_stopped_improving(
    history: list[dict[str, Any]], metric: str, patience: int | None
) -> bool:
    """Returns whether the last `patience` epochs have no better score than those before."""
    if patience is None or len(history) <= patience:
        return False
    scores = [epoch[metric] for epoch in history]
    return max(scores[-patience:]) <= max(scores[:-patience])


def _finish_epoch(
    run: Run,
    model: Task,
    scores: dict[str, float],
    outputs: np.ndarray,
    validation: LabelledExamples,
    seconds: float,
) -> None:
    """Calibrates and saves the model if it is the best so far; adds scores.

    The scores come last, so a run that is cut off here scores the epoch again.
    """
    metric, value = next(iter(scores.items()))
    if value > max((epoch[metric] for epoch in run.history), default=float("-inf")):
        _calibrate(run, model, outputs, validation)
        write_report(run.folder, model, validation, outputs)
        write_predictions(run.folder, validation, answers_of(outputs))
        run.save_preset(model, "best")
    epoch = len(run.history)
    with tf.summary.create_file_writer(str(run.folder / "logs" / "validation")).as_default():
        tf.summary.scalar("epoch_score", value, step=epoch)
    run.add({"epoch": epoch + 1, **scores, "seconds": round(seconds, 2)})


def _calibrate(run: Run, model: Task, outputs: np.ndarray, validation: LabelledExamples) -> None:
    """Calibrates a model whose answers have probabilities on the validation data."""
    if model.calibration is None:
        return
    report = temperature_scaling.calibrate(model, outputs, validation.labels)
    model.calibration = report.calibration
    write_json(run.folder / CALIBRATION, {"examples": len(validation), **report.as_json()})
