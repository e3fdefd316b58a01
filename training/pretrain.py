"""Pre-trains a language model on a corpus (section 4.1 of the paper).

    python -m training.pretrain --corpus DIR --config gpt1_tiny --steps 10000 --output DIR

Interrupted or killed, the same command goes on from the last checkpoint as if nothing had happened:
batches are a function of the seed and the step. DIR/preset is the model, DIR/history.json its
losses and perplexities, DIR/result.json all there is to know, DIR/context_use.svg how the model
uses its context (see `training.paper.context_use`). DIR/snapshots are the backbone's weights on the
way, for `training.paper.zero_shot`.

With `--decay-steps` a pre-training can be run in legs, as long as one likes:

    python -m training.pretrain ... --decay-steps 1000 --steps 10000 --output leg1
    python -m training.pretrain ... --decay-steps 1000 --steps 20000 --resume-from leg1 \
        --output leg2

Each leg ends with a decay of the rate, and so with a model to keep. The next one goes on from the
weights of before that decay, and ends as if it had been run in one piece.

With `--strategy multi_worker`, start it on every worker, with TF_CONFIG set and DIR on a file
system that all share. With KERAS_BACKEND=jax it runs without TensorFlow, on one device; the same
command on a machine with TensorFlow then writes the preset.
"""

import contextlib
import dataclasses
import importlib.util
import math
import os
import sys
import time
from typing import Any

import keras
import numpy as np

from gpt1_keras.cli import option, program
from training.corpus.batches import training_batches
from training.corpus.corpus_format import Corpus
from training.corpus.windows import Windows
from training.evaluation.language_models import load_for_corpus
from training.evaluation.throughput import flops_per_token, measure_peak
from training.runs.compilation import JIT_COMPILE, MEASURED, CompilationTrial, can_try
from training.runs.legs import find_leg
from training.runs.pretrain_model import build_model, make_preset
from training.runs.pretrain_options import CheckpointSchedule, PretrainOptions
from training.runs.pretrain_validation import Validation, plot_context_use
from training.runs.run_folder import Run, preset_folders
from training.runs.strategies import STRATEGIES, find_strategy

_HOW_TO_RUN = "how to run (the model does not depend on it)"  # a group in --help
_SECONDS_PER_PLOT = 60.0


