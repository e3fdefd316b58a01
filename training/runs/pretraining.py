"""A run of pre-training: its model, updates, validation and log."""

import contextlib
import dataclasses
import importlib.util
import math
import os
import pathlib
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
from tensorboard.summary import Writer

from gpt1_keras import GPT1CausalLM, GPT1CausalLMPreprocessor
from gpt1_keras.cli import warn
from gpt1_keras.models.causal_backbone import CausalBackbone
from gpt1_keras.models.layers import INITIALIZER_STDDEV
from gpt1_keras.optimization.optimizer import pretraining_optimizer
from gpt1_keras.presets import build_backbone, load_tokenizer
from gpt1_keras.presets.publishing import licence_of
from training.corpus.batches import training_batches, validation_batches
from training.corpus.corpus_format import Corpus
from training.corpus.pairs import Pairs
from training.corpus.windows import SequentialWindows, Windows
from training.evaluation.context_use import ContextUse, plot_series, spread_windows
from training.evaluation.likelihood import load_for_corpus
from training.evaluation.plots import save
from training.evaluation.throughput import flops_per_token, measure_peak
from training.runs.checkpoints import LOSS_STATE, SECONDS, CheckpointSaver
from training.runs.pretrain_options import (
    MEASURED,
    PAPER_WARMUP,
    CheckpointSchedule,
    PretrainOptions,
)
from training.runs.run_card import write_pretraining_card
from training.runs.run_folder import (
    Run,
    changed_options,
    facts_of,
    find_earlier_run,
    preset_folders,
    recorded_options,
)
from training.runs.strategy_and_xla import CompilationTrial, can_try, find_strategy

_FREE_ARGUMENTS = (
    "name",
    "dtype",
    "dropout",
    "fine_tuning",
)  # of a backbone; no weight depends on them

_SCORES = (
    *("loss", "validation_loss", "validation_perplexity"),
    *("tokens_per_second", "share_of_peak"),
)
_CONTEXT_WINDOWS = 64  # on which the use of the context is measured
_ENTRY = "entry"  # of a checkpoint's note: that of the history, before the validation


def build_model(
    options: PretrainOptions,
    vocabulary_size: int,
    jit_compile: str | bool = "auto",
    initial: CausalBackbone | None = None,
) -> GPT1CausalLM:
    """Builds and compiles a model: with fresh weights, or with those of another backbone.

    numpy samples the weights, so they are the same on every backend and under every strategy.

    Args:
        initial: the backbone of `options.initial_weights`.
    """
    keras.utils.set_random_seed(options.seed)  # dropout's
    dropout = options.dropout
    if dropout is None and initial is not None:
        dropout = initial.dropout
    backbone = build_backbone(options.config, vocabulary_size, dtype=options.dtype, dropout=dropout)
    random = np.random.default_rng(options.seed)
    for variable in backbone.trainable_variables:
        if len(variable.shape) > 1:
            variable.assign(random.normal(0.0, INITIALIZER_STDDEV, variable.shape))
    if initial is not None:
        _check_alike(initial, backbone, options.initial_weights)
        backbone.set_weights(initial.get_weights())
    model = GPT1CausalLM(backbone)
    model.compile(
        pretraining_optimizer(
            options.learning_rate,
            options.steps,
            options.warmup,
            options.decay_steps,
            options.clip_norm,
        ),
        jit_compile=jit_compile,
        accumulation_steps=options.accumulation_steps,
    )
    return model


def make_preset(
    backbone: CausalBackbone, tokenizer_folder: str | os.PathLike[str], options: PretrainOptions
) -> GPT1CausalLM:
    """Returns the model to keep: trained weights with the corpus's tokenizer. Needs TensorFlow.

    The preset keeps the run's dropout for fine-tuning: a model that was pre-trained without dropout
    has learned features that dropout destroys (docs/ablations.md).
    """
    tokenizer = load_tokenizer(tokenizer_folder)
    assert options.sequence_length is not None  # set by `PretrainOptions`
    preprocessor = GPT1CausalLMPreprocessor(tokenizer, options.sequence_length)
    return GPT1CausalLM(backbone, preprocessor)


