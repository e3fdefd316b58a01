"""Asks a running server, this package's or TensorFlow Serving's own, about texts.

    gpt1 query --model sst2 "a joy to watch" "a waste of time"
    gpt1 query --model sst2 --target http://localhost:8501 < reviews.txt
    gpt1 query --model mnli --input premise="It rains." --input hypothesis="It is wet."
    gpt1 query --model mnli --file pairs.csv --json
    gpt1 query --model race --file questions.xlsx --input question="Who was it?"
    gpt1 query --model sst2 --label canary --explain "a joy to watch"

Texts are arguments, the rows of a table (.csv, .tsv, .jsonl, .parquet or .xlsx, labelled or not),
or the lines of another file or of the standard input; for a model that takes several texts, each
line is a JSON object with a value for each of them. What is the same for all is given once, by
--input. It prints the names of its columns and then, for each text, the label, its score, whether
the model is sure where it says so, and the text; with --json, all outputs; with --explain, the
words that led to the answer. A target that begins with http:// or https:// is asked over REST, any
other over gRPC.
"""

import contextlib
import dataclasses
import importlib
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from gpt1_keras.answers import answers_of
from gpt1_keras.cli import UsageError, note, option, program
from gpt1_keras.labelled_files import (
    columns_option,
    header_row_option,
    is_table,
    open_table,
    sheet_option,
    table_options,
)
from gpt1_keras.quiet import silent_imports
from serving.client.clients import Client, Input, Model, QueryError, RestClient
from serving.client.questions import (
    BATCH_SIZE,
    Question,
    answers,
    missing_inputs,
    rows_of_arguments,
    rows_of_lines,
    rows_of_table,
    rows_of_texts,
)
from serving.export_names import DEFAULT_SIGNATURE, EXPLAIN

_Asked: TypeAlias = tuple[Question, dict[str, Any]]  # with the outputs by name


@dataclasses.dataclass(frozen=True)
class _QueryOptions:
    model: str = option("name of the model", metavar="NAME")
    texts: tuple[str, ...] = option("text for a model that takes one text", (), name="text")
    target: str = option(
        "address of the server, for REST with http:// in front",
        "localhost:8500",
        metavar="HOST:PORT",
    )
    version: int | None = option("version of the model (default: the newest)", None, metavar="N")
    label: str | None = option(
        "label of the version, such as stable or canary, that the server gives it", None
    )
    signature: str | None = option(
        f"default: {DEFAULT_SIGNATURE}, or with --explain {EXPLAIN}", None, metavar="NAME"
    )
    input: tuple[str, ...] = option(
        "value for the input NAME: a text, or JSON where it takes a list or a number; once for "
        "what all questions share, and again for each further question",
        (),
        metavar="NAME=VALUE",
        consume_multiple=False,
    )
    file: str | None = option(
        "a table with a column for each input (.csv, .tsv, .jsonl, .parquet or .xlsx); any other "
        "file has a text in each line, or for a model of several inputs a JSON object (default, "
        "without texts: the standard input)",
        None,
        metavar="PATH",
    )
    columns: str | None = columns_option()
    sheet: str | None = sheet_option()
    header_row: int | None = header_row_option()
    json: bool = option("print all outputs, as a JSON object for each text", False)
    explain: bool = option(
        "colour words by their share in the answer, or list them where there are no colours (an "
        f"export needs the signature {EXPLAIN})",
        False,
    )


def _check(options: _QueryOptions) -> None:
    """Opens a table, so that one that cannot be read is refused at once."""
    if options.file and is_table(options.file):
        open_table(options.file, **table_options(options))
    elif options.columns or options.sheet or options.header_row:
        raise UsageError("--columns, --sheet and --header-row are for a --file that is a table")


@program("serving.query", check=_check, foreseen=(QueryError,), needs_keras=False)
def main(options: _QueryOptions) -> None:
    """Ask a running server about texts and print the label and score of each."""
    if options.texts and options.file:
        raise UsageError("expected either texts or --file")
    if options.explain and options.signature:
        raise UsageError("expected either --explain or --signature")
    if options.version is not None and options.label is not None:
        raise UsageError("expected either --version or --label")
    if not _is_rest(options.target):
        with silent_imports():
            importlib.import_module("serving.client.grpc_client")
    _query(options, [_named_value(argument) for argument in options.input])


def ask(
    target: str,
    model: str,
    texts: Sequence[str],
    signature: str = DEFAULT_SIGNATURE,
    *,
    version: int | None = None,
    label: str | None = None,
) -> list[dict[str, Any]]:
    """Asks a model about texts, each by itself.

    Args:
        target: `host:port` of the server for gRPC, `http://host:port` for REST.
        model: the model's name.
        texts: the texts.
        signature: the signature's name.
        version, label: one of the model's versions, by its number or its label; by default, the
            newest.

    Returns:
        Each text's outputs, by name.

    Raises:
        QueryError: the model does not take one text, or the server did not answer.
    """
    with _connect(target, Model(model, version, label), signature) as client:
        inputs = client.inputs()
        rows = rows_of_texts(map(os.fsencode, texts), missing_inputs(inputs, {}))
        return [answer for _, answer in answers(client, rows, {}, inputs)]


