"""Pre-trains a decoder on a corpus of tokens (section 4.1 of the paper).

    python -m training.pretrain --corpus DIR --config gpt1_tiny --steps 10000 --output DIR

Interrupted or killed, the same command goes on from the last checkpoint as if nothing had happened:
minibatches are a function of the seed and the step. DIR/preset is the model, DIR/history.json its
losses and perplexities, DIR/result.json all there is to know. DIR/snapshots are the decoder's
weights on the way, for `training.zero_shot`.

With `--strategy multi_worker`, start it on every worker, with TF_CONFIG set and DIR on a file
system that all share. With KERAS_BACKEND=jax it runs without TensorFlow, on one device; the same
command on a machine with TensorFlow then writes the preset.
"""

import argparse
import contextlib
import dataclasses
import sys
import time

import keras
import numpy as np

import gpt1_keras
from gpt1_keras.files import atomic_path
from gpt1_keras.models.layers import INITIALIZER_STDDEV
from gpt1_keras.optimization.optimizer import GPT1Adam, PretrainingSchedule
from gpt1_keras.presets import CONFIGURATIONS, build_backbone
from training.corpus.batches import training_batches, validation_batches
from training.corpus.windows import (
    Corpus,
    Windows,
    count_sequential_batches,
    count_sequential_tokens,
)
from training.evaluation.throughput import flops_per_token, measure_peak
from training.runs.pretrain_options import DTYPES, CheckpointSchedule, PretrainOptions
from training.runs.run_folder import Run
from training.runs.strategies import STRATEGIES, find_strategy


def pretrain(
    options,
    corpus,
    output,
    strategy="none",
    jit_compile="auto",
    checkpoint_schedule=None,
    verbose=1,
):
    """Runs, or goes on with, a pre-training.

    Args:
        options: `PretrainOptions`.
        corpus: path of a corpus that `training.corpus` wrote.
        output: path of the run's folder.
        strategy: one of `STRATEGIES`.
        jit_compile: as in `keras.Model.compile`.
        checkpoint_schedule: `CheckpointSchedule`.
        verbose: progress bars, as in `keras.Model.fit`.

    Returns:
        The result, a dict, as in `result.json`.

    Raises:
        FileNotFoundError: the corpus is not there.
        ValueError: `output` holds a run with other options or on another corpus, or a damaged
            checkpoint.
        OSError: a checkpoint could not be written.
    """
    checkpoint_schedule = checkpoint_schedule or CheckpointSchedule()
    strategy, is_chief = find_strategy(strategy)
    corpus = Corpus(corpus)
    corpus.verify()
    facts = {**dataclasses.asdict(options), "corpus_fingerprint": corpus.fingerprint}
    run = Run(output, facts, checkpoint_schedule.keep)
    if run.result:
        return run.result
    if is_chief:
        run.start()
    train = Windows(
        corpus.split("train"), options.sequence_length, options.batch_size, options.seed
    )
    with strategy.scope() if strategy else contextlib.nullcontext():
        model = build_model(options, corpus.vocabulary_size, jit_compile)
        step = run.checkpoints.restore(model)
    run.history = [entry for entry in run.history if entry["step"] <= step]
    peak = measure_peak("float32" if options.dtype == "float32" else options.dtype[6:])
    flops = (
        options.batch_size
        * options.sequence_length
        * flops_per_token(model.backbone.get_config(), options.sequence_length)
    )
    while step < options.steps:
        steps = min(
            checkpoint_schedule.checkpoint_every - step % checkpoint_schedule.checkpoint_every,
            options.steps - step,
        )
        started = time.monotonic()
        losses = model.fit(
            training_batches(train, step, steps, strategy),
            steps_per_epoch=steps,
            verbose=verbose,
            shuffle=False,
        )
        seconds = time.monotonic() - started
        step += steps
        entry = {
            "step": step,
            "loss": losses.history["loss"][0],
            "seconds": round(seconds, 2),
            "tokens_per_second": round(
                steps * options.batch_size * options.sequence_length / seconds
            ),
            "share_of_peak": round(steps * flops / seconds / peak, 4),
        }
        if "validation" in corpus.splits:
            entry |= _validate(
                model, corpus, options, strategy, checkpoint_schedule.validation_batches
            )
        if is_chief:
            if (
                checkpoint_schedule.snapshot_every
                and step % checkpoint_schedule.snapshot_every == 0
            ):
                run.save_snapshot(model.backbone, step)
            run.add(entry)
            run.checkpoints.save(model, step)
            print(_line(entry), flush=True)
    return _finish(run, model, corpus, options, strategy, is_chief)


def build_model(options, vocabulary_size, jit_compile="auto"):
    """A fresh, compiled `GPT1CausalLM`.

    Its weights are drawn by numpy, and so are the same on every backend and under every strategy.
    """
    keras.utils.set_random_seed(options.seed)  # dropout's
    backbone = build_backbone(
        options.config, vocabulary_size, dtype=options.dtype, dropout=options.dropout
    )
    random = np.random.default_rng(options.seed)
    for variable in backbone.trainable_variables:
        if len(variable.shape) > 1:
            variable.assign(random.normal(0.0, INITIALIZER_STDDEV, variable.shape))
    model = gpt1_keras.GPT1CausalLM(backbone)
    schedule = PretrainingSchedule(options.learning_rate, options.steps, options.warmup_steps)
    model.compile(
        GPT1Adam(schedule, global_clipnorm=options.clip_norm),
        jit_compile=jit_compile,
        accumulation_steps=options.accumulation_steps,
    )
    return model


