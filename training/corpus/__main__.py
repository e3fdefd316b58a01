"""Turns text into a corpus of token ids for pre-training.

    gpt1 corpus --input DIR --num-merges 40000 --output DIR

Where the input has no split for validation, a twentieth of its documents is held back for it, or of
the lines of a single document: `gpt1 pretrain` validates on them.

With `--runner`, options of Apache Beam go to it; those that a runner's job server alone knows come
after `--`. Its workers must reach the input and the output's parent folder under the same
paths as this machine.
"""

import dataclasses
import os
import sys

from gpt1_keras.cli import option, program
from training.corpus.corpus_options import CorpusOptions
from training.datasets.data_options import DataOptions


@dataclasses.dataclass(frozen=True)
class _BuildOptions:
    """Where and how the corpus is built; its tokens do not depend on these options."""

    output: str = option("folder of the corpus: index.json, shards, tokenizer/")
    processes: int = option("processes of this machine that share the work", os.cpu_count() or 1)
    runner: str | None = option(
        "the Apache Beam runner that does the work: FnApiRunner (this machine), FlinkRunner, "
        "SparkRunner, ...; it takes Beam's own options, and all after -- (default: without Beam)",
        None,
    )


@program("training.corpus", interrupted="Interrupted; there is no corpus.", takes_more=True)
def main(options: CorpusOptions, build: _BuildOptions, data: DataOptions, more: list[str]) -> None:
    """Turn text into a corpus of token ids for pre-training."""
    beam_flags = main.beam_arguments(more, build.runner)
    from training.corpus.build import make_corpus

    make_corpus(options, **vars(build), data=data, beam_flags=beam_flags)


if __name__ == "__main__":
    sys.exit(main())
