"""Questions to a model, read from arguments, lines or tables, and its answers."""

import itertools
import json
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from gpt1_keras.labelled_files import Table
from serving.client.clients import Client, Input, QueryError

# The values of one example by the names of a signature's inputs, which may be any tensors.
Question: TypeAlias = Mapping[str, Any]
BATCH_SIZE = 32  # rows that are asked about at once


def rows_of_arguments(
    arguments: Sequence[tuple[str, str]], inputs: Mapping[str, Input]
) -> tuple[list[Question], Question]:
    """Returns the rows of named arguments, and the values that all rows share.

    Args:
        arguments: pairs of an input's name and a value. The value is a text, or JSON if it is not a
            text.
        inputs: the signature's inputs. Rows share what is given once, unless all inputs are.

    Returns:
        `(rows, shared)`. There are no rows if an input is missing.

    Raises:
        QueryError: a name is unknown, a value is not JSON, or the numbers of values do not fit.
    """
    columns: dict[str, list[Any]] = {}
    for name, text in arguments:
        if name not in inputs:
            raise QueryError(f"The signature has no input {name}, only {sorted(inputs)}")
        columns.setdefault(name, []).append(_value(name, text, inputs[name]))
    counts = {name: len(column) for name, column in columns.items()}
    shared = {name: columns.pop(name)[-1] for name in list(columns) if inputs[name].rank == 0}
    needed = [name for name in missing_inputs(inputs, shared) if name not in columns]
    most = max(map(len, columns.values()), default=0)
    for name in list(columns):
        if counts[name] == 1 and (needed or most > 1 or inputs[name].has_default):
            [shared[name]] = columns.pop(name)
    if columns and (needed or any(len(column) != most for column in columns.values())):
        names = [name for name in inputs if inputs[name].rank != 0 and not inputs[name].has_default]
        raise QueryError(
            f"Expected as many --input {'=TEXT as --input '.join(sorted(names))}=TEXT, or one for "
            f"all questions, received {counts}"
        )
    return [dict(zip(columns, row)) for row in zip(*columns.values())], shared


def missing_inputs(inputs: Mapping[str, Input], shared: Question) -> list[str]:
    """Returns the names of the inputs that each row needs a value for."""
    return sorted(
        name
        for name, each in inputs.items()
        if each.rank != 0 and not each.has_default and name not in shared
    )


def rows_of_texts(texts: Iterable[bytes], names: Sequence[str]) -> Iterator[Question]:
    """Returns a row for each text.

    Raises:
        QueryError: not one input is missing.
    """
    if len(names) != 1:
        raise QueryError(
            f"Expected a value for each of {list(names)}, received a text without a name"
        )
    return ({names[0]: text} for text in texts)


def rows_of_lines(
    lines: Iterable[bytes],
    inputs: Mapping[str, Input],
    shared: Question,
    tell: Callable[[str], None] = lambda notice: None,
) -> Iterator[Question]:
    """Yields a row for each line: a text if one text is missing, otherwise a JSON object.

    Args:
        tell: is called once if objects have more than the inputs, which is left out.

    Raises:
        QueryError: a line is not UTF-8, or is not an object with a value for each missing input.
    """
    names = missing_inputs(inputs, shared)
    is_text = (
        len(names) == 1 and inputs[names[0]].rank == 1 and inputs[names[0]].dtype == "DT_STRING"
    )
    is_told = False
    for number, line in enumerate(lines, 1):
        line = line.rstrip(b"\r\n")
        if is_text:
            yield {names[0]: _utf8(line, number)}
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            row = None
        if not isinstance(row, dict) or not set(names) <= set(row):
            raise QueryError(f"Expected a JSON object with {names} in line {number}")
        taken = {name: row[name] for name in row if _is_taken(name, inputs, shared)}
        if len(taken) < len(row) and not is_told:
            tell(_left_out(row.keys() - taken.keys()))
            is_told = True
        yield taken


def rows_of_table(
    table: Table, inputs: Mapping[str, Input], shared: Question, tell: Callable[[str], None]
) -> Iterator[Question]:
    """Yields a row for each row of a table, which has a column for each missing input.

    Args:
        tell: is called with the table's notices, and with the columns that are left out.

    Raises:
        QueryError: a value does not fit its input.
        ValueError: the table cannot be read.
    """
    names = [name for name in table.columns if _is_taken(name, inputs, shared)]
    if others := [name for name in table.columns if name not in names]:
        tell(f"{table.path}: {_left_out(others)}")
    for row in table:
        try:
            yield {name: _of_type(row[name], inputs[name]) for name in names}
        except ValueError as error:
            raise QueryError(f"{table.path}, line {row.line}: {error}") from error
    for notice in table.notices:
        tell(notice)


def answers(
    client: Client,
    rows: Iterable[Question],
    shared: Question,
    inputs: Mapping[str, Input],
    batch_size: int = BATCH_SIZE,
) -> Iterator[tuple[Question, dict[str, Any]]]:
    """Asks a server about rows, in batches of rows of the same shape.

    Yields:
        Each row with its outputs by name.

    Raises:
        QueryError: the server did not answer.
    """
    for _, alike in itertools.groupby(rows, _shape):
        while batch := list(itertools.islice(alike, batch_size)):
            columns = {name: [row[name] for row in batch] for name in batch[0]}
            for name, value in shared.items():
                columns[name] = value if inputs[name].rank == 0 else [value] * len(batch)
            outputs = client.predict(columns)
            for row, values in zip(batch, zip(*outputs.values())):
                yield row, dict(zip(outputs, values))


def _is_taken(name: str, inputs: Mapping[str, Input], shared: Question) -> bool:
    """Returns whether a row's value of this name is a value of an input."""
    return name in inputs and inputs[name].rank != 0 and name not in shared


def _utf8(line: bytes, number: int) -> bytes:
    """Returns a line; a model would answer one in another encoding as if it had read it."""
    try:
        line.decode()
    except UnicodeDecodeError as error:
        raise QueryError(
            f"Expected UTF-8, received the byte 0x{line[error.start]:02x} at offset {error.start} "
            f"of line {number}"
        ) from error
    return line


def _left_out(names: Collection[str]) -> str:
    return f"left out, as the model has no such input: {', '.join(sorted(names))}"


def _value(name: str, text: str, described: Input) -> Any:
    if described.dtype == "DT_STRING" and (described.rank or 1) == 1:
        return os.fsencode(text)  # an argument that is not valid UTF-8 arrives as it was typed
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise QueryError(f"Expected --input {name}= with JSON, received {text[:80]!r}") from error


def _of_type(value: str | list[str], described: Input) -> Any:
    """Returns a value of a table as its input takes it; ValueError if it does not fit."""
    if described.rank is not None and isinstance(value, list) != (described.rank == 2):
        expected = "a list" if described.rank == 2 else "one value"
        raise ValueError(f"expected {expected}, received {value!r}")
    if described.dtype == "DT_STRING":
        return value
    try:
        return json.loads(value) if isinstance(value, str) else [json.loads(each) for each in value]
    except ValueError:
        raise ValueError(f"expected numbers, received {value!r}") from None


def _shape(row: Question) -> list[tuple[str, list[int]]]:
    return [(name, _lengths(row[name])) for name in sorted(row)]


def _lengths(value: Any) -> list[int]:
    return [len(value), *_lengths(value[0])] if isinstance(value, list) and value else []
