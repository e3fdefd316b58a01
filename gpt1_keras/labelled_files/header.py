"""Which row of a file names its columns, where titles and notes may stand above it."""

import dataclasses
import itertools
import statistics
from collections.abc import Callable, Collection, Sequence
from typing import Any, TypeAlias

MOST_ROWS_ABOVE = 30  # rows with a value among which the columns' names are looked for

Top: TypeAlias = Sequence[tuple[int, Sequence[Any]]]  # the first rows with a value: number, cells


@dataclasses.dataclass(frozen=True)
class HeaderSearch:
    """How the row that names the columns is found.

    Attributes:
        check: raises ValueError unless columns of these names are what the caller looks for.
        names: columns that the user names, or those of an earlier run.
        is_asked: whether the caller looks for any columns; otherwise all names will do.
        row: the number of the row, from 1, if it is known.
    """

    check: Callable[[Sequence[str]], object]
    names: Collection[str] = ()
    is_asked: bool = False
    row: int | None = None

    def fits(self, names: Sequence[str]) -> bool:
        """Returns whether columns of these names are what the caller looks for."""
        try:
            self.check(names)
        except ValueError:
            return False
        return True

    def candidates(self, top: Top) -> list[tuple[int, Sequence[Any]]]:
        """Returns the rows that may name the columns, the likeliest first.

        That is the first one that is no title. An example may have a column's name as its value, so
        another row must have all `names`, or have more cells than each row above it and no number.
        """
        titles = count_titles(top) if top else 0
        others = [
            row
            for index, row in enumerate(top)
            if index != titles and (self._has_names(row[1]) or _stands_out(top, index))
        ]
        return [*top[titles : titles + 1], *others]

    def _has_names(self, cells: Sequence[Any]) -> bool:
        return bool(self.names) and {*self.names} <= {as_name(cell) for cell in cells}


def count_titles(top: Top) -> int:
    """Returns how many rows are titles above the columns' names.

    A title begins where the table does, and has at most half as many cells as a usual row.
    """
    used = [_used(cells) for _, cells in top]
    first, usual = min(map(min, used)), statistics.median(map(len, used))
    is_title = (cells[0] == first and len(cells) <= usual / 2 for cells in used)
    return sum(1 for _ in itertools.takewhile(bool, is_title))


def as_name(cell: Any) -> str:
    """Returns a cell as a column's name; an empty one for a blank cell."""
    return "" if cell is None else str(cell).strip()


def _used(cells: Sequence[Any]) -> list[int]:
    """Returns the indices of the cells with a value."""
    return [index for index, cell in enumerate(cells) if as_name(cell)]


def _stands_out(top: Top, index: int) -> bool:
    cells = top[index][1]
    is_wider = all(len(_used(above)) < len(_used(cells)) for _, above in top[:index])
    return is_wider and not any(map(_is_number, cells))


def _is_number(cell: Any) -> bool:
    try:
        float(as_name(cell))
    except ValueError:
        return False
    return True
