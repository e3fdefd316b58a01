"""Pre-trains a language model on a corpus: updates between checkpoints, validation and a preset."""

import contextlib
import dataclasses
import importlib.util
import math
import os
import signal
import sys
import threading
import time
from typing import Any

import numpy as np

from gpt1_keras.cli import warn
from gpt1_keras.presets.card import licence_of
from training.corpus.batches import training_batches
from training.corpus.corpus_format import Corpus
from training.corpus.pairs import Pairs
from training.corpus.windows import Windows
from training.evaluation.language_models import load_for_corpus
from training.evaluation.throughput import flops_per_token, measure_peak
from training.runs.checkpoint_saver import LOSS_STATE, CheckpointSaver
from training.runs.compilation import CompilationTrial, can_try
from training.runs.earlier_run import find_earlier_run
from training.runs.pretrain_logs import PretrainLogs
from training.runs.pretrain_model import build_model, make_preset
from training.runs.pretrain_options import (
    MEASURED,
    PAPER_WARMUP,
    CheckpointSchedule,
    PretrainOptions,
)
from training.runs.pretrain_validation import Validation, plot_context_use
from training.runs.run_card import write_pretraining_card
from training.runs.run_folder import Run, facts_of, preset_folders, recorded_options
from training.runs.strategies import find_strategy

_ENTRY = "entry"  # of a checkpoint's note: that of the history, before the validation


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
    logs = PretrainLogs(run.folder / "logs", model)
    saver = CheckpointSaver(run.checkpoints, distribution is None, is_quiet=verbose > 0)
    peak = measure_peak("float32" if options.dtype == "float32" else options.dtype[6:])
    tokens = options.batch_size * length
    flops = tokens * flops_per_token(model.backbone.get_config(), length)
    callbacks: list[Any] = [CompilationTrial(options.steps - step)] if is_tried else []
    if is_chief:
        callbacks.append(saver)
    every, snapshot_every = checkpoint_schedule.checkpoint_every, checkpoint_schedule.snapshot_every

    def finish(entry: dict[str, Any]) -> None:
        """Validates after the last update of a checkpoint, and adds an entry to the history."""
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
        started = time.monotonic()
        batches = training_batches(train, step, steps, distribution)
        with saver.during_fit(step, note.get(LOSS_STATE)) if is_chief else contextlib.nullcontext():
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
                "seconds": round(seconds, 2),
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
    """Formats an entry of the history for people."""
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
