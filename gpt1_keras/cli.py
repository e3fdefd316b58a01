"""What the programs of `training` and `serving` share: options, one-line errors, exit statuses.

A program is a function whose parameters are dataclasses of options:

```python
import dataclasses
import sys

from gpt1_keras.cli import option, program

@dataclasses.dataclass(frozen=True)
class Options:
    corpus: str = option("folder that training.corpus wrote")
    seed: int = option("of weights and dropout", 0)

@program("training.example")
def main(options: Options) -> None:
    '''Do something with a corpus.'''

if __name__ == "__main__":
    sys.exit(main())
```
"""

import argparse
import contextlib
import dataclasses
import functools
import inspect
import logging
import os
import sys
import types
import typing
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypeVar

from tqdm import tqdm

RESUMABLE = "Interrupted, the same command goes on from the last checkpoint."

_Item = TypeVar("_Item")


class Main(Protocol):
    """A program: takes its arguments (default: those of the process), returns its exit status."""

    def __call__(self, arguments: Sequence[str] | None = None) -> int: ...


class UsageError(ValueError):
    """Arguments that do not go together: the program prints its usage and exits with 2."""


def option(help: str, default: Any = dataclasses.MISSING, **settings: Any) -> Any:
    """A field of a dataclass that is an option of a program: `data_dir` becomes `--data-dir`.

    Its annotation says how it is given: `bool` is a flag, `tuple[X, ...]` takes several values, and
    `X | None` may be left out.

    Args:
        help: what `--help` says of it; a default is added.
        default: without one, the option is required.
        **settings: `group`, a heading of `--help`; `name`, such as `"--max-queue"`, or without
            dashes for a positional argument; `parse`, a function from str, where the annotation is
            not enough; and what `argparse.ArgumentParser.add_argument` takes, such as `choices`.
    """
    return dataclasses.field(default=default, metadata={"help": help, **settings})


def program(
    name: str,
    *,
    resumable: bool = False,
    interrupted: str = "Interrupted.",
    takes_more: bool = False,
    foreseen: tuple[type[Exception], ...] = (),
) -> Callable[[Callable[..., int | None]], Main]:
    """Makes a program of a function whose parameters are dataclasses of `option`s.

    The first paragraph of the function's docstring is the program's description.

    Args:
        name: what follows `python -m`.
        resumable: whether a run goes on where it was interrupted, which users are told.
        interrupted: what to say after Ctrl-C, of a program that is not resumable.
        takes_more: whether the function gets, as its last argument, the list of all arguments that
            are no options of this program.
        foreseen: further classes of errors that are told in one line.

    Returns:
        A decorator, which makes a `Main`; it returns what the function returns, or as `exit_status`.
    """

    def decorate(function: Callable[..., int | None]) -> Main:
        hints = typing.get_type_hints(function)
        classes = [
            hints[parameter]
            for parameter in inspect.signature(function).parameters
            if dataclasses.is_dataclass(hints[parameter])
        ]

        @functools.wraps(function)
        def main(arguments: Sequence[str] | None = None) -> int:
            parser = argparse.ArgumentParser(
                prog=f"python -m {name}",
                description=inspect.cleandoc(function.__doc__ or "").split("\n\n")[0],
                epilog=RESUMABLE if resumable else None,
                allow_abbrev=not takes_more,  # what looks like a shortened option may be one more
            )
            for options_cls in classes:
                _add_options(parser, options_cls)
            namespace, more = parser.parse_known_args(arguments)
            if more and not takes_more:
                parser.error(f"unrecognized arguments: {' '.join(more)}")

            def run() -> int | None:
                options = [_take(namespace, options_cls) for options_cls in classes]
                return function(*options, more) if takes_more else function(*options)

            try:
                return exit_status(run, RESUMABLE if resumable else interrupted, foreseen)
            except UsageError as error:
                parser.error(str(error))

        # `inspect` and documentation tools shall see `arguments`, not the dataclasses.
        del main.__wrapped__
        return main

    return decorate


