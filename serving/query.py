"""Asks a running server, this package's or TensorFlow Serving's own, about texts.

    python -m serving.query --model sst2 "a joy to watch" "a waste of time"
    python -m serving.query --model sst2 --target http://localhost:8501 < reviews.txt
    python -m serving.query --model mnli --input premise="It rains." --input hypothesis="It is wet."
    python -m serving.query --model mnli --file pairs.jsonl --json

Texts are arguments, or the lines of a file or of the standard input; for a model that takes several
texts, each line is a JSON object with a value for each. For each it prints a line: the label, its
score and the text, or with --json all outputs. A target that begins with http:// is asked over
REST, any other over gRPC.
"""

import argparse
import itertools
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from serving.client.clients import Client, Input, QueryError, connect

_SIGNATURE = "serving_default"
_BATCH_SIZE = 32
_Row = Mapping[str, Any]  # a value for each name


def main(argv: Sequence[str] | None = None) -> int:
    """Asks and prints; returns the exit status."""
    parser = _parser()
    options = parser.parse_args(argv)
    if options.texts and options.file:
        parser.error("expected either texts or --file")
    try:
        with connect(options.target, options.model, options.signature) as client:
            inputs = client.signature().inputs
            given, shared = _named(options.input, inputs)
            if options.texts:
                given = _rows_of_texts(map(os.fsencode, options.texts), inputs)
            elif not given:
                given = _rows_of_lines(options.file, inputs)
            for row, answer in _ask(client, given, shared):
                print(
                    json.dumps(answer, ensure_ascii=False) if options.json else _line(row, answer)
                )
    except (OSError, QueryError) as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def ask(
    target: str, model: str, texts: Sequence[str], signature: str = _SIGNATURE
) -> list[dict[str, Any]]:
    """Asks a model that takes one text about several.

    Args:
        target: `host:port` of the server for gRPC, `http://host:port` for REST.
        model: the model's name.
        texts: the texts.
        signature: the signature's name.

    Returns:
        each text's outputs, by name.

    Raises:
        QueryError: the model does not take one text, or the server did not answer.
    """
    with connect(target, model, signature) as client:
        rows = _rows_of_texts(map(os.fsencode, texts), client.signature().inputs)
        return [answer for _, answer in _ask(client, rows, {})]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m serving.query",
        description="Ask a running server about texts and print the label and score of each.",
    )
    parser.add_argument(
        "texts", nargs="*", metavar="TEXT", help="text for a model that takes one text"
    )
    parser.add_argument(
        "--target",
        default="localhost:8500",
        metavar="HOST:PORT",
        help="address of the server, for REST with http:// in front (default: localhost:8500)",
    )
    parser.add_argument("--model", required=True, metavar="NAME", help="name of the model")
    parser.add_argument(
        "--signature", default=_SIGNATURE, metavar="NAME", help=f"default: {_SIGNATURE}"
    )
    parser.add_argument(
        "--input",
        action="append",
        default=[],
        type=_named_text,
        metavar="NAME=VALUE",
        help="value for the input NAME: a text, or JSON where it takes a list or a number; once "
        "for each input that differs between questions, and again for each further question",
    )
    parser.add_argument(
        "--file",
        metavar="PATH",
        help="a text in each line, or for a model of several inputs a JSON object (default, "
        "without texts: the standard input)",
    )
    parser.add_argument(
        "--json", action="store_true", help="print all outputs, as a JSON object for each text"
    )
    return parser


def _named_text(argument: str) -> tuple[str, str]:
    name, equals, text = argument.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"expected NAME=VALUE, received {argument!r}")
    return name, text


# --- what is asked ---


def _row_inputs(inputs: Mapping[str, Input]) -> list[str]:
    """Returns the names of the inputs that have a value for each question, not one for all."""
    return sorted(name for name, each in inputs.items() if each.rank != 0)


def _named(
    arguments: Sequence[tuple[str, str]], inputs: Mapping[str, Input]
) -> tuple[Iterable[_Row], _Row]:
    """Returns the rows that arguments of `--input` give, and the values that all rows share."""
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


def _value(name: str, text: str, described: Input) -> Any:
    if described.dtype == "DT_STRING" and (described.rank or 1) == 1:
        return os.fsencode(text)  # an argument that is not valid UTF-8 arrives as it was typed
    try:
        return json.loads(text)
    except ValueError as error:
        raise QueryError(f"Expected --input {name}= with JSON, received {text!r}") from error


def _rows_of_texts(texts: Iterable[bytes], inputs: Mapping[str, Input]) -> Iterator[_Row]:
    names = _row_inputs(inputs)
    if len(names) != 1:
        raise QueryError(f"Expected a value for each of {names}, received a text without a name")
    return ({names[0]: text} for text in texts)


def _rows_of_lines(path: str | None, inputs: Mapping[str, Input]) -> Iterator[_Row]:
    with open(path, "rb") if path else sys.stdin.buffer as file:
        lines = (line.rstrip(b"\r\n") for line in file)
        names = _row_inputs(inputs)
        if len(names) == 1 and inputs[names[0]].rank == 1:
            yield from _rows_of_texts(lines, inputs)
            return
        for number, line in enumerate(lines, 1):
            try:
                row = json.loads(line)
            except ValueError:
                row = None
            if not isinstance(row, dict) or sorted(row) != names:
                raise QueryError(f"Expected a JSON object with {names} in line {number}")
            yield row


def _ask(client: Client, rows: Iterable[_Row], shared: _Row) -> Iterator[tuple[_Row, dict]]:
    """Yields rows with their outputs by name; asks in batches of rows that are alike in shape."""
    for _, alike in itertools.groupby(rows, _shape):
        while batch := list(itertools.islice(alike, _BATCH_SIZE)):
            columns = {name: [row[name] for row in batch] for name in batch[0]}
            outputs = client.predict({**columns, **shared})
            for row, values in zip(batch, zip(*outputs.values())):
                yield row, dict(zip(outputs, values))


def _shape(row: _Row) -> list[list[int]]:
    return [_lengths(row[name]) for name in sorted(row)]


def _lengths(value: Any) -> list[int]:
    return [len(value), *_lengths(value[0])] if isinstance(value, list) and value else []


# --- what is printed ---


def _line(row: _Row, answer: Mapping[str, Any]) -> str:
    """Returns the best label and its score, or else all outputs; and what was asked."""
    if "label" in answer and "scores" in answer:
        cells = [answer["label"], max(answer["scores"])]
    elif "score" in answer:
        cells = [answer["score"]]
    else:
        cells = list(answer.values())
    return "  ".join([*map(_cell, cells), *(_cell(row[name]) for name in sorted(row))])


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4f}"
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


if __name__ == "__main__":
    sys.exit(main())
