"""Whether texts look like English, which the models that ship were pre-trained on.

The tokenizer alone says so. One that was learned from English has whole tokens for its words, the
most frequent first; it cuts the words of other languages into pieces, and few of them are among its
most frequent ones. Both must hold, as English of a trade is cut into pieces too.

Measured with the tokenizer of `gpt1_tiny_books`: of the texts of seven German workbooks, 42 to 80
each, 82 to 100 % do not look like English, and all but one of those of at least five words; of up
to 1,500 texts each of SST-2, CoLA, MRPC, RTE, SNLI, RACE and novels at most 1.1 %, of STS-B's
headlines and captions 10.5 %.
"""

import re
from collections.abc import Collection, Iterable, Sequence

import numpy as np

from gpt1_keras.tokenization.tokenizer import GPT1Tokenizer
from gpt1_keras.tokenization.vocabulary import END_OF_WORD

_WORD = re.compile(r"[^\W\d_]+")
_MOST_FREQUENT = 300  # words of two letters or more
_OF_ENGLISH = {"the", "and", "of", "to", "that"}  # among them, if it was learned from English
_TOKENS_A_WORD, _FREQUENT = 1.5, 0.15  # above, and below: what does not look like English
_LEAST_WORDS = 5  # of a text, for these to say something


def count_unlike_english(texts: Sequence[str], tokenizer: GPT1Tokenizer) -> int:
    """Returns how many texts do not look like English.

    Texts of less than five words do not count, unless most of their letters are beyond ASCII. It is
    0 for a tokenizer that was not learned from English.
    """
    frequent = _frequent_words(tokenizer.get_vocabulary())
    if not frequent >= _OF_ENGLISH:
        return 0
    words_of = [_WORD.findall(text.lower()) for text in texts]
    words = sorted(set().union(*words_of))
    lengths = tokenizer(words).row_lengths().numpy() if words else np.zeros(0)
    tokens = dict(zip(words, lengths.tolist()))
    return sum(_is_unlike(found, tokens, frequent) for found in words_of)


def _frequent_words(vocabulary: Iterable[str]) -> set[str]:
    """Returns the words that were merged first."""
    ends = (token.removesuffix(END_OF_WORD) for token in vocabulary if token.endswith(END_OF_WORD))
    whole = [word for word in ends if word.isalpha() and len(word) > 1]
    return set(whole[:_MOST_FREQUENT])


def _is_unlike(words: list[str], tokens: dict[str, int], frequent: Collection[str]) -> bool:
    letters = "".join(words)
    if not letters.isascii() and sum(not each.isascii() for each in letters) > len(letters) / 2:
        return True
    if len(words) < _LEAST_WORDS:
        return False
    mean = sum(tokens[word] for word in words) / len(words)
    known = sum(word in frequent for word in words) / len(words)
    return mean > _TOKENS_A_WORD and known < _FREQUENT
