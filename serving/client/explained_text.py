"""Shows the answers of the signature `explain`: words coloured by their shares."""

from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Console
from rich.text import Text

from serving.explained_words import passages, words_of

LEGEND = "Blue speaks for the answer, orange against it; the deeper, the more."

# Black text is readable on both colours, and people who do not see red or green can tell them
# apart.
_FOR, _AGAINST = (86, 180, 233), (230, 159, 0)
_LEAST = 0.05  # of the largest share: below it, a word has no colour


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
    for passage in passages(row, words_of(answer)):
        line = Text(f"{passage.field}: " if len(row) > 1 else "")
        for piece in passage.pieces:
            line.append(piece.text, _style(piece.share) if abs(piece.share) >= _LEAST else "")
        yield line


def _style(strength: float) -> str:
    """Returns black on a colour that is white at 0 and deepest at 1 and -1."""
    deepest = _FOR if strength > 0 else _AGAINST
    red, green, blue = (round(255 + abs(strength) * (each - 255)) for each in deepest)
    return f"black on rgb({red},{green},{blue})"