def pretrain(
    options: PretrainOptions,
    corpus: str | os.PathLike[str],
    output: str | os.PathLike[str],
    strategy: str = "none",
    jit_compile: str | bool = "auto",
    checkpoint_schedule: CheckpointSchedule | None = None,
    resume_from: str | os.PathLike[str] | None = None,
    verbose: int = 1,
) -> dict[str, Any]:
    """Starts or resumes a pre-training.

    Args:
        options: what determines the run.
        corpus: path of a corpus that `training.corpus` wrote.
        output: path of the run's folder.
        strategy: one of `STRATEGIES`.
        jit_compile: as in `keras.Model.compile`; or `"measured"`, for a `CompilationTrial` where
            there can be one, and else `"auto"`.
        checkpoint_schedule: when to save and validate; see its defaults.
        resume_from: path of an earlier run's folder, to go on from its weights of before the decay;
            both runs have `decay_steps`.
        verbose: progress bars, as in `keras.Model.fit`.

    Returns:
        The content of `result.json`.

    Raises:
        FileNotFoundError: the corpus, the run to resume from, or the preset to begin with does not
            exist.
        ValueError: `output` holds a run with other options or on another corpus, or a damaged
            checkpoint; or it lies within the corpus; or the run to resume from does not fit, see
            `find_leg`, or the preset has another configuration or tokenizer; or the loss is no
            longer a number.
        OSError: the run's files cannot be written.
    """
    checkpoint_schedule = checkpoint_schedule or CheckpointSchedule()
    distribution, is_chief = find_strategy(strategy)
    data = Corpus(corpus)
    data.verify()
    facts = {**options.as_facts(), "corpus_fingerprint": data.fingerprint}
    decay_start = options.decay_start
    run = Run(output, facts, checkpoint_schedule.keep, keep_step=decay_start)
    if run.result:
        return run.result
    leg = None if resume_from is None else find_leg(resume_from, facts, decay_start)
    if is_chief:
        legs = [] if resume_from is None else [resume_from]
        run.prepare(corpus, *legs, *preset_folders(options.initial_weights))
    length = options.sequence_length or 0
    train = Windows(
        data.split("train"), length, options.batch_size, options.seed, options.repeat_share
    )
    preset = options.initial_weights
    initial = None if preset is None else load_for_corpus(preset, data).backbone
    is_tried = jit_compile == MEASURED and can_try(strategy)
    if jit_compile == MEASURED:
        jit_compile = False if is_tried else "auto"
    with distribution.scope() if distribution else contextlib.nullcontext():
        model = build_model(options, data.vocabulary_size, jit_compile, initial)
        del initial  # whose weights need not stay in memory
        step = run.checkpoints.restore(model)
        is_new_leg = leg is not None and not step
        if leg and is_new_leg:
            step = leg.restore(model)
    if is_chief:
        run.start()
        if leg and is_new_leg:
            run.go_on_after(leg.history)
            run.checkpoints.save(model, step)  # else a run that only decays would leave none
    run.history = [entry for entry in run.history if entry["step"] <= step]
    validation, plotted = Validation(model, data, options, distribution), time.monotonic()
    peak = measure_peak("float32" if options.dtype == "float32" else options.dtype[6:])
    tokens = options.batch_size * length
    flops = tokens * flops_per_token(model.backbone.get_config(), length)
    callbacks = [CompilationTrial(options.steps - step)] if is_tried else []
    every, snapshot_every = checkpoint_schedule.checkpoint_every, checkpoint_schedule.snapshot_every
    while step < options.steps:
        # Also where the rate starts to decay, as that is where the next leg goes on.
        end = decay_start if decay_start is not None and step < decay_start else options.steps
        steps = min(every - step % every, end - step)
        started = time.monotonic()
        batches = training_batches(train, step, steps, distribution)
        losses = model.fit(
            batches,
            steps_per_epoch=steps,
            verbose=verbose,
            shuffle=False,
            callbacks=callbacks,
        )
        seconds = time.monotonic() - started
        step += steps
        if not math.isfinite(losses.history["loss"][0]):
            raise ValueError(
                f"The loss after {step} updates is {losses.history['loss'][0]}: training has "
                "diverged. Try a lower --learning-rate in another --output."
            )
        entry = {
            "step": step,
            "loss": losses.history["loss"][0],
            "seconds": round(seconds, 2),
            "tokens_per_second": round(steps * tokens / seconds),
            "share_of_peak": round(steps * flops / seconds / peak, 4),
        }
        entry |= validation.scores(checkpoint_schedule.validation_batches)
        if is_chief:
            entry |= validation.context_use()
            if snapshot_every and step % snapshot_every == 0:
                run.save_snapshot(model.backbone, step)
            run.add(entry)
            run.checkpoints.save(model, step)
            print(_line(entry), flush=True)
            if time.monotonic() - plotted >= _SECONDS_PER_PLOT:
                plot_context_use(run)
                plotted = time.monotonic()
    facts = {"parameters": model.count_params(), "train_tokens": data.split("train").tokens}
    facts |= validation.scores()
    if not is_chief:
        return facts
    plot_context_use(run)
    if importlib.util.find_spec("tensorflow") is None:
        print("The preset needs TensorFlow: run the same command where it is installed.")
        return facts
    run.save_preset(make_preset(model.backbone, data.tokenizer_folder, options), "preset")
    return run.finish(facts)


def _line(entry: dict[str, Any]) -> str:
    """An entry of the history for people to read."""
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


@dataclasses.dataclass(frozen=True)
class _RunOptions:
    corpus: str = option("folder that training.corpus wrote")
    output: str = option("folder of the run: preset/, history.json, result.json")
    resume_from: str | None = option(
        "with --decay-steps: folder of an earlier run, to go on from its weights of before the "
        "decay",
        None,
        metavar="RUN",
    )
    strategy: str = option(f"one of {', '.join(STRATEGIES)}", "none", group=_HOW_TO_RUN)
    jit_compile: str = option(
        "XLA; auto: on accelerators, and on a CPU where the first steps are faster so",
        "auto",
        group=_HOW_TO_RUN,
        choices=tuple(JIT_COMPILE),
    )
    deterministic: bool = option(
        "compute the same bits in every run, more slowly", False, group=_HOW_TO_RUN
    )


@program("training.pretrain", resumable=True)
def main(options: PretrainOptions, run: _RunOptions, schedule: CheckpointSchedule) -> None:
    """Pre-train a language model on a corpus."""
    if run.deterministic and keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        tf.config.experimental.enable_op_determinism()
    jit_compile = JIT_COMPILE[run.jit_compile]
    if run.deterministic and jit_compile == MEASURED:
        jit_compile = "auto"  # as the choice, and with it the bits, would depend on the clock
    result = pretrain(
        options, run.corpus, run.output, run.strategy, jit_compile, schedule, run.resume_from
    )
    if "validation_perplexity" in result:
        print(f"Validation perplexity: {result['validation_perplexity']:.3f}")


if __name__ == "__main__":
    sys.exit(main())
