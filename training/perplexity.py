"""Computes the perplexity of a language model on a corpus.

    gpt1 perplexity --preset gpt1_tiny_books --corpus DIR

Every token of the split except the first of each shard is predicted once, in consecutive windows of
the model's context: the tokens that `gpt1 paper ngrams` scores.
"""

import dataclasses
import sys

from gpt1_keras.cli import option, program
from gpt1_keras.presets import PRESET_HELP, PRESET_NAMES


@dataclasses.dataclass(frozen=True)
class _Options:
    preset: str = option(PRESET_HELP, name=PRESET_NAMES)
    corpus: str = option("folder that gpt1 corpus wrote")
    split: str = option("split of the corpus to score", "validation")


@program("training.perplexity")
def main(options: _Options) -> None:
    """Compute the perplexity of a language model on a corpus."""
    from training.corpus.corpus_format import Corpus
    from training.evaluation.likelihood import perplexity

    score = perplexity(options.preset, Corpus(options.corpus), options.split)
    print(f"Perplexity: {score:.3f}")


if __name__ == "__main__":
    sys.exit(main())
