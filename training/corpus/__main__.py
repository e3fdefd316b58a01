"""Turns text into a corpus of token ids for pre-training.

    python -m training.corpus --input DIR --num-merges 40000 --output DIR

With `--runner`, all other options go to Apache Beam. Its workers must reach the input and the
output's parent folder under the same paths as this machine.
"""

import dataclasses
import os
import sys

from gpt1_keras.cli import UsageError, option, program
from training.corpus.build import CorpusOptions, make_corpus
from training.corpus.shards import ShardError


@dataclasses.dataclass(frozen=True)
class _BuildOptions:
    """Where the corpus is made, and by whom: nothing that its tokens depend on."""

    output: str = option("folder of the corpus: index.json, shards, tokenizer/")
    data_dir: str | None = option("folder of prepared TensorFlow Datasets (TFDS's own)", None)
    download: bool = option("fetch and prepare the data set if it is missing", False)
    processes: int | None = option("processes of this machine that share the work", os.cpu_count())
    runner: str | None = option(
        "have Apache Beam do the work: FnApiRunner on this machine, or FlinkRunner, SparkRunner, "
        "... (default: without Beam, on this machine)",
        None,
    )


@program(
    "training.corpus",
    interrupted="Interrupted; there is no corpus.",
    takes_more=True,
    foreseen=(ShardError,),
)
def main(options: CorpusOptions, build: _BuildOptions, beam_flags: list[str]) -> None:
    """Turn text into a corpus of token ids for pre-training."""
    if beam_flags and build.runner is None:
        raise UsageError(f"unrecognized arguments: {' '.join(beam_flags)}")
    make_corpus(options, **vars(build), beam_flags=beam_flags)


if __name__ == "__main__":
    sys.exit(main())
