"""Rows of tables, what a model answers them, and what became of all of them."""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Self


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


@dataclasses.dataclass
class Outcome:
    """Counts rows.

    Attributes:
        rows: of the input.
        unanswered: rows without an answer.
        truncated: rows whose texts the model has read only in part.
        problem: the first row without an answer, and why.
    """

    rows: int = 0
    unanswered: int = 0
    truncated: int = 0
    problem: str = ""

    def count(self, path: object, lines: Sequence[Line], answers: Iterable[RowAnswer]) -> None:
        """Adds rows of a file."""
        for line, answer in zip(lines, answers):
            self.rows += 1
            self.truncated += answer.truncated
            if not answer.values:
                self.unanswered += 1
                self.problem = self.problem or f"{path}, line {line.number}: {answer.problem}"

    @classmethod
    def total(cls, outcomes: Iterable[Self]) -> Self:
        """Returns the outcome of the rows of several."""
        total = cls()
        for each in outcomes:
            total.rows += each.rows
            total.unanswered += each.unanswered
            total.truncated += each.truncated
            total.problem = total.problem or each.problem
        return total

    def check(self) -> None:
        """Raises ValueError if no row has an answer."""
        if self.unanswered == self.rows:
            raise ValueError(f"None of {self.rows:,} rows has an answer. {self.problem}.")

    def warnings(self) -> Iterator[str]:
        """Yields what to know about the answers."""
        if self.unanswered:
            yield (
                f"{self.unanswered:,} of {self.rows:,} rows have no answer, such as {self.problem}."
            )
        if self.truncated:
            yield (
                f"{self.truncated:,} of {self.rows:,} rows are longer than the model reads, and "
                "were cut."
            )
