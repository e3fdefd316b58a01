"""Pre-trains a language model on a corpus (section 4.1 of the paper).

    python -m training.pretrain --corpus DIR --config gpt1_tiny --steps 10000 --output DIR

Interrupted or killed, the same command goes on from the last checkpoint as if nothing had happened:
batches are a function of the seed and the step. DIR/preset is the model, DIR/history.json its
losses and perplexities, DIR/result.json all there is to know, DIR/context_use.svg how the model
uses its context (see `training.paper.context_use`). DIR/snapshots are the backbone's weights on the
way, for `training.paper.zero_shot`.

With `--decay-steps`, a later run can go on from an earlier one, as often as one likes:

    python -m training.pretrain ... --decay-steps 1000 --steps 10000 --output first
    python -m training.pretrain ... --decay-steps 1000 --steps 20000 --resume-from first \
        --output second

Each run ends with a decay of the rate, and so with a model to keep. The next run goes on from the
weights before that decay, and ends as if it had been run in one piece.

With `--strategy multi_worker`, start it on every worker, with TF_CONFIG set and DIR on a file
system that all share. With KERAS_BACKEND=jax it runs without TensorFlow, on one device; the same
command on a machine with TensorFlow then writes the preset.
"""

import dataclasses
import sys

from gpt1_keras.cli import option, program
from training.runs.pretrain_options import (
    JIT_COMPILE,
    MEASURED,
    STRATEGIES,
    CheckpointSchedule,
    PretrainOptions,
)

_HOW_TO_RUN = "how to run (the model does not depend on it)"  # a group in --help


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
    import keras

    from training.runs.pretrain_run import pretrain

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
