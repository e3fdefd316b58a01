"""The words of an explained answer, in the texts that they stand in."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

_IN_NO_CHOICE = -1  # `choice` of a word, or of a text, that is no choice
_COLUMNS = ("word_starts", "word_ends", "words", "word_shares")


class Word(NamedTuple):
    """A word of an explained text: its field and choice, its range of bytes, and its share."""

    field: str
    choice: int
    start: int
    end: int
    text: str
    share: float


class Piece(NamedTuple):
    """A word of a text, or what stands between two words.

    Attributes:
        text: all pieces, joined, are the whole text.
        share: of the word, as a part of the largest share of the example, from -1 to 1; 0 between
            words.
        word: None between words.
    """

    text: str
    share: float = 0.0
    word: Word | None = None


class Passage(NamedTuple):
    """A text of an example, and the number of the choice that it is, or -1."""

    field: str
    choice: int
    pieces: list[Piece]


def words_of(answer: Mapping[str, Any]) -> list[Word]:
    """Returns the words of an example.

    Args:
        answer: the example's outputs of the signature `explain`, by name, or its answer; without
            words, it has none.
    """
    if "words" not in answer:
        return []
    count = answer.get("num_words", len(answer["words"]))
    choices = answer.get("word_choices", [_IN_NO_CHOICE] * count)
    columns = [answer["word_fields"], choices, *(answer[name] for name in _COLUMNS)]
    return [Word(*values) for values in zip(*(column[:count] for column in columns))]


def passages(row: Mapping[str, Any], words: list[Word]) -> Iterator[Passage]:
    """Yields each text of an example, in pieces.

    Args:
        row: str or bytes, or lists of them, by field.
        words: of the example, in any order.
    """
    largest = max((abs(word.share) for word in words), default=0.0)
    for field, value in row.items():
        is_list = not isinstance(value, (str, bytes))
        for number, text in enumerate(value if is_list else [value]):
            if is_list and not text:
                continue  # an absent choice, or one without a word
            choice = number if is_list else _IN_NO_CHOICE
            here = [word for word in words if (word.field, word.choice) == (field, choice)]
            yield Passage(field, choice, list(_pieces(text, here, largest)))


def _pieces(text: str | bytes, words: list[Word], largest: float) -> Iterator[Piece]:
    content = text.encode(errors="surrogateescape") if isinstance(text, str) else text
    position = 0
    for word in sorted(words, key=lambda word: word.start):
        yield Piece(content[position : word.start].decode(errors="replace"))
        share = word.share / largest if largest else 0.0
        yield Piece(content[word.start : word.end].decode(errors="replace"), share, word)
        position = word.end
    yield Piece(content[position:].decode(errors="replace"))
