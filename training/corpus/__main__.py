"""Turns text into a corpus of token ids for pre-training.

    python -m training.corpus --input DIR --num-merges 40000 --output DIR

Where the input has no split for validation, a twentieth of its documents is held back for it, or of
the lines of a single document: `training.pretrain` validates on them.

With `--runner`, options that are not listed go to Apache Beam. Its workers must reach the input and
the output's parent folder under the same paths as this machine.
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
        "SparkRunner, ...; options that are not listed here go to Beam (default: without Beam)",
        None,
    )


@program("training.corpus", interrupted="Interrupted; there is no corpus.", takes_more=True)
def main(
    options: CorpusOptions, build: _BuildOptions, data: DataOptions, beam_flags: list[str]
) -> None:
    """Turn text into a corpus of token ids for pre-training."""
    if beam_flags and build.runner is None:
        raise main.unknown(beam_flags)
    from training.corpus.build import make_corpus

    make_corpus(options, **vars(build), data=data, beam_flags=beam_flags)


if __name__ == "__main__":
    sys.exit(main())
