"""Learning a byte-pair encoding from text."""

import collections
import itertools
import json

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from gpt1_keras.lazy import tensorflow as tf
from gpt1_keras.tokenization.encoder import find_normalizer
from gpt1_keras.tokenization.lookup.ragged import join_rows
from gpt1_keras.tokenization.vocabulary import END_OF_WORD, UNKNOWN

MAX_ALPHABET = 1000  # characters beyond this many, the rarest ones, are unknown
_BATCH = 1024  # texts
_REPEATS = 1000  # of a word, in a text for the trainer


def learn_merges(texts, num_merges, min_frequency=2, normalization="bert"):
    """Learns merges from text, with Hugging Face's trainer.

    Args:
        texts: iterable of strings.
        num_merges: int, the number of merges at most.
        min_frequency: int, how often a pair must occur to be merged.
        normalization: name of the normalisation.

    Returns:
        `(vocabulary, merges)`: a dict from token to id, laid out as the original vocabulary is
        (`<unk>`, characters, characters that end a word, products), and the list of merges. The
        word for a line's end, where the normalisation has one, is always in it.

    Raises:
        ValueError: an unknown normalisation, or texts without any word.
    """
    words = _count_words(texts, normalization)
    alphabet = _alphabet(words)
    if not alphabet:
        raise ValueError("Cannot learn merges: the texts hold no word.")
    line_end = find_normalizer(normalization).line_end
    if line_end is not None:  # single lines, learned from, have none
        alphabet = sorted({*alphabet, line_end})
    finals = [f"{character}{END_OF_WORD}" for character in alphabet]
    tokenizer = Tokenizer(models.BPE(unk_token=UNKNOWN, end_of_word_suffix=END_OF_WORD))
    tokenizer.pre_tokenizer = pre_tokenizers.CharDelimiterSplit(" ")
    trainer = trainers.BpeTrainer(
        vocab_size=1 + 2 * len(alphabet) + num_merges,
        # The trainer breaks ties between merges by its numbers for the characters, and would
        # number them as its hash table has them. Given beforehand, they are the same in every run.
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
    # Two merges may give the same token; it is listed once.
    tokens = dict.fromkeys([UNKNOWN, *alphabet, *finals, *products])
    vocabulary = {token: id for id, token in enumerate(tokens)}
    return vocabulary, [f"{left} {right}" for left, right in merges]


def _count_words(texts, normalization):
    """How often each word of the texts occurs: a Counter."""
    normalizer = find_normalizer(normalization)()

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)
    def split(texts):
        chunks, words = normalizer.split(texts)
        return join_rows(words, chunks).values

    counts: collections.Counter[bytes] = collections.Counter()
    texts = iter(texts)
    while batch := list(itertools.islice(texts, _BATCH)):
        counts.update(split(tf.constant(batch)).numpy().tolist())
    return collections.Counter({word.decode(): count for word, count in counts.items()})


def _repeat(words):
    """Texts in which each word occurs as often as it is counted, parted by blanks."""
    for word, count in words.items():
        for start in range(0, count, _REPEATS):
            yield " ".join([word] * min(_REPEATS, count - start))


def _alphabet(words):
    """The most frequent characters of counted words, sorted."""
    counts: collections.Counter[str] = collections.Counter()
    for word, count in words.items():
        for character in word:
            counts[character] += count
    frequent = sorted(counts, key=lambda character: (-counts[character], character))
    return sorted(frequent[:MAX_ALPHABET])
