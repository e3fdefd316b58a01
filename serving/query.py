"""Asks a running server, this package's or TensorFlow Serving's own, about texts.

    python -m serving.query --model sst2 "a joy to watch" "a waste of time"
    python -m serving.query --model sst2 --target http://localhost:8501 < reviews.txt
    python -m serving.query --model mnli --input premise="It rains." --input hypothesis="It is wet."
    python -m serving.query --model mnli --file pairs.jsonl --json
    python -m serving.query --model sst2 --explain "a joy to watch"

Texts are arguments, or the lines of a file or of the standard input; for a model that takes several
texts, each line is a JSON object with a value for each of them. For each line it prints the label,
its score and the text; with --json, all outputs; with --explain, the words that led to the answer.
A target that begins with http:// or https:// is asked over REST, any other over gRPC.
"""

import contextlib
import dataclasses
import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gpt1_keras.cli import UsageError, option, program
from serving.client.connection import connect
from serving.client.protocol import QueryError
from serving.client.questions import (
    BATCH_SIZE,
    Row,
    answers,
    rows_of_arguments,
    rows_of_lines,
    rows_of_texts,
)
from serving.export_names import DEFAULT_SIGNATURE, EXPLAIN


@dataclasses.dataclass(frozen=True)
class _QueryOptions:
    model: str = option("name of the model", metavar="NAME")
    texts: tuple[str, ...] = option("text for a model that takes one text", (), name="text")
    target: str = option(
        "address of the server, for REST with http:// in front",
        "localhost:8500",
        metavar="HOST:PORT",
    )
    signature: str | None = option(
        f"default: {DEFAULT_SIGNATURE}, or with --explain {EXPLAIN}", None, metavar="NAME"
    )
    input: tuple[str, ...] = option(
        "value for the input NAME: a text, or JSON where it takes a list or a number; once for "
        "each input that differs between questions, and again for each further question",
        (),
        metavar="NAME=VALUE",
        consume_multiple=False,
    )
    file: str | None = option(
        "a text in each line, or for a model of several inputs a JSON object (default, without "
        "texts: the standard input)",
        None,
        metavar="PATH",
    )
    json: bool = option("print all outputs, as a JSON object for each text", False)
    explain: bool = option(
        "colour words by their share in the answer; where that cannot be, list them (for exports "
        f"with the signature {EXPLAIN})",
        False,
    )


@program("serving.query", foreseen=(QueryError,), needs_keras=False)
def main(options: _QueryOptions) -> None:
    """Ask a running server about texts and print the label and score of each."""
    if options.texts and options.file:
        raise UsageError("expected either texts or --file")
    if options.explain and options.signature:
        raise UsageError("expected either --explain or --signature")
    _query(options, [_named_value(argument) for argument in options.input])


def ask(
    target: str, model: str, texts: Sequence[str], signature: str = DEFAULT_SIGNATURE
) -> list[dict[str, Any]]:
    """Asks a model about texts, each by itself.

    Args:
        target: `host:port` of the server for gRPC, `http://host:port` for REST.
        model: the model's name.
        texts: the texts.
        signature: the signature's name.

    Returns:
        Each text's outputs, by name.

    Raises:
        QueryError: the model does not take one text, or the server did not answer.
    """
    with connect(target, model, signature) as client:
        rows = rows_of_texts(map(os.fsencode, texts), client.signature().inputs)
        return [answer for _, answer in answers(client, rows, {})]


def _named_value(argument: str) -> tuple[str, str]:
    """Returns the name and the value of an `--input`."""
    name, equals, text = argument.partition("=")
    if not name or not equals:
        raise UsageError(f"--input: expected NAME=VALUE, received {argument!r}")
    return name, text


def _query(options: _QueryOptions, named_values: Sequence[tuple[str, str]]) -> None:
    """Asks the questions in the options, and prints the answers."""
    signature = options.signature or (EXPLAIN if options.explain else DEFAULT_SIGNATURE)
    with contextlib.ExitStack() as stack:
        client = stack.enter_context(connect(options.target, options.model, signature))
        inputs = client.signature().inputs
        named, shared = rows_of_arguments(named_values, inputs)
        if options.texts:
            rows = rows_of_texts(map(os.fsencode, options.texts), inputs)
        elif named:
            rows = iter(named)
        elif options.file:
            rows = rows_of_lines(stack.enter_context(open(options.file, "rb")), inputs)
        else:
            rows = rows_of_lines(sys.stdin.buffer, inputs)
        # A request to explain may be as much work as a few long texts.
        asked = answers(client, rows, shared, 1 if signature == EXPLAIN else BATCH_SIZE)
        if options.explain and not options.json:
            _show_explained(asked)
            return
        for row, answer in asked:
            print(json.dumps(answer, ensure_ascii=False) if options.json else _line(row, answer))


def _show_explained(explained: Iterable[tuple[Row, Mapping[str, Any]]]) -> None:
    """Prints answers with the words that led to them."""
    # Imported here, as this takes longer than a question.
    from rich.console import Console

    from serving.client.explained_text import LEGEND, coloured, has_colours, table

    console = Console(highlight=False, soft_wrap=True)
    if not has_colours(console):
        for row, answer in explained:
            print(_line(row, answer), *table(answer), sep="\n")
        return
    console.print(LEGEND)
    for row, answer in explained:
        console.print(_line({}, answer), markup=False)
        for text in coloured(row, answer):
            console.print(text)


def _line(row: Row, answer: Mapping[str, Any]) -> str:
    """Returns the best label and its score, or otherwise all outputs; and the question."""
    if "label" in answer and "scores" in answer:
        cells = [answer["label"], max(answer["scores"])]
    elif "score" in answer:
        cells = [answer["score"]]
    else:
        cells = list(answer.values())
    return "  ".join([*map(_cell, cells), *(_cell(row[name]) for name in sorted(row))])


def _cell(value: Any) -> str:
    """Returns a value as a line shows it."""
    if isinstance(value, float):
        return f"{value:.4f}"
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


if __name__ == "__main__":
    sys.exit(main())
