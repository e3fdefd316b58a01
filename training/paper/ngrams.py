"""Scores n-gram models on a corpus: how far counting alone gets, to compare a model with.

    python -m training.paper.ngrams --corpus DIR --output FILE.json

It counts the train split and scores every token of the validation split except the first of each
shard, exactly those that `training.corpus.windows.sequential_windows` predicts; or with `--tokens`
the first of them, as many as a run with `--validation-batches` uses. The unigram model is smoothed
by adding one; the trigram model by interpolated modified Kneser-Ney (Chen & Goodman 1998), the best
that counting alone is known to do. No n-gram crosses shards. It takes about 50 bytes of memory per
token.
"""

import dataclasses
import json
import pathlib
import sys
import time
from typing import Any

from gpt1_keras.cli import option, program
from gpt1_keras.files import atomic_path
from training.corpus.corpus_format import Corpus, Split
from training.evaluation.ngram_models import KneserNey, Unigram, perplexity


@dataclasses.dataclass(frozen=True)
class _Options:
    corpus: str = option("folder that training.corpus wrote")
    output: str | None = option(
        "JSON file for the scores, as training.paper.plot_pretraining takes it", None
    )
    tokens: int | None = option("score only this many, from the first (default: all)", None)


def score(corpus: Corpus, tokens: int | None = None) -> dict[str, Any]:
    """Counts the train split of a corpus and scores its validation split.

    Args:
        corpus: with both splits.
        tokens: how many to score, from the first; all by default.

    Returns:
        dict of `corpus_fingerprint`, `validation_tokens`, `unigram_perplexity`,
        `trigram_perplexity`, and the trigram's `discounts`, a list for each order.

    Raises:
        ValueError: the corpus lacks one of the splits, or there is nothing to score in it.
    """
    train, validation = corpus.split("train"), _first(corpus.split("validation"), tokens)
    unigram = Unigram(train, corpus.vocabulary_size)
    trigram = KneserNey(train, corpus.vocabulary_size)
    return {
        "corpus_fingerprint": corpus.fingerprint,
        "validation_tokens": sum(max(0, len(shard) - 1) for shard in validation.shards),
        "unigram_perplexity": perplexity(unigram, validation),
        "trigram_perplexity": perplexity(trigram, validation),
        "discounts": [level.discounts.tolist() for level in trigram.levels],
    }


def _first(split: Split, tokens: int | None) -> Split:
    """The start of a split, in which `tokens` tokens follow another."""
    if tokens is None:
        return split
    if tokens < 1:
        raise ValueError(f"tokens must be at least 1. Received: {tokens}.")
    shards = []
    for shard in split.shards:
        if tokens > 0:
            shards.append(shard[: tokens + 1])
            tokens -= max(0, len(shard) - 1)
    return Split(split.name, tuple(shards))


@program("training.paper.ngrams")
def main(options: _Options) -> None:
    """Score a corpus's validation split by a unigram and a trigram model."""
    started = time.monotonic()
    scores = score(Corpus(options.corpus), options.tokens)
    if options.output:
        with atomic_path(options.output) as temporary:
            pathlib.Path(temporary).write_text(json.dumps(scores, indent=2) + "\n")
    print(f"Unigram, add-one: validation perplexity {scores['unigram_perplexity']:.2f}")
    print(f"Trigram, Kneser-Ney: validation perplexity {scores['trigram_perplexity']:.2f}")
    print(f"Counted and scored in {time.monotonic() - started:.1f} s")


if __name__ == "__main__":
    sys.exit(main())
