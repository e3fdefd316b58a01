"""Asks a running server, this package's or TensorFlow Serving's own, about texts.

    python -m serving.query --model sst2 "a joy to watch" "a waste of time"
    python -m serving.query --model sst2 --target http://localhost:8501 < reviews.txt
    python -m serving.query --model mnli --input premise="It rains." --input hypothesis="It is wet."
    python -m serving.query --model mnli --file pairs.jsonl --json
    python -m serving.query --model sst2 --explain "a joy to watch"

Texts are arguments, or the lines of a file or of the standard input; for a model that takes several
texts, each line is a JSON object with a value for each. For each it prints a line: the label, its
score and the text, or with --json all outputs; with --explain, which words the answer is due to.
A target that begins with http:// is asked over REST, any other over gRPC.
"""

import argparse
import contextlib
import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from serving.client.connection import connect
from serving.client.protocol import QueryError
from serving.client.questions import Row, answers, rows_of_arguments, rows_of_lines, rows_of_texts
from serving.export_names import DEFAULT_SIGNATURE, EXPLAIN


# Not on `gpt1_keras.cli`: a question over REST takes 0.1 s, importing that takes 10 s.
def main(arguments: Sequence[str] | None = None) -> int:
    """Asks and prints; returns the exit status."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.texts and options.file:
        parser.error("expected either texts or --file")
    if options.explain and options.signature:
        parser.error("expected either --explain or --signature")
    try:
        _query(options)
    except BrokenPipeError:  # the reader of the output has left, such as `head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (OSError, QueryError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nInterrupted.", file=sys.stderr)
        return 130
    return 0


def ask(
    target: str, model: str, texts: Sequence[str], signature: str = DEFAULT_SIGNATURE
) -> list[dict[str, Any]]:
    """Asks a model that takes one text about several.

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


def _parser() -> argparse.ArgumentParser:
    """Returns the program's parser."""
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
        "--signature",
        metavar="NAME",
        help=f"default: {DEFAULT_SIGNATURE}, or with --explain {EXPLAIN}",
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
    parser.add_argument(
        "--explain",
        action="store_true",
        help="colour words by their share in the answer; where that cannot be, list them (for "
        f"exports with the signature {EXPLAIN})",
    )
    return parser


def _named_text(argument: str) -> tuple[str, str]:
    """Parses a value of `--input`."""
    name, equals, text = argument.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"expected NAME=VALUE, received {argument!r}")
    return name, text


def _query(options: argparse.Namespace) -> None:
    """Asks what the options say, and prints the answers."""
    signature = options.signature or (EXPLAIN if options.explain else DEFAULT_SIGNATURE)
    with contextlib.ExitStack() as stack:
        client = stack.enter_context(connect(options.target, options.model, signature))
        inputs = client.signature().inputs
        named, shared = rows_of_arguments(options.input, inputs)
        if options.texts:
            rows = rows_of_texts(map(os.fsencode, options.texts), inputs)
        elif named:
            rows = iter(named)
        elif options.file:
            rows = rows_of_lines(stack.enter_context(open(options.file, "rb")), inputs)
        else:
            rows = rows_of_lines(sys.stdin.buffer, inputs)
        if options.explain and not options.json:
            _show_explained(answers(client, rows, shared))
            return
        for row, answer in answers(client, rows, shared):
            print(json.dumps(answer, ensure_ascii=False) if options.json else _line(row, answer))


def _show_explained(explained: Iterable[tuple[Row, Mapping[str, Any]]]) -> None:
    """Prints answers with the words that they are due to."""
    # Imported here, as it takes longer than a question.
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
    """Returns the best label and its score, or else all outputs; and what was asked."""
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
