"""Learning a byte-pair encoding from text."""

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
    characters = _train(texts, 0, min_frequency, normalization, finals=[])["vocab"]
    alphabet = sorted({token[0] for token in characters if token != UNKNOWN})
    if not alphabet:
        raise ValueError("Cannot learn merges: the texts hold no word.")
    # The trainer numbers the characters that end words as its hash table has them, and breaks ties
    # between merges by number. Given beforehand, they make every run learn the same.
    finals = [f"{character}{END_OF_WORD}" for character in alphabet]
    model = _train(texts, num_merges, min_frequency, normalization, finals)
    merges = [tuple(merge) for merge in model["merges"][:num_merges]]
    products = [left + right for left, right in merges]
    # Two merges may give the same token; it is listed once.
    tokens = dict.fromkeys([UNKNOWN, *alphabet, *finals, *products])
    vocabulary = {token: id for id, token in enumerate(tokens)}
    return vocabulary, [f"{left} {right}" for left, right in merges]


def _train(texts, num_merges, min_frequency, normalization, finals):
    """Runs the trainer; gives its model, a dict with `vocab` and `merges`."""
    tokenizer = Tokenizer(models.BPE(unk_token=UNKNOWN, end_of_word_suffix=END_OF_WORD))
    tokenizer.normalizer, tokenizer.pre_tokenizer = _PIPELINES[normalization]
    trainer = trainers.BpeTrainer(
        # The trainer's size counts each character twice, as it may or may not end a word. This is
        # room for all of them; what merges are learned beyond `num_merges` are cut off later.
        vocab_size=1 + 2 * MAX_ALPHABET + num_merges if num_merges else 1,
        limit_alphabet=MAX_ALPHABET,
        min_frequency=min_frequency,
        special_tokens=[UNKNOWN, *finals],
        end_of_word_suffix=END_OF_WORD,
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return json.loads(tokenizer.to_str())["model"]