def _check_alike(initial: CausalBackbone, backbone: CausalBackbone, preset: str | None) -> None:
    """Raises ValueError if a preset's backbone has other weights than the one to train."""
    expected = backbone.get_config()
    ours = {name: value for name, value in expected.items() if name not in _FREE_ARGUMENTS}
    changed = changed_options(initial.get_config(), ours)
    if changed:
        raise ValueError(f"{preset} has another configuration: {changed}.")


class TensorBoardLog:
    """Writes entries of a run's history, and the learning rate, as events."""

    def __init__(self, folder: pathlib.Path, model: keras.Model) -> None:
        self._folder, self._model = folder, model
        self._writer: Writer | None = None

    def add(self, entry: dict[str, Any]) -> None:
        """Writes an entry. Scores that it does not have, as without validation, are left out."""
        self._writer = self._writer or Writer(str(self._folder))
        scores = {name: entry[name] for name in _SCORES if name in entry}
        if "context_use" in entry:
            scores["repeated_passage_gap"] = entry["context_use"]["repeated_passage"]["gap"]
        scores["learning_rate"] = float(self._model.optimizer.learning_rate)
        for name, score in scores.items():
            self._writer.add_scalar(name, score, entry["step"])
        self._writer.flush()


if TYPE_CHECKING:  # TensorFlow may be missing on another backend
    import tensorflow as tf


class Validation:
    """Scores a model on a corpus's validation split; returns nothing where there is none.

    Args:
        strategy: under which the model was built; all its workers call `scores`.
    """

    def __init__(
        self,
        model: GPT1CausalLM,
        corpus: Corpus,
        options: PretrainOptions,
        strategy: "tf.distribute.Strategy | None" = None,
    ) -> None:
        self._model, self._strategy = model, strategy
        self._windows: SequentialWindows | None = None
        self._context_use: ContextUse | None = None
        split, length = corpus.splits.get("validation"), options.sequence_length or 0
        if split is not None:
            self._windows = SequentialWindows(split, length, options.batch_size)
            windows = spread_windows(split.shards, length, _CONTEXT_WINDOWS)
            if len(windows) and length >= 3:
                self._context_use = ContextUse(model, windows)

    def scores(self, limit: int | None = None) -> dict[str, Any]:
        """Returns loss and perplexity of the split, or of its first `limit` batches."""
        if self._windows is None:
            return {}
        steps = min(len(self._windows), limit or sys.maxsize)
        batches = validation_batches(self._windows, steps, self._strategy)
        logs = self._model.evaluate(batches, steps=steps, verbose=0, return_dict=True)
        return {
            "validation_loss": logs["loss"],
            "validation_perplexity": logs["perplexity"],
            "validation_tokens": self._windows.count_tokens(steps),
        }

    def context_use(self) -> dict[str, Any]:
        """Returns what `ContextUse.measure` does; an empty dict if the split has no window."""
        return {"context_use": self._context_use.measure()} if self._context_use else {}


def plot_context_use(run: Run) -> None:
    """Plots how the use of the context changed over a run, if it was measured."""
    entries = [entry for entry in run.history if "context_use" in entry]
    if entries:
        save(plot_series(entries, run.options["config"]), run.folder / "context_use.svg")


