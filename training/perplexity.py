"""Computes the perplexity of a language model on a corpus.

    python -m training.perplexity --preset gpt1_tiny_books --corpus DIR

Every token of the split except the first of each shard is predicted once, in consecutive windows of
the model's context: the tokens that `training.paper.ngrams` scores.
"""

import dataclasses
import os
import sys

from gpt1_keras.cli import option, program
from gpt1_keras.presets import PRESET_HELP
from training.corpus.batches import validation_batches
from training.corpus.corpus_format import Corpus
from training.corpus.windows import count_sequential_batches
from training.evaluation.language_models import load_for_corpus

_BATCH_SIZE = 16


@dataclasses.dataclass(frozen=True)
class _Options:
    preset: str = option(PRESET_HELP)
    corpus: str = option("folder that training.corpus wrote")
    split: str = option("of the corpus", "validation")


def perplexity(preset: str | os.PathLike[str], corpus: Corpus, split: str = "validation") -> float:
    """Scores a preset.

    Args:
        preset: a name, a folder or a handle, as of `gpt1_keras.presets.find_preset`.
        corpus: made with the preset's tokenizer.
        split: of the corpus.

    Returns:
        The exponential of a token's mean cross-entropy in nats.

    Raises:
        FileNotFoundError: there is no preset.
        ValueError: the corpus was made with another tokenizer, or has no such split.
    """
    lm = load_for_corpus(preset, corpus)
    arguments = corpus.split(split), lm.backbone.max_sequence_length, _BATCH_SIZE
    batches = validation_batches(*arguments, count_sequential_batches(*arguments))
    return lm.evaluate(batches, return_dict=True)["perplexity"]


@program("training.perplexity")
def main(options: _Options) -> None:
    """Compute the perplexity of a language model on a corpus."""
    score = perplexity(options.preset, Corpus(options.corpus), options.split)
    print(f"Perplexity: {score:.3f}")


if __name__ == "__main__":
    sys.exit(main())
