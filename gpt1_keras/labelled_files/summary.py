"""Describes a user's examples in a few lines, before a model learns from them."""

import collections
import re
import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence

from gpt1_keras.labelled_files.rows import LABEL, Row, shortened, shown_names

_MOST_CLASSES = 20  # in a line
_MISSING_MARKS = (  # that people write for a missing value, in lower case
    "n/a", "#n/a", "na", "n.a.", "none", "null", "nil", "-", "--", "?", "unknown", "missing",
    "k.a.", "tbd",
)  # fmt: skip


def summary(
    rows: Sequence[Row], fields: Iterable[str], class_names: Collection[str] | None = None
) -> list[str]:
    """Describes labelled examples.

    Args:
        rows: each has its texts and a label.
        fields: the names of the texts.
        class_names: if labels are classes; otherwise they are scores or indices of choices.

    Returns:
        Lines without an end: how many examples and classes there are; texts that occur more than
        once, or with different labels; and classes that look alike or stand for none.
    """
    fields = list(fields)
    lines = [_counts(rows, class_names)]
    alike: dict[str, list[Row]] = {}
    for row in rows:
        text = "\n".join(str(row[field]) for field in fields)
        alike.setdefault(" ".join(text.casefold().split()), []).append(row)
    repeated = [each for each in alike.values() if len(each) > 1]
    if repeated:
        contradicting = [each for each in repeated if len({str(row[LABEL]) for row in each}) > 1]
        lines.append(f"{_number(len(repeated), 'text occurs', 'texts occur')} more than once")
        if contradicting:
            first = contradicting[0]
            lines[-1] += f", {len(contradicting):,} of them with different labels"
            labels = {str(row[LABEL]): row.line for row in first}
            text = shortened(" ".join(str(first[0][field]) for field in fields))
            told = ", ".join(f"{label!r} in line {line}" for label, line in labels.items())
            lines[-1] += f", such as {text!r}: {told}"
    if class_names is not None:
        lines += _look_alikes(class_names)
    return lines


def _counts(rows: Sequence[Row], class_names: Collection[str] | None) -> str:
    examples = _number(len(rows), "example", "examples")
    labels = [str(row[LABEL]) for row in rows]
    if class_names is not None:
        counts = collections.Counter(labels)
        told = [f"{name!r} {count:,}" for name, count in counts.most_common(_MOST_CLASSES)]
        if len(counts) > _MOST_CLASSES:
            told.append(f"and {len(counts) - _MOST_CLASSES:,} more")
        return f"{examples} of {_number(len(counts), 'class', 'classes')}: {', '.join(told)}"
    try:
        numbers = [float(label) for label in labels]
    except ValueError:  # which is refused later, with its line
        return examples
    least, greatest, mean = min(numbers), max(numbers), statistics.fmean(numbers)
    return f"{examples} with labels from {least:g} to {greatest:g}, {mean:.3g} on average"


def _look_alikes(class_names: Collection[str]) -> list[str]:
    lines = []
    groups: Mapping[str, list[str]] = collections.defaultdict(list)
    for name in class_names:
        groups[_plain(name)].append(name)
    for names in groups.values():
        if len(names) > 1:
            lines.append(f"{shown_names(names)} look alike, and are different classes")
    missing = [name for name in class_names if name.lower() in _MISSING_MARKS]
    if missing:
        lines.append(
            f"{shown_names(missing)} may stand for a missing label, and "
            f"{'is a class' if len(missing) == 1 else 'are classes'}"
        )
    return lines


def _plain(name: str) -> str:
    """Returns a name without case, spaces, punctuation and leading zeros."""
    plain = re.sub(r"[\W_]+", "", name.casefold())
    return re.sub(r"(?<!\d)0+(?=\d)", "", plain) or name


def _number(count: int, one: str, several: str) -> str:
    return f"{count:,} {one if count == 1 else several}"
