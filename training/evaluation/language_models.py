"""Language models as they read a corpus."""

import os

from gpt1_keras import GPT1CausalLM
from gpt1_keras.presets import load_task
from training.corpus.corpus_format import Corpus


def load_for_corpus(preset: str | os.PathLike[str], corpus: Corpus) -> GPT1CausalLM:
    """Loads a language model that takes a corpus's ids: compiled, without its preprocessor.

    Raises:
        FileNotFoundError: there is no preset.
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
