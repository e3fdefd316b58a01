"""The perplexity of a language model on a corpus.

    python -m training.perplexity --preset gpt1_tiny_books --corpus DIR

Every token of the split but the first of each shard is predicted once, in windows of the model's
context, one after the other: the tokens that `training.ngrams` scores.
"""

import argparse
import os
import sys

import gpt1_keras
from gpt1_keras.presets import PRETRAINED, find_preset
from training.corpus.batches import validation_batches
from training.corpus.windows import Corpus, count_sequential_batches

_BATCH_SIZE = 16


def perplexity(preset, corpus, split="validation"):
    """Scores a preset.

    Args:
        preset: name of a preset that ships, or path of a preset's folder.
        corpus: `training.corpus.windows.Corpus`, made with the preset's tokenizer.
        split: str.

    Returns:
        float, the exponential of the mean cross-entropy, in nats, of a token.

    Raises:
        FileNotFoundError: there is no preset.
        ValueError: the corpus was made with another tokenizer, or has no such split.
    """
    lm = gpt1_keras.GPT1CausalLM.from_preset(os.fspath(find_preset(preset)))
    tokenizer, expected = lm.preprocessor.tokenizer, corpus.index["tokenizer"]
    if tokenizer.fingerprint != expected["fingerprint"]:
        raise ValueError(
            f"The corpus {corpus.folder} was made with another tokenizer: its fingerprint is "
            f"{expected['fingerprint']} (normalization {expected['normalization']!r}); {preset} "
            f"has {tokenizer.fingerprint} (normalization {tokenizer.normalization!r})."
        )
    lm.preprocessor = None  # the corpus holds ids
    lm.compile()
    arguments = corpus.split(split), lm.backbone.max_sequence_length, _BATCH_SIZE
    batches = validation_batches(*arguments, count_sequential_batches(*arguments))
    return lm.evaluate(batches, return_dict=True)["perplexity"]


def main(arguments=None):
    parser = argparse.ArgumentParser(
        prog="python -m training.perplexity",
        description="Score a language model on a corpus.",
    )
    add = parser.add_argument
    add("--preset", required=True, help=f"{', '.join(PRETRAINED)}, or a preset's folder")
    add("--corpus", required=True, help="folder that training.corpus wrote")
    add("--split", default="validation", help="default: %(default)s")
    options = parser.parse_args(arguments)
    try:
        score = perplexity(options.preset, Corpus(options.corpus), options.split)
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"Perplexity: {score:.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
