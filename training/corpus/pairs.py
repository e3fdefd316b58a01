"""Pairs of passages for pre-training, framed as tasks with two texts are (section 3.3).

A window is filled with pairs, `<start>` A `<delimiter>` B `<extract>` word. A is a passage of the
corpus, B is another text, and the word says how B was made. So a language model learns to compare
two texts, and to have the result at `<extract>`, where fine-tuning reads it; its loss stays that of
the next token. The paper has nothing of the kind.

Numpy alone is used, and a pair is a function of raw random numbers.
"""

from collections.abc import Iterator

import numpy as np

from gpt1_keras.files import read_json
from training.corpus.corpus_format import Corpus

# What B is, and the word that says so. The words for edited copies follow the share of words that
# are edited: below a third, below two thirds, and above.
_COPY, _PART, _FOLLOWING, _ELSEWHERE = "same", "part", "next", "other"
_EDITED = ("most", "some", "few")
WORDS = (_COPY, _PART, *_EDITED, _FOLLOWING, _ELSEWHERE)
_LENGTHS = np.geomspace(6, 96, 64).astype(int)  # tokens of A; each octave is equally likely

_Words = list[list[int]]  # the token ids of each word


class Pairs:
    """Writes pairs into windows.

    Args:
        corpus: its tokenizer says which tokens end a word, and which ids frame a pair.
    """

    def __init__(self, corpus: Corpus) -> None:
        vocabulary = read_json(next(corpus.tokenizer_folder.rglob("vocabulary.json")))
        missing = [word for word in WORDS if f"{word}</w>" not in vocabulary]
        if missing:
            raise ValueError(
                f"Pairs need the words {', '.join(WORDS)} as tokens. The tokenizer of "
                f"{corpus.folder} lacks {', '.join(missing)}."
            )
        self._ids = {word: vocabulary[f"{word}</w>"] for word in WORDS}
        # The special tokens follow the vocabulary, in this order.
        self._start, self._delimiter, self._extract = (len(vocabulary) + i for i in range(3))
        self._ends_word = np.ones(corpus.vocabulary_size, bool)
        for token, index in vocabulary.items():
            self._ends_word[index] = token.endswith("</w>")

    def write(self, window: np.ndarray, elsewhere: np.ndarray, raw: np.random.Philox) -> None:
        """Writes pairs into a window, in place.

        Args:
            window: int32 `[tokens]`, consecutive tokens of the corpus; passages are made of them.
            elsewhere: int32 `[tokens]`, consecutive tokens of another place of the corpus.
        """
        numbers = _numbers(raw)
        words, others = self._split(window), self._split(elsewhere)
        tokens: list[int] = []
        while words and len(tokens) < len(window):
            length = int(_LENGTHS[next(numbers) % len(_LENGTHS)])
            first, other = _take(words, length), _take(others, length)
            said, second = _second_text(first, other, words, numbers)
            tokens += [self._start, *sum(first, []), self._delimiter, *sum(second, [])]
            tokens += [self._extract, self._ids[said]]
        window[: len(tokens)] = tokens[: len(window)]

    def _split(self, tokens: np.ndarray) -> _Words:
        """Splits tokens into words, the last word first, as `_take` takes from the end."""
        ends = (np.flatnonzero(self._ends_word[tokens]) + 1).tolist()
        ids = tokens.tolist()
        # What is before the first end may lack its beginning, what is after the last its end.
        return [ids[start:end] for start, end in zip(ends, ends[1:])][::-1]


def _numbers(raw: np.random.Philox) -> Iterator[int]:
    """Yields raw random numbers without end."""
    while True:
        yield from raw.random_raw(256).tolist()


def _take(words: _Words, length: int) -> _Words:
    """Removes words of at least `length` tokens from the end, fewer where no more are left."""
    taken: _Words = []
    while words and length > 0:
        taken.append(words.pop())
        length -= len(taken[-1])
    return taken


def _second_text(
    first: _Words, other: _Words, following: _Words, numbers: Iterator[int]
) -> tuple[str, _Words]:
    """Returns the word that says what B is, and B.

    `first` is A, `other` a passage from elsewhere; of the words `following` A, the last is first.
    """
    kind = next(numbers) % 8
    if kind == 0:
        return _ELSEWHERE, other
    if kind == 1:
        return _FOLLOWING, _take(following, sum(map(len, first)))
    part = first
    if next(numbers) % 2:
        size = -(-len(first) // (2 + next(numbers) % 3))  # a half, a third or a quarter
        begin = next(numbers) % (len(first) - size + 1)
        part = first[begin : begin + size]
    if kind < 4:
        return (_COPY if len(part) == len(first) else _PART), part
    share = next(numbers) % 1000
    return _EDITED[min(3 * share // 1000, 2)], _edit(part, other, share, numbers)


def _edit(words: _Words, others: _Words, share: int, numbers: Iterator[int]) -> _Words:
    """Moves, drops or replaces a share of the words, in thousandths; leaves at least one."""
    edited: _Words = []
    for index, word in enumerate(words):
        if next(numbers) % 1000 >= share:
            edited.append(word)
            continue
        how = next(numbers) % 4
        if how == 0 and edited:
            edited.insert(-1, word)  # before the word before it
        elif how > 1 and others:
            edited.append(others[index % len(others)])
    return edited or words[:1]
