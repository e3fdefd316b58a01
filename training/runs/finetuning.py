"""A run of fine-tuning: its examples, model, epochs and results."""

import contextlib
import dataclasses
import functools
import os
import pathlib
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import gpt1_keras
from gpt1_keras.cli import note, warn
from gpt1_keras.examples import Examples
from gpt1_keras.files import digest_of, read_json, write_json
from gpt1_keras.labelled_files import USUAL_COLUMNS, table_options
from gpt1_keras.models.causal_backbone import CausalBackbone
from gpt1_keras.optimization.optimizer import finetuning_optimizer
from gpt1_keras.preset_files import is_handle
from gpt1_keras.presets import build_backbone, configuration, find_preset, load_task, load_tokenizer
from gpt1_keras.presets.loading import preset_in
from gpt1_keras.presets.publishing import licence_of
from gpt1_keras.recipe import FineTuningRecipe
from gpt1_keras.tasks.fresh_head import reads_one_state
from gpt1_keras.tasks.task import Task
from training.datasets.data_options import DEFAULT_DATA, DataOptions
from training.datasets.labelled_examples import load_examples
from training.datasets.language import count_unlike_english
from training.datasets.length_batches import batch_order, count_tokens
from training.datasets.paper_datasets import CLASSIFICATION, MULTIPLE_CHOICE, find_dataset
from training.datasets.user_files import Dataset, UserFiles, find_user_files, keep_quiet
from training.evaluation import calibration
from training.evaluation.answer_report import plot_report, write_report
from training.evaluation.baselines import score_baselines
from training.evaluation.calibration import CALIBRATION, DIAGRAM, plot_reliability
from training.evaluation.fine_tuned_models import MODELS
from training.evaluation.metrics import check_scorable, score
from training.evaluation.predictions import (
    predict_outputs,
    prediction_order,
    predictions_of,
    write_predictions,
)
from training.runs.checkpoints import SECONDS, CheckpointSaver
from training.runs.earlier_classifier import (
    FILES,
    VALIDATION,
    earlier_files,
    long_texts_of,
    sure_precision,
)
from training.runs.finetune_options import LONG_TEXTS, VALIDATION_SHARE, FinetuneOptions
from training.runs.run_card import write_run_card
from training.runs.run_folder import (
    DATA,
    TRIALS,
    Run,
    changed_data,
    facts_of,
    preset_folders,
    recorded_options,
)

_TEXTS_LOOKED_AT = 1000  # of the training data, to find out their language
_LEAST_UNLIKE = 1 / 3  # share of them that do not look like English, to say so
_LONG_SHARE = 0.01  # of texts beyond the context, from which they are read in windows by default
_SECONDS_TIMED = 20.0  # of a run's first epoch, before it says how long the rest will take
_TRAINING = "training"  # examples, among a run's fingerprints


def as_recorded(options: FinetuneOptions, folder: str | os.PathLike[str]) -> FinetuneOptions:
    """Fills in what a recipe has from the run that a folder holds, if it holds one.

    So the same command goes on with a run whatever the defaults have become.
    """
    return _filled(options, recorded_options(folder))


