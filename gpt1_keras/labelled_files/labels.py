"""Labels as people write them: with commas, in several spellings, or not at all."""

import collections
import math
import os
import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from gpt1_keras.labelled_files.rows import LABEL, BadRows, Row, as_label, shown_names

_MISSING = ("", "nan", "<na>", "nat")  # in lower case; all but the first as pandas writes them

_WHOLE = re.compile(r"[+-]?[0-9]+")
_DECIMAL_COMMA = re.compile(r"[+-]?[0-9]*,[0-9]+")
_THOUSANDS = re.compile(r"[+-]?[1-9][0-9]{0,2},[0-9]{3}")  # or a fraction of three digits
_DIGITS = re.compile(r"[0-9]+([.,/][0-9]+)*")
_AROUND = re.compile("^[-+\u2212]|[\\s%\u2030'\u2019]")  # signs, percents, marks of thousands


def with_labels(
    rows: Sequence[Row],
    path: str | os.PathLike[str],
    tell: Callable[[str], None] = lambda notice: None,
) -> list[Row]:
    """Returns the rows that have a label, and tells how many are left out.

    A label is missing if it is blank, or "nan", "<NA>" or "NaT", as pandas writes a missing one.

    Args:
        path: of the rows' file.
        tell: is called with a notice.

    Raises:
        ValueError: no row is left.
    """
    found = [row for row in rows if str(row[LABEL]).lower() not in _MISSING]
    if rows and not found:
        raise ValueError(f"{path}: all {len(rows):,} rows lack a label.")
    if len(found) < len(rows):
        first = next(row for row in rows if str(row[LABEL]).lower() in _MISSING)
        left_out = len(rows) - len(found)
        what = "row without a label is" if left_out == 1 else "rows without a label are"
        where = f"line {first.line}" if left_out == 1 else f"the first in line {first.line}"
        tell(f"{path}: {left_out:,} {what} left out, {where}.")
    return found


def use_one_spelling(
    rows: Sequence[Row],
    path: str | os.PathLike[str],
    class_names: Iterable[str] | None = None,
    tell: Callable[[str], None] = lambda notice: None,
) -> None:
    """Gives labels that differ in case alone the most frequent spelling, and tells it.

    Args:
        path: of the rows' file.
        class_names: if they are known; their spelling is taken, where it is only one.
        tell: is called with a notice.
    """
    labels = [label for row in rows if isinstance(label := row[LABEL], str)]
    counts = collections.Counter(labels)
    known = [*map(as_label, class_names or ())]
    spellings: dict[str, list[str]] = {}
    for label in known or counts:
        spellings.setdefault(label.lower(), []).append(label)
    others: dict[str, list[str]] = {}  # spellings, by the one that is taken
    taken: dict[str, str] = {}
    for label in counts:
        alike = spellings.get(label.lower(), [])
        if label in known or not alike or known and len(alike) > 1:
            continue
        name = max(alike, key=lambda each: counts[each])
        if name != label:
            taken[label] = name
            others.setdefault(name, []).append(label)
    for row in rows:
        label = row[LABEL]
        if isinstance(label, str) and label in taken:
            row[LABEL] = taken[label]
    if others:
        told = [f"{shown_names(spelt)} as {name!r}" for name, spelt in others.items()]
        tell(f"{path}: labels that differ in case alone are one class: {', '.join(told)}.")


def use_decimal_points(
    rows: Sequence[Row],
    path: str | os.PathLike[str],
    class_names: Iterable[str] | None = None,
    tell: Callable[[str], None] = lambda notice: None,
) -> None:
    """Changes labels with decimal commas, such as "4,5", into those with points, and tells it.

    All labels of a file must be whole numbers or have such a comma. Where each comma stands before
    three digits, as in "1,200", it may separate thousands, and nothing is changed.

    Args:
        path: of the rows' file.
        class_names: if they are known; nothing is changed where all labels are among them.
        tell: is called with a notice.
    """
    labels = [row.get(LABEL) for row in rows]
    texts = [label for label in labels if isinstance(label, str)]
    if {*texts} <= {*map(as_label, class_names or ())}:
        return
    commas = [label for label in texts if "," in label]
    is_number = all(
        _DECIMAL_COMMA.fullmatch(label) or _WHOLE.fullmatch(label) or not label for label in texts
    )
    if len(texts) < len(labels) or not is_number or all(map(_THOUSANDS.fullmatch, commas)):
        return
    for row, label in zip(rows, texts):
        row[LABEL] = as_label(label.replace(",", "."))
    tell(f"{path}: the labels are read as numbers with a decimal comma, such as {commas[0]!r}.")


def tell_of_numbers_as_classes(
    labels: Sequence[str], path: str | os.PathLike[str], tell: Callable[[str], None]
) -> None:
    """Tells of classes that look like numbers and are none, such as "85%", "$4.50" or "4/5"."""
    found = sorted(set(filter(_looks_like_a_number, labels)))
    if found:
        tell(
            f"{path} has the labels {shown_names(found)}, which are taken as classes. Write scores "
            "as 4.5."
        )


def numbers_of_labels(
    rows: Sequence[Row],
    path: str | os.PathLike[str],
    class_names: Sequence[str] | None = None,
    score_range: tuple[int, int] | None = None,
    choices: str | None = None,
) -> list[Any]:
    """Returns the index of each row's class or right choice, or its score.

    Args:
        path: of the rows' file, for messages.
        class_names: None without classes.
        score_range: of scores; None for any.
        choices: the field of the choices; None without choices.

    Raises:
        ValueError: a label is of another class, or is not the index of a choice or a score.
    """
    labels = [str(row.get(LABEL)) for row in rows]
    if class_names is not None:
        numbers = {as_label(name): number for number, name in enumerate(class_names)}
        if unknown := sorted(set(labels) - numbers.keys()):
            raise ValueError(
                f"{path} has the labels {shown_names(unknown)}; expected "
                f"{shown_names(class_names)}."
            )
        return [numbers[label] for label in labels]
    found, bad = list(map(as_number, labels)), BadRows(path)
    for row, label, number in zip(rows, labels, found):
        if choices is not None:
            is_valid = number in range(len(row[choices]))
            expected = f"the index of one of the {len(row[choices])} choices, from 0"
        else:
            low, high = score_range or (-math.inf, math.inf)
            is_valid = number is not None and low <= number <= high
            expected = "a number" if score_range is None else f"a score from {low} to {high}"
        if not is_valid:
            bad.add(row.line, f"has the label {label!r}; expected {expected}")
    bad.refuse()
    return found


def as_number(text: str) -> float | None:
    """Returns the finite number that a text is, or None."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _looks_like_a_number(label: str) -> bool:
    plain = "".join(each for each in label if unicodedata.category(each) != "Sc")  # currencies
    plain = _AROUND.sub("", plain)
    try:
        float(label)
    except ValueError:
        return _DIGITS.fullmatch(plain) is not None
    return False
