"""Scores n-gram models on a corpus, to compare a model with what counting alone reaches.

    gpt1 ngrams --corpus DIR --output FILE.json

It counts the train split. It scores every token of the validation split except the first of each
shard, exactly those that `training.corpus.windows.SequentialWindows` predicts; with `--tokens`,
only the first of them, to match a run with `--validation-batches`. The unigram model is smoothed by
adding one; the trigram model, by interpolated modified Kneser-Ney (Chen & Goodman 1998), the best
known smoothing of counts. No n-gram crosses shards. The program takes about 50 bytes of memory per
token.
"""

import dataclasses
import sys
import time

from gpt1_keras.cli import option, program


@dataclasses.dataclass(frozen=True)
class _Options:
    corpus: str = option("folder that gpt1 corpus wrote")
    output: str | None = option("JSON file for the scores, as gpt1 plot_pretraining takes it", None)
    tokens: int | None = option("score only this many, from the first (default: all)", None)


@program("training.paper.ngrams")
def main(options: _Options) -> None:
    """Score a corpus's validation split by a unigram and a trigram model."""
    from gpt1_keras.files import write_json
    from training.corpus.corpus_format import Corpus
    from training.evaluation.ngram_models import score_corpus

    started = time.monotonic()
    scores = score_corpus(Corpus(options.corpus), options.tokens)
    if options.output:
        write_json(options.output, scores)
    print(f"Unigram, add-one: validation perplexity {scores['unigram_perplexity']:.2f}")
    print(f"Trigram, Kneser-Ney: validation perplexity {scores['trigram_perplexity']:.2f}")
    print(f"Counted and scored in {time.monotonic() - started:.1f} s")


if __name__ == "__main__":
    sys.exit(main())
