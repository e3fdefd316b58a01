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
        texts: iterable of strings.
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
    tokenizer = Tokenizer(models.BPE(unk_token=UNKNOWN, end_of_word_suffix=END_OF_WORD))
    tokenizer.normalizer, tokenizer.pre_tokenizer = _PIPELINES[normalization]
    trainer = trainers.BpeTrainer(
        # The trainer's size counts each character twice, as it may or may not end a word. This is
        # room for all of them; what merges are learned beyond `num_merges` are cut off below.
        vocab_size=1 + 2 * MAX_ALPHABET + num_merges,
        limit_alphabet=MAX_ALPHABET,
        min_frequency=min_frequency,
        special_tokens=[UNKNOWN],
        end_of_word_suffix=END_OF_WORD,
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    model = json.loads(tokenizer.to_str())["model"]
    alphabet = sorted({token[0] for token in model["vocab"] if _is_character(token)})
    if not alphabet:
        raise ValueError("Cannot learn merges: the texts hold no word.")
    merges = [tuple(merge) for merge in model["merges"][:num_merges]]
    tokens = [UNKNOWN, *alphabet, *(f"{character}{END_OF_WORD}" for character in alphabet)]
    tokens += [left + right for left, right in merges]
    # Two merges may give the same token; it is listed once.
    vocabulary = {token: id for id, token in enumerate(dict.fromkeys(tokens))}
    return vocabulary, [f"{left} {right}" for left, right in merges]


def _is_character(token):
    return len(token.removesuffix(END_OF_WORD)) == 1
