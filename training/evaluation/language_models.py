"""Language models on a corpus: loading one that takes its ids, and its perplexity."""

import os

from gpt1_keras import GPT1CausalLM
from gpt1_keras.presets import load_task
from training.corpus.batches import validation_batches
from training.corpus.corpus_format import Corpus
from training.corpus.windows import SequentialWindows

_BATCH_SIZE = 16


def load_for_corpus(preset: str | os.PathLike[str], corpus: Corpus) -> GPT1CausalLM:
    """Loads a language model that takes a corpus's ids: compiled, without its preprocessor.

    Raises:
        ValueError: the corpus was made with another tokenizer.
    """
    lm = load_task(preset, GPT1CausalLM)
    tokenizer, expected = lm.preprocessor.tokenizer, corpus.index["tokenizer"]
    if tokenizer.fingerprint != expected["fingerprint"]:
        raise ValueError(
            f"The corpus {corpus.folder} was made with another tokenizer: its fingerprint is "
            f"{expected['fingerprint']} (normalization {expected['normalization']!r}); {preset} "
            f"has {tokenizer.fingerprint} (normalization {tokenizer.normalization!r})."
        )
    lm.preprocessor = None
    lm.compile()
    return lm


def perplexity(preset: str | os.PathLike[str], corpus: Corpus, split: str = "validation") -> float:
    """Scores a preset.

    Returns:
        The exponential of a token's mean cross-entropy in nats.
    """
    lm = load_for_corpus(preset, corpus)
    windows = SequentialWindows(corpus.split(split), lm.backbone.max_sequence_length, _BATCH_SIZE)
    return lm.evaluate(validation_batches(windows), return_dict=True)["perplexity"]
