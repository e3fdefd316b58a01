"""Shows the answers of the signature `explain`: words coloured by their shares."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from rich.console import Console
from rich.text import Text

LEGEND = "Blue speaks for the answer, orange against it; the deeper, the more."

# Black text is readable on both colours, and people who do not see red or green can tell them
# apart.
_FOR, _AGAINST = (86, 180, 233), (230, 159, 0)
_LEAST = 0.05  # of the largest share: below it, a word has no colour
_LEFT_OUT = -1  # `choice` of a word that stands in no choice


class Word(NamedTuple):
    """A word of an explained text: its field and choice, its range of bytes, and its share."""

    field: str
    choice: int
    start: int
    end: int
    text: str
    share: float


def words_of(answer: Mapping[str, Any]) -> list[Word]:
    """Returns the words of an example, from the named outputs of `explain`."""
    count = answer["num_words"]
    choices = answer.get("word_choices", [_LEFT_OUT] * count)
    names = ("word_starts", "word_ends", "words", "word_shares")
    columns = [answer["word_fields"], choices, *(answer[name] for name in names)]
    return [Word(*values) for values in zip(*(column[:count] for column in columns))]


def has_colours(console: Console) -> bool:
    """Returns whether to colour words: on a terminal, unless NO_COLOR is set."""
    return console.is_terminal and console.color_system is not None and not console.no_color


def table(answer: Mapping[str, Any]) -> Iterator[str]:
    """Yields a line for each word: its share, its field if there are several, and the word."""
    words = words_of(answer)
    fields = {word.field: len(word.field) for word in words}
    for word in words:
        cells = [f"{word.share:+8.4f}"]
        if len(fields) > 1:
            cells.append(word.field.ljust(max(fields.values())))
        yield "  ".join([*cells, word.text])


def coloured(row: Mapping[str, Any], answer: Mapping[str, Any]) -> Iterator[Text]:
    """Yields each text of an example, its words coloured by their shares."""
    words = words_of(answer)
    largest = max((abs(word.share) for word in words), default=0.0)
    for field in row:
        is_list = isinstance(row[field], list)
        for number, text in enumerate(row[field] if is_list else [row[field]]):
            if is_list and not text:
                continue  # an absent choice, or one without a word
            line = Text(f"{field}: " if len(row) > 1 else "")
            choice = number if is_list else _LEFT_OUT
            here = [word for word in words if (word.field, word.choice) == (field, choice)]
            yield line.append_text(
                _coloured(text, sorted(here, key=lambda word: word.start), largest)
            )


def _coloured(text: str | bytes, words: list[Word], largest: float) -> Text:
    """Returns a text with its words, in ascending order, in colour."""
    content = text.encode(errors="surrogateescape") if isinstance(text, str) else text
    result, position = Text(), 0
    for word in words:
        result.append(content[position : word.start].decode(errors="replace"))
        strength = word.share / largest if largest else 0.0
        style = _style(strength) if abs(strength) >= _LEAST else ""
        result.append(content[word.start : word.end].decode(errors="replace"), style)
        position = word.end
    return result.append(content[position:].decode(errors="replace"))


def _style(strength: float) -> str:
    """Returns black on a colour that is white at 0 and deepest at 1 and -1."""
    deepest = _FOR if strength > 0 else _AGAINST
    red, green, blue = (round(255 + abs(strength) * (each - 255)) for each in deepest)
    return f"black on rgb({red},{green},{blue})"
