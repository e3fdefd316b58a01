"""Pairs of passages, framed as tasks with two texts are, as windows for pre-training.

A window is filled with pairs, `<start>` A `<delimiter>` B `<extract>` word: A is a passage of the
corpus, B another text, and the word says how B was made. So a language model learns, still by
predicting the next token, to compare two texts and to have the result at `<extract>`, where
fine-tuning looks for it (section 3.3 of the paper). The paper has nothing of the kind.

Only numpy is used, and every pair is a function of raw random numbers.
"""

import json
import pathlib

import numpy as np

from training.corpus.corpus_format import Corpus

# What B is, and the word that says so. Edited copies are told by the share of edited words.
_COPY, _PART, _FOLLOWING, _ELSEWHERE = "same", "part", "next", "other"
_EDITED = ("most", "some", "few")  # below a third, below two thirds, and above
WORDS = (_COPY, _PART, *_EDITED, _FOLLOWING, _ELSEWHERE)
_LENGTHS = np.geomspace(6, 96, 64).astype(int)  # tokens of A, short ones as likely as long ones
_RAW_NUMBERS = 8192  # for a window


class Pairs:
    """Makes windows of pairs.

    Args:
        corpus: its tokenizer says which ids begin, part and end a pair, which tokens end a word,
            and which say what a pair is.

    Raises:
        ValueError: one of the words is no token of the corpus.
    """

    def __init__(self, corpus: Corpus) -> None:
        path = next(pathlib.Path(corpus.tokenizer_folder).rglob("vocabulary.json"))
        vocabulary = json.loads(path.read_text(encoding="utf-8"))
        words = {word: vocabulary.get(f"{word}</w>") for word in WORDS}
        if None in words.values():
            raise ValueError(
                f"Pairs need the words {', '.join(WORDS)} as tokens. Missing in {corpus.folder}: "
                f"{', '.join(word for word, token in words.items() if token is None)}."
            )
        self._words = words
        self._start, self._delimiter, self._extract = range(
            len(vocabulary), corpus.vocabulary_size
        )
        self._ends_word = np.ones(corpus.vocabulary_size, bool)
        for token, index in vocabulary.items():
            self._ends_word[index] = token.endswith("</w>")

    def write(self, window: np.ndarray, elsewhere: np.ndarray, raw: np.random.Philox) -> None:
        """Writes pairs into a window, in place.

        Args:
            window: int32 `[tokens]`, consecutive tokens of the corpus, of which passages are made.
            elsewhere: int32 `[tokens]`, likewise of another place.
            raw: where random numbers come from.
        """
        numbers = iter(raw.random_raw(_RAW_NUMBERS).tolist())
        source, others = self._split(window), self._split(elsewhere)
        tokens: list[int] = []
        while source and len(tokens) < len(window):
            length = int(_LENGTHS[next(numbers) % len(_LENGTHS)])
            first, second = self._take(source, length), self._take(others, length)
            word, second = self._second(first, second, source, numbers)
            tokens.append(self._start)
            tokens.extend(token for each in first for token in each)
            tokens.append(self._delimiter)
            tokens.extend(token for each in second for token in each)
            tokens += [self._extract, self._words[word]]
        tokens = tokens[: len(window)]
        window[: len(tokens)] = tokens

    def _second(self, first, other, source, numbers):
        """Returns the word and the second text, a list of words."""
        kind = next(numbers) % 8
        if kind == 0:
            return _ELSEWHERE, other
        if kind == 1:
            length = sum(map(len, first))
            return _FOLLOWING, self._take(source, length)
        begin, end = 0, len(first)
        if next(numbers) % 2:  # a part of A
            size = max(1, -(-len(first) // (2 + next(numbers) % 3)))
            begin = next(numbers) % (len(first) - size + 1)
            end = begin + size
        part = first[begin:end]
        if kind < 4:
            return (_COPY if len(part) == len(first) else _PART), part
        share = next(numbers) % 1000 / 1000
        edited = _edit(part, other, share, numbers)
        return _EDITED[min(int(3 * share), 2)], edited

    def _split(self, tokens: np.ndarray) -> list[list[int]]:
        """Splits tokens into words, last word first: `_take` takes from the end."""
        ends = np.flatnonzero(self._ends_word[tokens]) + 1
        words = [each.tolist() for each in np.split(tokens, ends)]
        return words[:0:-1]  # the first may have lost its beginning

    def _take(self, words: list[list[int]], length: int) -> list[list[int]]:
        """Takes words of at least `length` tokens; fewer where no more are left."""
        taken: list[list[int]] = []
        while words and length > 0:
            taken.append(words.pop())
            length -= len(taken[-1])
        return taken


def _edit(words, others, share, numbers):
    """Returns words, some of which are dropped, moved by one, or replaced.

    Args:
        words: list of words, each a list of tokens.
        others: list of words that replace them.
        share: from 0 to 1, of the words to edit.
        numbers: iterator of random numbers.
    """
    edited = []
    for index, word in enumerate(words):
        if next(numbers) % 1000 >= 1000 * share:
            edited.append(word)
            continue
        how = next(numbers) % 4
        if how == 0 and edited:  # moved before the one before it
            edited.insert(-1, word)
        elif how > 1 and others:
            edited.append(others[index % len(others)])
    return edited or words[:1]
