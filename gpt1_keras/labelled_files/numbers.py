"""Labels that are numbers, as people write them."""

import os
import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence

from gpt1_keras.labelled_files.rows import LABEL, Row, as_label, shown_names

_WHOLE = re.compile(r"[+-]?[0-9]+")
_DECIMAL_COMMA = re.compile(r"[+-]?[0-9]*,[0-9]+")
_THOUSANDS = re.compile(r"[+-]?[1-9][0-9]{0,2},[0-9]{3}")  # or a fraction of three digits
_DIGITS = re.compile(r"[0-9]+([.,/][0-9]+)*")
_AROUND = re.compile("^[-+\u2212]|[\\s%\u2030'\u2019]")  # signs, percents, marks of thousands


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


def _looks_like_a_number(label: str) -> bool:
    plain = "".join(each for each in label if unicodedata.category(each) != "Sc")  # currencies
    plain = _AROUND.sub("", plain)
    try:
        float(label)
    except ValueError:
        return _DIGITS.fullmatch(plain) is not None
    return False
