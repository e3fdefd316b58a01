"""Learning a byte-pair encoding from text."""

from __future__ import annotations

import collections
import functools
import itertools
import json
from collections.abc import Callable, Iterable, Iterator

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from gpt1_keras.lazy import tensorflow as tf
from gpt1_keras.tokenization.graph_ops import join_rows
from gpt1_keras.tokenization.normalization import find_normalizer
from gpt1_keras.tokenization.vocabulary import END_OF_WORD, UNKNOWN

MAX_ALPHABET = 1000  # characters; rarer ones are unknown
_BATCH = 1024  # texts
_REPEATS = 1000  # the most repetitions of a word in one text for the trainer


def learn_merges(
    texts: Iterable[str], num_merges: int, min_frequency: int = 2, normalization: str = "bert"
) -> tuple[dict[str, int], list[str]]:
    """Learns merges from text, with Hugging Face's trainer; see `GPT1Tokenizer.learn`.

    Returns:
        `(vocabulary, merges)`: a dict from token to id in the order of the original vocabulary
        (`<unk>`, characters, characters that end a word, products of merges); and the list of
        merges. If the normalization has a word for a line's end, it is always a token.
    """
    words = _count_words(texts, normalization)
    alphabet = _alphabet(words)
    if not alphabet:
        raise ValueError("Cannot learn merges: the texts hold no word.")
    line_end = find_normalizer(normalization).line_end
    if line_end is not None:  # texts of a single line lack it
        alphabet = sorted({*alphabet, line_end})
    finals = [f"{character}{END_OF_WORD}" for character in alphabet]
    tokenizer = Tokenizer(models.BPE(unk_token=UNKNOWN, end_of_word_suffix=END_OF_WORD))
    tokenizer.pre_tokenizer = pre_tokenizers.CharDelimiterSplit(" ")
    trainer = trainers.BpeTrainer(
        vocab_size=1 + 2 * len(alphabet) + num_merges,
        # The trainer breaks ties between merges by the characters' ids, and would assign these in
        # the order of its hash table. Given here, they are the same in every run.
        special_tokens=[UNKNOWN, *alphabet, *finals],
        initial_alphabet=alphabet,
        limit_alphabet=len(alphabet),
        min_frequency=min_frequency,
        end_of_word_suffix=END_OF_WORD,
        show_progress=False,
    )
    tokenizer.train_from_iterator(_repeat(words), trainer)
    merges = json.loads(tokenizer.to_str())["model"]["merges"][:num_merges]
    products = [left + right for left, right in merges]
    # Two merges may make the same token, which is listed once.
    tokens = dict.fromkeys([UNKNOWN, *alphabet, *finals, *products])
    vocabulary = {token: id for id, token in enumerate(tokens)}
    return vocabulary, [f"{left} {right}" for left, right in merges]


def _count_words(texts: Iterable[str], normalization: str) -> collections.Counter[str]:
    split = _word_splitter(normalization)
    counts: collections.Counter[bytes] = collections.Counter()
    texts = iter(texts)
    while batch := list(itertools.islice(texts, _BATCH)):
        counts.update(split(tf.constant(batch)).numpy().tolist())
    return collections.Counter({word.decode(): count for word, count in counts.items()})


@functools.cache
def _word_splitter(normalization: str) -> Callable[[tf.Tensor], tf.Tensor]:
    """Returns a graph, traced once, that splits texts, string `[batch]`, into string `[words]`."""
    normalizer = find_normalizer(normalization)()

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)
    def split(texts: tf.Tensor) -> tf.Tensor:
        return join_rows(*normalizer.split(texts)).values

    return split


def _repeat(words: collections.Counter[str]) -> Iterator[str]:
    """Texts of words separated by spaces, in which each word occurs as often as it was counted."""
    for word, count in words.items():
        for start in range(0, count, _REPEATS):
            yield " ".join([word] * min(_REPEATS, count - start))


def _alphabet(words: collections.Counter[str]) -> list[str]:
    counts: collections.Counter[str] = collections.Counter()
    for word, count in words.items():
        for character in word:
            counts[character] += count
    frequent = sorted(counts, key=lambda character: (-counts[character], character))
    return sorted(frequent[:MAX_ALPHABET])