def _connect(
    target: str, model: Model, signature: str
) -> contextlib.AbstractContextManager[Client]:
    """Returns a client as a context manager. Its calls raise `QueryError`."""
    if _is_rest(target):
        return contextlib.nullcontext(RestClient(target, model, signature))
    # Imported here, as it imports TensorFlow, which REST does not need.
    from serving.client.grpc_client import open_client

    return open_client(target, model, signature)


def _is_rest(target: str) -> bool:
    """Returns whether a target is asked over REST."""
    return target.startswith(("http://", "https://"))


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
        model = Model(options.model, options.version, options.label)
        client = stack.enter_context(_connect(options.target, model, signature))
        inputs = client.inputs()
        named, shared = rows_of_arguments(named_values, inputs)
        if named and (options.texts or options.file):
            raise QueryError("Expected --input for what all questions share, received all inputs")
        rows = iter(named) if named else _rows(options, inputs, shared, stack)
        # A request to explain may be as much work as a few long texts.
        batch_size = 1 if signature == EXPLAIN else BATCH_SIZE
        asked = _noted(answers(client, rows, shared, inputs, batch_size))
        if options.json:
            for _, answer in asked:
                print(json.dumps(answer, ensure_ascii=False))
        elif options.explain:
            _show_explained(asked)
        else:
            for number, (row, answer) in enumerate(asked):
                if not number:
                    print(_header(row, answer))
                print(_line(row, answer))


def _rows(
    options: _QueryOptions,
    inputs: Mapping[str, Input],
    shared: Question,
    stack: contextlib.ExitStack,
) -> Iterator[Question]:
    """Returns the rows of the texts, of a file or of the standard input."""
    missing = missing_inputs(inputs, shared)
    if options.texts:
        return rows_of_texts(map(os.fsencode, options.texts), missing)
    if options.file and is_table(options.file):
        table = open_table(options.file, wanted=[missing], **table_options(options))
        return rows_of_table(table, inputs, shared, note)
    file = stack.enter_context(open(options.file, "rb")) if options.file else sys.stdin.buffer
    return rows_of_lines(file, inputs, shared, note)


def _noted(
    asked: Iterable[tuple[Question, dict[str, Any]]],
) -> Iterator[tuple[Question, dict[str, Any]]]:
    """Yields rows with their answers, and says at the end which have a text without a token."""
    blank = []
    for number, (row, answer) in enumerate(asked, 1):
        yield row, answer
        if answer.get("blank"):
            blank.append(number)
    if blank:
        note(
            f"in {len(blank):,} of {number:,} questions a text has no token, so nothing of it was "
            f"read; the first is number {blank[0]}"
        )


def _show_explained(explained: Iterable[tuple[Question, Mapping[str, Any]]]) -> None:
    """Prints answers with the words that led to them."""
    # Imported here, as this takes longer than a question.
    from rich.console import Console

    from serving.client.explained_text import LEGEND, coloured, has_colours, table

    console = Console(highlight=False, soft_wrap=True)
    if not has_colours(console):
        for number, (row, answer) in enumerate(explained):
            if not number:
                print(_header(row, answer))
            print(_line(row, answer), *table(answer), sep="\n")
        return
    console.print(LEGEND)
    for row, answer in explained:
        console.print(_line({}, answer), markup=False)
        for text in coloured(row, answer):
            console.print(text)


def _header(row: Question, answer: Mapping[str, Any]) -> str:
    """Returns the names of the values that `_line` shows."""
    return "  ".join([*_shown(answer), *sorted(row)])


def _line(row: Question, answer: Mapping[str, Any]) -> str:
    """Returns an answer in short, and the question."""
    cells = [*_shown(answer).values(), *(row[name] for name in sorted(row))]
    return "  ".join(map(_cell, cells))


def _shown(outputs: Mapping[str, Any]) -> dict[str, Any]:
    """Returns an answer in short, or all outputs where it has no score."""
    if not ("score" in outputs or {"label", "scores"} <= outputs.keys()):
        return dict(outputs)
    [answer] = answers_of({name: [value] for name, value in outputs.items()})
    names = ("label", "labels", "score", "is_sure")
    return {name: answer[name] for name in names if name in answer}


def _cell(value: Any) -> str:
    """Returns a value as a line shows it, in which a text's own lines are one."""
    if isinstance(value, float):
        return f"{value:.4f}"
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    if isinstance(value, str):
        return " ".join(value.splitlines())
    return json.dumps(value, ensure_ascii=False)


if __name__ == "__main__":
    sys.exit(main())