def _validate(model, corpus, options, strategy, limit=None):
    arguments = corpus.split("validation"), options.sequence_length, options.batch_size
    steps = min(count_sequential_batches(*arguments), limit or sys.maxsize)
    batches = validation_batches(*arguments, steps, strategy)
    logs = model.evaluate(batches, steps=steps, verbose=0, return_dict=True)
    return {
        "validation_loss": logs["loss"],
        "validation_perplexity": logs["perplexity"],
        "validation_tokens": count_sequential_tokens(*arguments, steps),
    }


def _finish(run, model, corpus, options, strategy, is_chief):
    """Scores the model on the whole validation split, and writes the preset and the result."""
    facts = {"parameters": model.count_params(), "train_tokens": corpus.split("train").tokens}
    if "validation" in corpus.splits:
        facts |= _validate(model, corpus, options, strategy)
    if not is_chief:
        return facts
    if not _has_tensorflow():
        print("The preset needs TensorFlow: run the same command where it is installed.")
        return facts
    from gpt1_keras.presets.tokenizers import load_tokenizer

    tokenizer = load_tokenizer(corpus.tokenizer_folder)
    preprocessor = gpt1_keras.GPT1CausalLMPreprocessor(tokenizer, options.sequence_length)
    # The run's dropout suits so much text; fine-tuning, on little, wants the configuration's.
    backbone = build_backbone(options.config, corpus.vocabulary_size, dtype=options.dtype)
    backbone.set_weights(model.backbone.get_weights())
    with atomic_path(run.folder / "preset") as temporary:
        gpt1_keras.GPT1CausalLM(backbone, preprocessor).save_to_preset(temporary)
    return run.finish(facts)


def _has_tensorflow():
    try:
        import tensorflow  # noqa: F401
    except ImportError:
        return False
    return True


def _line(entry):
    """A line of the history for people to read."""
    parts = [
        f"step {entry['step']}: loss {entry['loss']:.4f}",
        f"perplexity {np.exp(entry['loss']):.2f}",
        f"{entry['tokens_per_second']} tokens/s",
        f"{entry['share_of_peak']:.0%} of peak",
    ]
    if "validation_perplexity" in entry:
        parts.insert(2, f"validation perplexity {entry['validation_perplexity']:.2f}")
    return ", ".join(parts)


def _parser():
    parser = argparse.ArgumentParser(
        prog="python -m training.pretrain",
        description="Pre-train a decoder on a corpus of tokens.",
        epilog="Interrupted or killed, the same command goes on from the last checkpoint.",
    )
    add = parser.add_argument
    add("--corpus", required=True, help="folder that training.corpus wrote")
    add("--output", required=True, help="folder of the run: preset/, history.json, result.json")
    add("--config", required=True, help=f"the decoder: one of {', '.join(CONFIGURATIONS)}")
    add("--steps", type=int, required=True, help="updates in all")
    add("--batch-size", type=int, help="windows an update, on all replicas (default: %(default)s)")
    add("--sequence-length", type=int, help="tokens a window (default: the model's context)")
    add("--learning-rate", type=float, help="the schedule's peak (default: %(default)s)")
    add("--warmup-steps", type=int, help="updates to warm up over (default: %(default)s)")
    add("--clip-norm", type=float, help="global norm to clip gradients to (default: none)")
    add("--dropout", type=float, help="while pre-training (default: the configuration's)")
    add("--dtype", help=f"one of {', '.join(DTYPES)} (default: %(default)s)")
    add("--accumulation-steps", type=int, help="slices of a batch (default: %(default)s)")
    add("--seed", type=int, help="of weights, windows and dropout (default: %(default)s)")
    defaults = {field.name: field.default for field in dataclasses.fields(PretrainOptions)}
    parser.set_defaults(**{n: v for n, v in defaults.items() if n not in ("config", "steps")})
    how = parser.add_argument_group("how to run (not part of what determines the model)")
    add = how.add_argument
    add("--strategy", default="none", help=f"one of {', '.join(STRATEGIES)} (default: %(default)s)")
    add(
        "--jit-compile",
        choices=("auto", "on", "off"),
        default="auto",
        help="XLA; auto: on accelerators (default: %(default)s)",
    )
    add("--deterministic", action="store_true", help="the same bits on every run, some time lost")
    add("--checkpoint-every", type=int, default=500, help="updates (default: %(default)s)")
    add("--keep", type=int, default=3, help="checkpoints to keep (default: %(default)s)")
    add("--snapshot-every", type=int, help="updates between weights kept for good (default: none)")
    add("--validation-batches", type=int, help="to look at each time (default: all)")
    return parser


def main(arguments=None):
    namespace = vars(_parser().parse_args(arguments))
    place = {name: namespace.pop(name) for name in ("corpus", "output", "strategy")}
    jit_compile = {"auto": "auto", "on": True, "off": False}[namespace.pop("jit_compile")]
    checkpoint_schedule = {
        field.name: namespace.pop(field.name) for field in dataclasses.fields(CheckpointSchedule)
    }
    if namespace.pop("deterministic"):
        _make_deterministic()
    try:
        options, checkpoint_schedule = (
            PretrainOptions(**namespace),
            CheckpointSchedule(**checkpoint_schedule),
        )
        result = pretrain(
            options, **place, jit_compile=jit_compile, checkpoint_schedule=checkpoint_schedule
        )
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nInterrupted; the same command goes on from the last checkpoint.", file=sys.stderr)
        return 130
    if "validation_perplexity" in result:
        print(f"Validation perplexity: {result['validation_perplexity']:.3f}")
    return 0


def _make_deterministic():
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        tf.config.experimental.enable_op_determinism()


if __name__ == "__main__":
    sys.exit(main())