def exit_status(
    run: Callable[[], int | None],
    interrupted: str = "Interrupted.",
    foreseen: tuple[type[Exception], ...] = (),
) -> int:
    """Runs a program, and tells people in one line why it could not go on.

    Args:
        run: returns the exit status, or None for 0.
        interrupted: what to say after Ctrl-C.
        foreseen: further classes of errors that are told in one line.

    Returns:
        The exit status: 1 after an error of the input or the machine (`ValueError`, `OSError`,
        `ImportError`, `tf.errors.OpError`), 130 after Ctrl-C. Other errors are faults of this
        package, and leave with their traceback.
    """
    # Undoes what `training` and `serving` do while TensorFlow is imported.
    with contextlib.suppress(OSError):
        os.dup2(sys.stderr.fileno(), 2)
    for library in ("absl", "tensorflow"):
        logging.getLogger(library).setLevel(logging.ERROR)
    with warnings.catch_warnings():
        # A task is saved with its optimizer's state, of which loading for inference has no use.
        warnings.filterwarnings("ignore", "Skipping variable loading for optimizer")
        try:
            return run() or 0
        except UsageError:
            raise
        except BrokenPipeError:
            # Who read the output has left, such as `head`; nothing more can be said there.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 1
        except KeyboardInterrupt:
            print(f"\n{interrupted}", file=sys.stderr)
            return 130
        except Exception as error:
            if not (_is_foreseen(error) or isinstance(error, foreseen)):
                raise
            print(f"error: {_described(error)}", file=sys.stderr)
            return 1


def progress(items: Iterable[_Item], description: str, total: int | None = None) -> Iterable[_Item]:
    """The items, with a progress bar on a terminal."""
    return tqdm(items, description, total, disable=None, leave=False)


def check_at_least_one(options: Any, *names: str) -> None:
    """Raises ValueError if one of the named attributes is given and below 1."""
    for name in names:
        value = getattr(options, name)
        if value is not None and value < 1:
            raise ValueError(f"{name} must be at least 1. Received: {value}.")


def _add_options(parser: argparse.ArgumentParser, options_cls: type) -> None:
    hints = typing.get_type_hints(options_cls)
    groups: dict[str | None, Any] = {None: parser}
    for field in dataclasses.fields(options_cls):
        settings = dict(field.metadata)
        flag = settings.pop("name", f"--{field.name.replace('_', '-')}")
        group = settings.pop("group", None)
        if group not in groups:
            groups[group] = parser.add_argument_group(group)
        kind, several = _kind(hints[field.name])
        required = field.default is dataclasses.MISSING
        if not required and field.default not in (None, False, ()):
            default = " ".join(map(str, field.default)) if several else field.default
            settings["help"] += f" (default: {default})"
        parse = settings.pop("parse", kind)
        if kind is bool:
            settings["action"] = "store_true"
        else:
            settings["type"] = parse
        if several:
            settings.setdefault("nargs", "+" if required else "*")
        if flag.startswith("-"):
            settings |= {"dest": field.name, "required": required}
        else:
            settings.setdefault("metavar", flag.upper())
            flag = field.name
        default = None if required else field.default
        groups[group].add_argument(flag, default=default, **settings)


def _kind(hint: Any) -> tuple[type, bool]:
    """The type of an option's values, and whether it takes several."""
    if isinstance(hint, types.UnionType):
        [hint] = [each for each in typing.get_args(hint) if each is not types.NoneType]
    if typing.get_origin(hint) is tuple:
        return typing.get_args(hint)[0], True
    return hint, False


def _take(namespace: argparse.Namespace, options_cls: type) -> Any:
    names = [field.name for field in dataclasses.fields(options_cls)]
    values = {name: getattr(namespace, name) for name in names}
    return options_cls(**{k: tuple(v) if isinstance(v, list) else v for k, v in values.items()})


def _is_foreseen(error: Exception) -> bool:
    if isinstance(error, (ValueError, OSError, ImportError)):
        return True
    tensorflow = sys.modules.get("tensorflow")  # without it, the error is none of its
    return tensorflow is not None and isinstance(error, tensorflow.errors.OpError)


def _described(error: Exception) -> str:
    # TensorFlow's messages go on with the graph's nodes.
    lines = str(getattr(error, "message", None) or error).splitlines()
    return lines[0] if lines else type(error).__name__