def pretrain(
    options: PretrainOptions,
    corpus: str | os.PathLike[str],
    output: str | os.PathLike[str],
    strategy: str = "none",
    jit_compile: str | bool = "auto",
    checkpoint_schedule: CheckpointSchedule | None = None,
    resume_from: str | os.PathLike[str] | None = None,
) -> dict[str, Any]:
    """Starts or resumes a pre-training, and returns the content of `result.json`.

    Args:
        jit_compile: as in `keras.Model.compile`; or `"measured"`, for a `CompilationTrial` where
            one is possible, and `"auto"` elsewhere.
        checkpoint_schedule: when to save and validate; by default `CheckpointSchedule()`.
        resume_from: path of an earlier run's folder; this run goes on from its weights before the
            decay. Both runs have `decay_steps`.

    Raises:
        KeyboardInterrupt: SIGINT or SIGTERM; the state has been saved.
        ValueError: `output` holds a run with other options or on another corpus, or a damaged
            checkpoint; or it lies within the corpus; or the run to resume from does not fit, see
            `find_earlier_run`; or the preset has another configuration or tokenizer; or a loss,
            also on the validation split, is no longer a number.
    """
    checkpoint_schedule = checkpoint_schedule or CheckpointSchedule()
    verbose = int(sys.stdout.isatty())
    distribution, is_chief = find_strategy(strategy)
    if not is_chief and threading.current_thread() is threading.main_thread():
        # It has nothing to save, and may wait for others where no handler of Python's is called.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    options = _with_warmup(options, output, resume_from)
    data = Corpus(corpus)
    data.verify()
    facts = {**facts_of(options), "corpus_fingerprint": data.fingerprint}
    decay_start = options.decay_start
    run = Run(output, facts, checkpoint_schedule.keep, keep_step=decay_start)
    if run.result:
        return run.result
    earlier = None if resume_from is None else find_earlier_run(resume_from, facts)
    if is_chief:
        earlier_folders = [] if resume_from is None else [resume_from]
        run.prepare(corpus, *earlier_folders, *preset_folders(options.initial_weights))
    length = options.sequence_length or 0
    train = Windows(
        data.split("train"),
        length,
        options.batch_size,
        options.seed,
        options.repeat_share,
        options.pair_share,
        Pairs(data) if options.pair_share else None,
    )
    preset = options.initial_weights
    licence = None if preset is None else licence_of(preset)
    initial = None if preset is None else load_for_corpus(preset, data).backbone
    is_tried = jit_compile == MEASURED and can_try(strategy)
    if jit_compile == MEASURED:
        jit_compile = False if is_tried else "auto"
    with distribution.scope() if distribution else contextlib.nullcontext():
        model = build_model(options, data.vocabulary_size, jit_compile, initial)
        del initial  # its weights need not stay in memory
        step = run.checkpoints.restore(model)
        source = run.checkpoints
        if step:
            earlier = None  # this run has gone on from it already
        elif earlier:
            source = earlier.checkpoints
            step = source.restore(model, earlier.step)
    note = source.note(step) if step else {}
    if is_chief:
        run.start()
        if earlier:
            run.go_on_after(earlier.history)
            # Otherwise a run that only decays would leave none.
            run.checkpoints.save(model, step, note)
    run.history = [entry for entry in run.history if entry["step"] <= step]
    validation = Validation(model, data, options, distribution)
    logs = TensorBoardLog(run.folder / "logs", model)
    saver = CheckpointSaver(run.checkpoints, distribution is None, is_quiet=verbose > 0)
    peak = measure_peak("float32" if options.dtype == "float32" else options.dtype[6:])
    tokens = options.batch_size * length
    flops = tokens * flops_per_token(model.backbone.get_config(), length)
    callbacks: list[Any] = [CompilationTrial(options.steps - step)] if is_tried else []
    if is_chief:
        callbacks.append(saver)
    every, snapshot_every = checkpoint_schedule.checkpoint_every, checkpoint_schedule.snapshot_every

    def finish(entry: dict[str, Any]) -> None:
        scores = validation.scores(checkpoint_schedule.validation_batches)
        if is_chief:
            scores |= validation.context_use()
        _check_finite(scores, step)
        entry |= scores
        if is_chief:
            if snapshot_every and step % snapshot_every == 0:
                run.save_snapshot(model.backbone, step)
            run.add(entry)
            logs.add(entry)
            print(_line(entry), flush=True)

    if _ENTRY in note and step not in {entry["step"] for entry in run.history}:
        finish(note[_ENTRY])  # the run was ended while it validated
    while step < options.steps:
        # A checkpoint also where the decay starts: a later run may go on from there.
        end = decay_start if decay_start is not None and step < decay_start else options.steps
        steps = min(every - step % every, end - step)
        started, before = time.monotonic(), note.get(SECONDS, 0.0)
        fitting = saver.during_fit(step, started - before, note.get(LOSS_STATE))
        batches = training_batches(train, step, steps, distribution)
        with fitting if is_chief else contextlib.nullcontext():
            losses = model.fit(
                batches,
                steps_per_epoch=steps,
                verbose=verbose,
                shuffle=False,
                callbacks=callbacks,
            )
            seconds = time.monotonic() - started
            step, note = step + steps, {}
            _check_finite({"loss": losses.history["loss"][0]}, step)
            entry = {
                "step": step,
                "loss": losses.history["loss"][0],
                "seconds": round(before + seconds, 2),
                "tokens_per_second": round(steps * tokens / seconds),
                "share_of_peak": round(steps * flops / seconds / peak, 4),
            }
            if is_chief:
                run.checkpoints.save(model, step, {_ENTRY: entry})
                saver.saved()
        finish(entry)
    facts = {"parameters": model.count_params(), "train_tokens": data.split("train").tokens}
    scores = validation.scores()
    _check_finite(scores, step)
    facts |= scores
    if not is_chief:
        return facts
    plot_context_use(run)
    if importlib.util.find_spec("tensorflow") is None:
        print("The preset needs TensorFlow: run the same command where it is installed.")
        return facts
    run.save_preset(make_preset(model.backbone, data.tokenizer_folder, options), "preset")
    write_pretraining_card(run, options, facts, data, licence)
    return run.finish(facts)


