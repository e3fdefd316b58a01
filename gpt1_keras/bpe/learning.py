"""Learning a byte-pair encoding from text."""

import collections
import json

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

from gpt1_keras.bpe.vocabulary import END_OF_WORD, UNKNOWN

MAX_ALPHABET = 1000  # characters beyond this many, the rarest ones, are unknown

# The normalisations as `tokenizers` has them.
_PIPELINES = {
    "bert": (normalizers.BertNormalizer(lowercase=True), pre_tokenizers.BertPreTokenizer())
}


def learn_merges(texts, num_merges, min_frequency=2, normalization="bert"):
    """Learns merges from text, with Hugging Face's trainer.

    Args:
        texts: iterable of strings, read twice.
        num_merges: int, the number of merges at most.
        min_frequency: int, how often a pair must occur to be merged.
        normalization: name of the normalisation.

    Returns:
        `(vocabulary, merges)`: a dict from token to id, laid out as the original vocabulary is
        (`<unk>`, characters, characters that end a word, products), and the list of merges.

    Raises:
        ValueError: an unknown normalisation, or texts without any word.
    """
    if normalization not in _PIPELINES:
        raise ValueError(
            f"Cannot learn merges with normalization={normalization!r}; expected one of "
            f"{sorted(_PIPELINES)}."
        )
    if iter(texts) is texts:
        texts = list(texts)  # it is read twice
    normalizer, splitter = _PIPELINES[normalization]
    alphabet = _alphabet(texts, normalizer)
    if not alphabet:
        raise ValueError("Cannot learn merges: the texts hold no word.")
    finals = [f"{character}{END_OF_WORD}" for character in alphabet]
    tokenizer = Tokenizer(models.BPE(unk_token=UNKNOWN, end_of_word_suffix=END_OF_WORD))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizer, splitter
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
    tokenizer.train_from_iterator(texts, trainer)
    merges = json.loads(tokenizer.to_str())["model"]["merges"][:num_merges]
    products = [left + right for left, right in merges]
    # Two merges may give the same token; it is listed once.
    tokens = dict.fromkeys([UNKNOWN, *alphabet, *finals, *products])
    vocabulary = {token: id for id, token in enumerate(tokens)}
    return vocabulary, [f"{left} {right}" for left, right in merges]


def _alphabet(texts, normalizer):
    """The most frequent characters of the normalised texts, sorted."""
    counts = collections.Counter()
    for text in texts:
        counts.update(normalizer.normalize_str(text))
    frequent = sorted(counts, key=lambda character: (-counts[character], character))
    return sorted([character for character in frequent if character != " "][:MAX_ALPHABET])
