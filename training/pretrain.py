"""Pre-trains a language model on a corpus (section 4.1 of the paper).

    gpt1 pretrain --corpus DIR --config gpt1_tiny --steps 10000 --output DIR

After an interruption, even a kill, the same command goes on from the last checkpoint as if nothing
had happened: batches are a function of the seed and the step. There is a checkpoint every
`--checkpoint-every` updates and at least every two minutes, and another before Ctrl-C or SIGTERM
ends the program. DIR/preset is the model, DIR/history.json has its losses and perplexities, also
for TensorBoard in DIR/logs, and DIR/result.json these, the options and the last scores.
DIR/context_use.svg shows how the model uses its context (see `gpt1 paper context_use`).
DIR/snapshots has the backbone's weights during training, for `gpt1 paper zero_shot`.

With `--decay-steps`, a later run can go on from an earlier one, any number of times:

    gpt1 pretrain ... --decay-steps 1000 --steps 10000 --output first
    gpt1 pretrain ... --decay-steps 1000 --steps 20000 --resume-from first \
        --output second

In each run the rate decays to 0 at the end, so each leaves a finished model. The next run goes on
from the weights before that decay, and ends as if both had been one run.

With `--strategy multi_worker`, start the program on every worker, with TF_CONFIG set and DIR on a
file system that all workers share. With KERAS_BACKEND=jax it runs without TensorFlow, on one
device; the same command on a machine with TensorFlow then writes the preset.
"""

import dataclasses
import sys

from gpt1_keras.cli import option, program
from training.runs import newest_saved
from training.runs.pretrain_options import (
    JIT_COMPILE,
    MEASURED,
    STRATEGIES,
    CheckpointSchedule,
    PretrainOptions,
)

_HOW_TO_RUN = "how to run"  # a group in --help


@dataclasses.dataclass(frozen=True)
class _RunOptions:
    corpus: str = option("folder that gpt1 corpus wrote")
    output: str = option("folder of the run: preset/, history.json, result.json")
    resume_from: str | None = option(
        "with --decay-steps: folder of an earlier run; this one goes on from its weights before "
        "the decay",
        None,
        metavar="RUN",
    )
    strategy: str = option(
        f"one of {', '.join(STRATEGIES)}; the model does not depend on it, except by the masks of "
        "dropout, which each replica draws itself",
        "none",
        group=_HOW_TO_RUN,
    )
    jit_compile: str = option(
        "whether to use XLA; auto: on accelerators, and on a CPU if the first steps are faster",
        "auto",
        group=_HOW_TO_RUN,
        choices=tuple(JIT_COMPILE),
    )
    deterministic: bool = option(
        "compute the same bits in every run, more slowly", False, group=_HOW_TO_RUN
    )


@program("training.pretrain", resumable=newest_saved)
def main(options: PretrainOptions, run: _RunOptions, schedule: CheckpointSchedule) -> None:
    """Pre-train a language model on a corpus."""
    import keras

    from training.runs.pretraining import pretrain
    from training.runs.strategy_and_xla import naming_lost_workers

    if run.deterministic and keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        tf.config.experimental.enable_op_determinism()
    jit_compile = JIT_COMPILE[run.jit_compile]
    if run.deterministic and jit_compile == MEASURED:
        jit_compile = "auto"  # a measured choice, and so the bits, would depend on the clock
    with naming_lost_workers():
        result = pretrain(
            options, run.corpus, run.output, run.strategy, jit_compile, schedule, run.resume_from
        )
    if "validation_perplexity" in result:
        print(f"Validation perplexity: {result['validation_perplexity']:.3f}")


if __name__ == "__main__":
    sys.exit(main())