def _with_warmup(
    options: PretrainOptions,
    output: str | os.PathLike[str],
    resume_from: str | os.PathLike[str] | None,
) -> PretrainOptions:
    """Returns the options with the updates to warm up over.

    By default, a run that goes on has as many as before, also if it now has more updates in all.
    """
    if options.warmup_steps is not None:
        if options.warmup_steps >= options.steps:
            warn(
                f"A warm-up of {options.warmup_steps:,} updates is not shorter than the run of "
                f"{options.steps:,}, whose rate will never reach its peak."
            )
        return options
    for folder in (output, resume_from):
        recorded = {} if folder is None else recorded_options(folder)
        if recorded:
            return dataclasses.replace(options, warmup_steps=recorded.get("warmup_steps"))
    if options.warmup < PAPER_WARMUP:
        print(
            f"The warm-up is shortened to a tenth of the run, {options.warmup:,} of "
            f"{options.steps:,} updates; the paper's has {PAPER_WARMUP:,}.",
            flush=True,
        )
    return dataclasses.replace(options, warmup_steps=options.warmup)


def _check_finite(scores: dict[str, Any], step: int) -> None:
    """Raises ValueError for a score that is not a number, which no file of JSON could hold."""
    for name, score in scores.items():
        if isinstance(score, float) and not math.isfinite(score):
            raise ValueError(
                f"The {name.replace('_', ' ')} after {step} updates is {score}: training has "
                "diverged. Try a lower --learning-rate in another --output."
            )


def _line(entry: dict[str, Any]) -> str:
    parts = [
        f"step {entry['step']}: loss {entry['loss']:.4f}",
        f"perplexity {np.exp(entry['loss']):.2f}",
        f"{entry['tokens_per_second']} tokens/s",
        f"{entry['share_of_peak']:.0%} of peak",
    ]
    if "validation_perplexity" in entry:
        parts.insert(2, f"validation perplexity {entry['validation_perplexity']:.2f}")
    if "context_use" in entry:
        gap = entry["context_use"]["repeated_passage"]["gap"]
        parts.append(f"repeated passage {gap:.2f} nats less")
    return ", ".join(parts)
