"""Rows of tables, and what a model answers them."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple


class Line(NamedTuple):
    """A row of a table.

    Attributes:
        cells: its values in all columns, as the file has them.
        texts: its texts by the model's fields.
        number: its line in the file.
    """

    cells: Sequence[Any]
    texts: Mapping[str, Any]
    number: int


class RowAnswer(NamedTuple):
    """The answer to a row.

    Attributes:
        values: by the names in `RowModel.columns`; empty if there is no answer.
        problem: why there is no answer.
        truncated: whether the model has read only a part of the texts.
    """

    values: Mapping[str, Any]
    problem: str = ""
    truncated: bool = False
