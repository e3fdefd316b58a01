"""Pre-trains a language model on a corpus (section 4.1 of the paper).

    python -m training.pretrain --corpus DIR --config gpt1_tiny --steps 10000 --output DIR

Interrupted or killed, the same command goes on from the last checkpoint as if nothing had happened:
batches are a function of the seed and the step. DIR/preset is the model, DIR/history.json its
losses and perplexities, DIR/result.json all there is to know. DIR/snapshots are the backbone's
weights on the way, for `training.zero_shot`.

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

import gpt1_keras
from gpt1_keras.cli import option, program
from training.corpus.batches import training_batches, validation_batches
from training.corpus.corpus_format import Corpus
from training.corpus.windows import Windows, count_sequential_batches, count_sequential_tokens
from training.evaluation.throughput import flops_per_token, measure_peak
from training.runs.compilation import JIT_COMPILE, MEASURED, CompilationTrial, can_try
from training.runs.pretrain_model import build_model, make_preset
from training.runs.pretrain_options import CheckpointSchedule, PretrainOptions
from training.runs.run_folder import Run
from training.runs.strategies import STRATEGIES, find_strategy

_HOW_TO_RUN = "how to run (the model does not depend on it)"  # a group in --help


def pretrain(
    options: PretrainOptions,
    corpus: str | os.PathLike[str],
    output: str | os.PathLike[str],
    strategy: str = "none",
    jit_compile: str | bool = "auto",
    checkpoint_schedule: CheckpointSchedule | None = None,
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
        verbose: progress bars, as in `keras.Model.fit`.

    Returns:
        The content of `result.json`.

    Raises:
        FileNotFoundError: the corpus does not exist.
        ValueError: `output` holds a run with other options or on another corpus, or a damaged
            checkpoint; or it lies within the corpus; or the loss is no longer a number.
        OSError: the run's files cannot be written.
    """
    checkpoint_schedule = checkpoint_schedule or CheckpointSchedule()
    distribution, is_chief = find_strategy(strategy)
    data = Corpus(corpus)
    data.verify()
    facts = {**dataclasses.asdict(options), "corpus_fingerprint": data.fingerprint}
    run = Run(output, facts, checkpoint_schedule.keep)
    if run.result:
        return run.result
    if is_chief:
        run.prepare(corpus)
    length = options.sequence_length or 0
    train = Windows(data.split("train"), length, options.batch_size, options.seed)
    is_tried = jit_compile == MEASURED and can_try(strategy)
    if jit_compile == MEASURED:
        jit_compile = False if is_tried else "auto"
    with distribution.scope() if distribution else contextlib.nullcontext():
        model = build_model(options, data.vocabulary_size, jit_compile)
        step = run.checkpoints.restore(model)
    if is_chief:
        run.start()
    run.history = [entry for entry in run.history if entry["step"] <= step]
    peak = measure_peak("float32" if options.dtype == "float32" else options.dtype[6:])
    tokens = options.batch_size * length
    flops = tokens * flops_per_token(model.backbone.get_config(), length)
    callbacks = [CompilationTrial(options.steps - step)] if is_tried else []
    every, snapshot_every = checkpoint_schedule.checkpoint_every, checkpoint_schedule.snapshot_every
    while step < options.steps:
        steps = min(every - step % every, options.steps - step)
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
        entry |= _validate(
            model, data, options, distribution, checkpoint_schedule.validation_batches
        )
        if is_chief:
            if snapshot_every and step % snapshot_every == 0:
                run.save_snapshot(model.backbone, step)
            run.add(entry)
            run.checkpoints.save(model, step)
            print(_line(entry), flush=True)
    facts = {"parameters": model.count_params(), "train_tokens": data.split("train").tokens}
    facts |= _validate(model, data, options, distribution)
    if not is_chief:
        return facts
    if importlib.util.find_spec("tensorflow") is None:
        print("The preset needs TensorFlow: run the same command where it is installed.")
        return facts
    run.save_preset(make_preset(model.backbone, data.tokenizer_folder, options), "preset")
    return run.finish(facts)


def _validate(
    model: gpt1_keras.GPT1CausalLM,
    corpus: Corpus,
    options: PretrainOptions,
    distribution: Any,
    limit: int | None = None,
) -> dict[str, Any]:
    """Scores the validation split, or its first batches; empty where there is no such split."""
    if "validation" not in corpus.splits:
        return {}
    arguments = corpus.split("validation"), options.sequence_length or 0, options.batch_size
    steps = min(count_sequential_batches(*arguments), limit or sys.maxsize)
    batches = validation_batches(*arguments, steps, distribution)
    logs = model.evaluate(batches, steps=steps, verbose=0, return_dict=True)
    return {
        "validation_loss": logs["loss"],
        "validation_perplexity": logs["perplexity"],
        "validation_tokens": count_sequential_tokens(*arguments, steps),
    }


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
    return ", ".join(parts)


@dataclasses.dataclass(frozen=True)
class _RunOptions:
    corpus: str = option("folder that training.corpus wrote")
    output: str = option("folder of the run: preset/, history.json, result.json")
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
    result = pretrain(options, run.corpus, run.output, run.strategy, jit_compile, schedule)
    if "validation_perplexity" in result:
        print(f"Validation perplexity: {result['validation_perplexity']:.3f}")


if __name__ == "__main__":
    sys.exit(main())
