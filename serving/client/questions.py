"""Questions to a model, read from arguments or lines, and its answers."""

import itertools
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from serving.client.protocol import Client, Input, QueryError

Row: TypeAlias = Mapping[str, Any]  # a value for each name
BATCH_SIZE = 32  # rows that are asked about at once


def rows_of_arguments(
    arguments: Sequence[tuple[str, str]], inputs: Mapping[str, Input]
) -> tuple[list[Row], Row]:
    """Returns the rows of named arguments, and the values that all rows share.

    Args:
        arguments: pairs of an input's name and a value. The value is a text, or JSON if it is not a
            text.
        inputs: the signature's inputs. A value for one of rank 0 is shared by all rows.

    Raises:
        QueryError: a name is unknown, a value is not JSON, or the rows are incomplete.
    """
    columns: dict[str, list[Any]] = {}
    for name, text in arguments:
        if name not in inputs:
            raise QueryError(f"The signature has no input {name}, only {sorted(inputs)}")
        columns.setdefault(name, []).append(_value(name, text, inputs[name]))
    shared = {name: columns.pop(name)[-1] for name in list(columns) if inputs[name].rank == 0}
    names = _row_inputs(inputs)
    counts = {name: len(column) for name, column in columns.items()}
    if columns and (set(columns) != set(names) or len(set(counts.values())) != 1):
        raise QueryError(
            f"Expected as many --input {'=TEXT as --input '.join(names)}=TEXT, received {counts}"
        )
    return [dict(zip(columns, row)) for row in zip(*columns.values())], shared


def rows_of_texts(texts: Iterable[bytes], inputs: Mapping[str, Input]) -> Iterator[Row]:
    """Returns a row for each text.

    Raises:
        QueryError: the signature does not take one text.
    """
    names = _row_inputs(inputs)
    if len(names) != 1:
        raise QueryError(f"Expected a value for each of {names}, received a text without a name")
    return ({names[0]: text} for text in texts)


def rows_of_lines(lines: Iterable[bytes], inputs: Mapping[str, Input]) -> Iterator[Row]:
    """Yields a row for each line: a text if the signature takes one, otherwise a JSON object.

    Raises:
        QueryError: a line is not an object with a value for each input.
    """
    lines = (line.rstrip(b"\r\n") for line in lines)
    names = _row_inputs(inputs)
    if len(names) == 1 and inputs[names[0]].rank == 1:
        yield from rows_of_texts(lines, inputs)
        return
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            row = None
        if not isinstance(row, dict) or sorted(row) != names:
            raise QueryError(f"Expected a JSON object with {names} in line {number}")
        yield row


def answers(
    client: Client, rows: Iterable[Row], shared: Row, batch_size: int = BATCH_SIZE
) -> Iterator[tuple[Row, dict[str, Any]]]:
    """Asks a server about rows, in batches of rows of the same shape.

    Args:
        client: a client of the server.
        rows: a value for each input.
        shared: values of the inputs that all rows share.
        batch_size: the most rows of a batch.

    Yields:
        Each row with its outputs by name.

    Raises:
        QueryError: the server did not answer.
    """
    for _, alike in itertools.groupby(rows, _shape):
        while batch := list(itertools.islice(alike, batch_size)):
            columns = {name: [row[name] for row in batch] for name in batch[0]}
            outputs = client.predict({**columns, **shared})
            for row, values in zip(batch, zip(*outputs.values())):
                yield row, dict(zip(outputs, values))


def _row_inputs(inputs: Mapping[str, Input]) -> list[str]:
    """Returns the names of the inputs that have a value for each row."""
    return sorted(name for name, each in inputs.items() if each.rank != 0)


def _value(name: str, text: str, described: Input) -> Any:
    """Returns the value of a named argument."""
    if described.dtype == "DT_STRING" and (described.rank or 1) == 1:
        return os.fsencode(text)  # an argument that is not valid UTF-8 arrives as it was typed
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise QueryError(f"Expected --input {name}= with JSON, received {text[:80]!r}") from error


def _shape(row: Row) -> list[list[int]]:
    """Returns the shape of each value of a row."""
    return [_lengths(row[name]) for name in sorted(row)]


def _lengths(value: Any) -> list[int]:
    """Returns the shape of nested lists."""
    return [len(value), *_lengths(value[0])] if isinstance(value, list) and value else []