def with_recipe(options: FinetuneOptions, train_examples: int) -> FinetuneOptions:
    """Fills in epochs, learning rate and start from the recipe of the preset or configuration."""
    recipe, updates = _recipe_of(options), -(-train_examples // options.batch_size)
    values = {
        "learning_rate": recipe.learning_rate,
        "epochs": recipe.epochs_for(updates),
        "head_first": options.initial_weights is not None and recipe.fits_head_first(updates),
    }
    return _filled(options, values)


def _filled(options: FinetuneOptions, values: Mapping[str, Any]) -> FinetuneOptions:
    names = ("learning_rate", "epochs", "head_first")
    missing: dict[str, Any] = {
        name: values.get(name) for name in names if getattr(options, name) is None
    }
    return dataclasses.replace(options, **missing)


def _recipe_of(options: FinetuneOptions) -> FineTuningRecipe:
    """Returns the recipe of the backbone that a run starts from."""
    if options.preset is None:
        assert options.config is not None  # see `FinetuneOptions`
        return FineTuningRecipe.of(configuration(options.config).get("fine_tuning"))
    path = pathlib.Path(find_preset(options.preset, weights=False), "config.json")
    try:
        # A checkpoint of `transformers` has no "config" of its backbone, and no recipe.
        return FineTuningRecipe.of(read_json(path).get("config", {}).get("fine_tuning"))
    except (ValueError, AttributeError) as error:
        raise ValueError(f"{path} is damaged: {error}") from None


def find_dataset_of(options: FinetuneOptions, tell: Callable[[str], None] = keep_quiet) -> Dataset:
    """Returns the data set that a run learns from: what `task` names, or the user's files.

    `tell` is called with what the preset has learned from.
    """
    if options.task is not None:
        return find_dataset(options.task)
    assert options.train is not None  # see `FinetuneOptions`
    dataset = find_user_files(
        options.train,
        options.validation,
        table_options(options, options.preset),
        VALIDATION_SHARE if options.validation_share is None else options.validation_share,
        options.seed,
        options.scores,
    )
    if options.preset is None or options.transfer != "all" or options.fresh_head:
        return dataset
    earlier = earlier_files(options.preset, dataset, tell)
    return dataset if earlier is None else dataset.after(earlier)


def load_splits(
    options: FinetuneOptions,
    dataset: Dataset,
    data: DataOptions,
    tell: Callable[[str], None] = note,
) -> tuple[Examples, Examples]:
    """Loads the labelled examples that a run learns from, and that it chooses its best epoch on."""
    if isinstance(dataset, UserFiles):
        train, validation = dataset.read_splits(tell)
    else:
        train, validation = (
            load_examples(dataset, role, data).labelled() for role in ("train", "validation")
        )
    if options.limit_examples is not None:
        train = train.sample(options.limit_examples, options.seed)
    if not len(train):
        raise ValueError(f"The training data of {options.source} has no label.")
    return train, validation


def fingerprints(train: Examples, validation: Examples) -> dict[str, Any]:
    """Returns what `Run.keep_data` takes."""
    return {_TRAINING: train.fingerprint(), "validation": validation.fingerprint()}


def training_examples_of(preset: str | os.PathLike[str], data: DataOptions) -> Examples | None:
    """Loads what a fine-tuned preset has learned from, as result.json beside it says.

    Returns:
        The examples; None, with a warning that says why, where they cannot be found; None for a
        handle.
    """
    if is_handle(preset):  # whose run is elsewhere
        return None
    path = preset_in(pathlib.Path(preset).absolute()).parent / "result.json"
    try:
        result = read_json(path)
        names = {field.name for field in dataclasses.fields(FinetuneOptions)} & result.keys()
        options = FinetuneOptions(**{name: result[name] for name in names})
        train, _ = load_splits(options, find_dataset_of(options), data, keep_quiet)
        changed = changed_data(result.get(DATA, {}), {_TRAINING: train.fingerprint()})
        if changed:
            raise ValueError(f"{options.source} has changed: {changed}.")
        return train
    except (OSError, ValueError, TypeError) as error:
        warn(f"No baselines, as what the model has learned from was not found: {error}")
        return None


def build_model(options: FinetuneOptions, dataset: Dataset, train: Examples) -> Task:
    """Builds the model that a fine-tuning starts from.

    Args:
        options: name a preset to fine-tune, or a configuration to start afresh.
        train: the training examples; they give the classes, and the texts to learn a tokenizer
            from if there is none.

    The head is a preset's where the run goes on with its classes; otherwise it is a fresh one.
    """
    if options.preset is not None:
        tokenizer = load_tokenizer(options.preset, options.normalization)
        backbone = _load_backbone(options, options.preset)
    else:
        assert options.config is not None  # `FinetuneOptions` has checked that
        tokenizer = _fresh_tokenizer(options, train)
        backbone = build_backbone(
            options.config,
            tokenizer.vocabulary_size(),
            dtype=options.dtype,
            dropout=options.dropout,
        )
    model_cls = MODELS[dataset.kind]
    labels: dict[str, Any] = {}
    if dataset.score_range is not None:
        labels["score_range"] = dataset.score_range
    elif dataset.kind != MULTIPLE_CHOICE:
        labels["class_names"] = train.class_names
    if not labels.keys() <= set(model_cls.label_arguments):
        raise ValueError(
            f"gpt1 finetune gives a model {', '.join(labels)}. Received: {model_cls.__name__}, "
            f"whose labels are {', '.join(model_cls.label_arguments)}; train it by its `fit`."
        )
    if options.lora is not None:
        backbone.enable_lora(options.lora)
        if not backbone.trainable_variables:
            raise ValueError(f"A {type(backbone).__name__} has no layers for LoRA.")
    preprocessor = _preprocessor(options, dataset, train, tokenizer, backbone.max_sequence_length)
    earlier = dataset.earlier if isinstance(dataset, UserFiles) else None
    if earlier is None:
        return model_cls(backbone, preprocessor=preprocessor, **labels)
    assert options.preset is not None and train.class_names is not None  # see `earlier_files`
    known = len(earlier.class_names)
    model = model_cls(backbone, preprocessor=preprocessor, class_names=earlier.class_names)
    model.head.set_weights(load_task(options.preset).head.get_weights())
    new = train.class_names[known:]
    return model.with_classes(new) if new else model


def _preprocessor(
    options: FinetuneOptions,
    dataset: Dataset,
    train: Examples,
    tokenizer: gpt1_keras.GPT1Tokenizer,
    context: int,
) -> Any:
    """Returns the model's preprocessor, with the choice of what is read of long texts."""
    cls, fields = MODELS[dataset.kind].preprocessor_cls, tuple(dataset.fields)
    length = min(cls(tokenizer, fields=fields).sequence_length, context)
    make = functools.partial(cls, tokenizer, length, fields)
    is_single = dataset.kind == CLASSIFICATION and len(fields) == 1
    if options.long_texts == "windows" and not is_single:
        raise ValueError(f"Only a single text is read in windows. Received: the fields {fields}.")
    if options.long_texts is not None:
        return make(**LONG_TEXTS[options.long_texts])
    earlier = None if options.preset is None else long_texts_of(options.preset, dataset)
    if earlier is not None:
        return make(**earlier)
    if not is_single:
        return make()
    _, is_cut = count_tokens(train, make())
    return make(**LONG_TEXTS["windows" if is_cut.mean() > _LONG_SHARE else "cut"])


def _load_backbone(options: FinetuneOptions, name: str) -> CausalBackbone:
    """Returns the preset's backbone with those of its weights that are transferred (section 5)."""
    given = {"dropout": options.dropout, "dtype": options.dtype}
    changes: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    preset = os.fspath(find_preset(name))
    fresh = CausalBackbone.from_preset(preset, load_weights=False, **changes)
    if options.transfer == "none":
        return fresh
    backbone = CausalBackbone.from_preset(preset, **changes)
    if options.transfer != "all":
        kept, blocks = int(options.transfer), getattr(backbone, "blocks", [])
        if not blocks or kept > len(blocks):
            raise ValueError(f"{name} has {len(blocks)} blocks. Received: transfer={kept}.")
        for block, fresh_block in zip(blocks[kept:], fresh.blocks[kept:]):
            block.set_weights(fresh_block.get_weights())
    return backbone


def _fresh_tokenizer(options: FinetuneOptions, train: Examples) -> gpt1_keras.GPT1Tokenizer:
    """Loads a tokenizer, or learns one from the training texts."""
    if options.tokenizer is not None:
        return load_tokenizer(options.tokenizer, options.normalization)
    return gpt1_keras.GPT1Tokenizer.learn(
        train.all_texts(), options.num_merges, normalization=options.normalization or "bert"
    )


def finetune(
    options: FinetuneOptions,
    output: str | os.PathLike[str],
    data: DataOptions = DEFAULT_DATA,
    tell: Callable[[str], None] = note,
) -> dict[str, Any]:
    """Starts or resumes a fine-tuning, and returns the content of `result.json`.

    `tell` is called with what the user should know of the examples.

    Raises:
        KeyboardInterrupt: SIGINT or SIGTERM; the state has been saved.
        ValueError: `output` holds a run with other options or on other data; or see `Run`.
    """
    if pathlib.Path(output, TRIALS).is_dir():
        raise ValueError(
            f"{output} holds a search: give --search to go on with it, or choose another --output."
        )
    asks_for_head_first = options.head_first
    options = as_recorded(options, output)
    run = Run(output, facts_of(options), keep=1)
    if run.result is None:
        run.prepare(*preset_folders(options.preset, options.tokenizer))
    elif options.task is not None:
        return run.result  # published data sets do not change, and are long to read
    dataset = find_dataset_of(options, tell)
    train, validation = load_splits(options, dataset, data, tell)
    run.keep_data(fingerprints(train, validation))
    if run.result is not None:
        return run.result
    licence = None if options.preset is None else licence_of(options.preset)
    _check_examples(options, dataset, train, validation)
    options = with_recipe(options, len(train))
    keras.utils.set_random_seed(options.seed)
    class_weight = None if options.class_weight is None else train.balanced_class_weights()
    model = build_model(options, dataset, train)
    is_next = isinstance(dataset, UserFiles) and dataset.earlier is not None
    if not asks_for_head_first and (is_next or not reads_one_state(model)):
        options = dataclasses.replace(options, head_first=False)
    run.choose(dataclasses.asdict(options))
    assert options.epochs is not None and options.learning_rate is not None
    baselines = score_baselines(dataset, train, validation, options.seed)

    started = time.monotonic()
    lengths, is_cut = count_tokens(train, model.preprocessor)
    tell_of_texts(options, train, model, lengths, is_cut, tell)
    validation_order = prediction_order(model, validation)  # before training, because it may fail
    steps = -(-len(train) // options.batch_size)
    model.compile(
        finetuning_optimizer(
            options.learning_rate, steps * options.epochs, options.layer_decay or 1.0
        ),
        lm_coefficient=options.lm_coefficient,
        # So that a batch of windows needs no more memory. A slice without a text takes time too.
        accumulation_steps=min(model.windows, options.batch_size),
    )
    step = run.checkpoints.restore(model)
    if step > len(run.history) * steps:  # amid an epoch, or before its score was kept
        started -= run.checkpoints.note(step).get(SECONDS, 0.0)
    if step and model.auxiliary.trains_tokens:
        model.backbone.num_untrained_tokens = 0  # L1 has trained them
    run.start()
    if not step and options.head_first:
        in_batches = train.in_batches(prediction_order(model, train))
        model.fit_head(in_batches, class_weight=class_weight)
    if options.train is not None and options.validation is None:
        validation.write(run.folder / VALIDATION)
    metric = dataset.metrics[0]
    precision = sure_precision(options.preset) if is_next and options.preset else None
    saver = CheckpointSaver(run.checkpoints)
    progress = EpochProgress(options.epochs, options.patience is not None)
    for epoch in range(len(run.history), options.epochs):
        if _has_stopped_improving(run.history, metric, options.patience):
            break
        order = batch_order(lengths, options.batch_size, options.seed, epoch)
        order = order[step - epoch * steps :]
        if order:  # empty if the run was cut off between the epoch's end and its score
            left = len(order) + steps * (options.epochs - epoch - 1)
            progress.start(epoch, left, [entry["seconds"] / steps for entry in run.history])
            with saver.during_fit(step, started):
                fitted = model.fit(
                    train.in_batches(order),
                    epochs=epoch + 1,
                    initial_epoch=epoch,
                    class_weight=class_weight,
                    callbacks=[keras.callbacks.TensorBoard(run.folder / "logs"), saver, progress],
                    verbose=1 if sys.stdout.isatty() else 2,
                )
                step = (epoch + 1) * steps
                if np.isfinite(fitted.history["loss"][-1]):  # else its predictions will say so
                    run.checkpoints.save(model, step, {SECONDS: time.monotonic() - started})
                saver.saved()
        outputs = predict_outputs(model, validation, validation_order)
        scores = score(validation, predictions_of(outputs), dataset.metrics)
        seconds = time.monotonic() - started
        _finish_epoch(run, model, scores, outputs, validation, precision, seconds)
        started = time.monotonic()
        shown = ", ".join(f"{name} {value:.4f}" for name, value in scores.items())
        print(f"Epoch {epoch + 1}: validation {shown}", flush=True)
    best = max(run.history, key=lambda epoch: epoch[metric])
    calibrated = None
    if model.calibration is not None:
        calibrated = read_json(run.folder / CALIBRATION)
        plot_reliability(calibrated, run.folder / DIAGRAM)
        print(calibration.describe(calibrated), flush=True)
    plot_report(run.folder, train.class_names)
    facts = {
        "score": best[metric],
        "metric": metric,
        "best_epoch": best["epoch"],
        "class_names": train.class_names,
        FILES: _digests(dataset),
        USUAL_COLUMNS: _usual_columns(dataset),
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


def _digests(dataset: Dataset) -> dict[str, str] | None:
    """Returns what tells a user's files from others, for a run that goes on from this one."""
    if not isinstance(dataset, UserFiles):
        return None
    earlier = () if dataset.earlier is None else dataset.earlier.train
    paths = map(os.path.abspath, (*earlier, *dataset.paths["train"]))
    return {path: digest_of(path) for path in paths}


def _usual_columns(dataset: Dataset) -> str | None:
    """Returns the columns of the run that this one goes on from, as `parse_columns` takes them."""
    usual = dataset.table.get("usual") if isinstance(dataset, UserFiles) else None
    return ",".join(f"{name}={column}" for name, column in usual.items()) if usual else None


def _check_examples(
    options: FinetuneOptions,
    dataset: Dataset,
    train: Examples,
    validation: Examples,
) -> None:
    """Raises ValueError for data that would fail after an epoch; warns of labels all alike."""
    what = f"The validation data of {options.validation or options.source}"
    check_scorable(validation, dataset.metrics, what)
    if train.class_names is not None and np.ptp(train.labels) == 0:
        label = train.class_names[train.labels[0]]
        warn(f"All {len(train)} training examples have the label {label!r}: nothing to learn.")


def tell_of_texts(
    options: FinetuneOptions,
    train: Examples,
    model: Task,
    lengths: np.ndarray,
    is_cut: np.ndarray,
    tell: Callable[[str], None] = note,
) -> None:
    """Says how many examples the model does not read as a whole, and if they are no English.

    Args:
        lengths, is_cut: as `count_tokens` returns them.
    """
    preprocessor, tokens = model.preprocessor, model.preprocessor.sequence_length
    many = np.count_nonzero(lengths > tokens) if model.windows > 1 else 0
    if many:
        tell(
            f"{options.source}: {many:,} of {len(train):,} training examples are longer than the "
            f"{tokens} tokens that the model reads at once. They are read in windows, up to "
            f"{model.windows}, whose answers are averaged. (--long-texts cut is faster, and reads "
            "their beginning alone.)"
        )
    if cut := np.count_nonzero(is_cut):
        part = "their middle" if preprocessor.tail else "their end"
        most = ""
        if model.windows > 1:
            most, part = f"{model.windows} times ", "a part after each window"
        tell(
            f"{options.source}: {cut:,} of {len(train):,} training examples are longer than {most}"
            f"the {tokens} tokens that the model reads, and lose {part}."
        )
    if options.train is None or options.preset is None:  # published data, or a new tokenizer
        return
    texts = list(train.sample(_TEXTS_LOOKED_AT, options.seed).all_texts())
    unlike = count_unlike_english(texts, preprocessor.tokenizer)
    if unlike > _LEAST_UNLIKE * len(texts):
        tell(
            f"{options.source}: about {unlike:,} of {len(texts):,} texts do not look like English, "
            f"which {options.preset} was pre-trained on: expect less."
        )


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
    validation: Examples,
    precision: float | None,
    seconds: float,
) -> None:
    """Calibrates and saves the model if it is the best so far; adds scores.

    The scores come last, so a run that is cut off here scores the epoch again.
    """
    metric, value = next(iter(scores.items()))
    if value > max((epoch[metric] for epoch in run.history), default=float("-inf")):
        _calibrate(run, model, outputs, validation, precision)
        write_report(run.folder, model, validation, outputs)
        write_predictions(run.folder, validation, predictions_of(outputs))
        run.save_preset(model, "best")
    epoch = len(run.history)
    with tf.summary.create_file_writer(str(run.folder / "logs" / "validation")).as_default():
        tf.summary.scalar("epoch_score", value, step=epoch)
    run.add({"epoch": epoch + 1, **scores, "seconds": round(seconds, 2)})


def _calibrate(
    run: Run, model: Task, outputs: np.ndarray, validation: Examples, precision: float | None
) -> None:
    """Calibrates a model whose answers have probabilities on the validation data.

    `precision` is that of an earlier model's sure answers, if it had any.
    """
    if model.calibration is None:
        return
    labels = validation.labels
    try:
        report = calibration.calibrate(model, outputs, labels, precision)
    except ValueError as error:  # no threshold shows the precision
        warn(f"Answers lose `is_sure`: {error}")
        report = calibration.calibrate(model, outputs, labels)
    model.calibration = report.calibration
    write_json(run.folder / CALIBRATION, {"examples": len(validation), **report.as_json()})


class EpochProgress(keras.callbacks.ProgbarLogger):
    """Keras's progress bar under a line of our own: which epoch it is, and how long the rest takes.

    In a run's first epoch, a second line says how long, once some updates have been timed.

    Args:
        epochs: of the whole run.
        may_end_early: whether the run has `patience`.
    """

    def __init__(self, epochs: int, may_end_early: bool) -> None:
        super().__init__()
        self._epochs, self._may_end_early = epochs, may_end_early

    def start(self, epoch: int, updates: int, seconds: Sequence[float]) -> None:
        """Prints the line of an epoch.

        Args:
            epoch: from 0.
            updates: of this epoch and those after it.
            seconds: that an update took, in each of the epochs before it.
        """
        self._updates, self._is_told = updates, bool(seconds)
        self._timed = -1  # the first update also traces the graph
        line = f"Epoch {epoch + 1} of {'at most ' * self._may_end_early}{self._epochs}"
        if seconds:
            line += f", {_left(statistics.mean(seconds) * updates)}"
        print(line, flush=True)

    def set_params(self, params: Mapping[str, Any]) -> None:
        super().set_params({**params, "epochs": 1})  # of several, Keras prints a line of its own

    def on_train_batch_end(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        super().on_train_batch_end(batch, logs)
        self._updates -= 1
        self._timed += 1
        if self._timed == 0:
            self._started = time.monotonic()
        seconds = time.monotonic() - self._started
        if self._is_told or not self._timed or seconds < _SECONDS_TIMED:
            return
        self._is_told = True
        print(f"\n{_left(seconds / self._timed * self._updates).capitalize()}", flush=True)


def _left(seconds: float) -> str:
    """Says how much time is left, in minutes."""
    minutes = round(seconds / 60)
    return f"about {minutes} min left" if minutes else "less than a minute left"


@contextlib.contextmanager
def memory_freed() -> Iterator[None]:
    """Frees the memory of the models that are built and trained in the block, when it ends."""
    try:
        yield
    finally:
        keras.utils.clear_session(free_memory=True)
