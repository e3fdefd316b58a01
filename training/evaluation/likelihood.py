"""How likely texts are under a language model."""

import os

import keras
import numpy as np
from keras import ops

from gpt1_keras import GPT1CausalLM
from gpt1_keras.cli import progress
from gpt1_keras.models.causal_backbone import CausalBackbone
from gpt1_keras.presets import load_task
from gpt1_keras.tokenization.padding import bucket_lengths
from gpt1_keras.types import Tensor
from training.corpus.batches import validation_batches
from training.corpus.corpus_format import Corpus
from training.corpus.windows import SequentialWindows

_WINDOWS_AT_ONCE = 16

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
    windows = SequentialWindows(
        corpus.split(split), lm.backbone.max_sequence_length, _WINDOWS_AT_ONCE
    )
    return lm.evaluate(validation_batches(windows), return_dict=True)["perplexity"]


class TokenLosses(keras.Model):
    """The cross-entropy of each next token in nats, float32 `[batch, length]`, on any backend."""

    def __init__(self, backbone: CausalBackbone, jit_compile: bool) -> None:
        super().__init__(name="token_losses")
        self.backbone = backbone
        self.compile(jit_compile=jit_compile)

    def call(self, tokens: Tensor) -> Tensor:
        """Args: tokens: int `[batch, length + 1]`."""
        states = self.backbone({"token_ids": tokens[:, :-1]}, training=False)
        logits = ops.cast(self.backbone.token_embedding(states, reverse=True), "float32")
        return ops.sparse_categorical_crossentropy(tokens[:, 1:], logits, from_logits=True)


class Scorer:
    """The likelihood of texts under a language model.

    Args:
        lm: with a preprocessor, and any backbone.
    """

    def __init__(self, lm: GPT1CausalLM) -> None:
        self._tokenizer = lm.preprocessor.tokenizer
        self._context = lm.backbone.max_sequence_length
        self._losses = TokenLosses(lm.backbone, jit_compile=False)

    def __call__(self, pairs: list[tuple[bytes, bytes]]) -> np.ndarray:
        """Scores continuations after prefixes.

        Args:
            pairs: of `(prefix, continuation)`.

        Returns:
            float64 array `[pairs]`: the mean log-probability, in nats, of the continuation's
            tokens. A pair's first token is given, not predicted. Where a pair is longer than the
            context, its first tokens are left out. A continuation without tokens to predict has
            -inf.
        """
        prefixes, continuations = (self._tokenizer(list(texts)).to_list() for texts in zip(*pairs))
        rows = [
            (prefix + continuation)[-self._context - 1 :]
            for prefix, continuation in zip(prefixes, continuations)
        ]
        predicted = [min(len(last), len(row) - 1) for last, row in zip(continuations, rows)]
        scores = np.full(len(rows), -np.inf)
        order = [i for i in np.argsort([len(row) for row in rows]) if predicted[i] > 0]
        lengths = [*bucket_lengths(self._context), self._context + 1]
        for start in progress(range(0, len(order), _BATCH_SIZE), "Scoring"):
            batch = order[start : start + _BATCH_SIZE]
            longest = max(len(rows[i]) for i in batch)
            length = next(length for length in lengths if length >= longest)
            tokens = np.zeros((len(batch), length), np.int32)
            for row, i in enumerate(batch):
                tokens[row, : len(rows[i])] = rows[i]
            losses = self._losses.predict_on_batch(tokens)
            for row, i in enumerate(batch):
                end = len(rows[i]) - 1  # the first token is not predicted
                scores[i] = -losses[row, end - predicted[i] : end].mean()
        return scores
