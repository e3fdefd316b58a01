"""What the programs of `training` and `serving` share: options, and how they are run.

A program is a function whose parameters are dataclasses of options:

```python
import dataclasses
import sys

from gpt1_keras.cli import option, program

@dataclasses.dataclass(frozen=True)
class Options:
    corpus: str = option("folder that gpt1 corpus wrote")
    seed: int = option("seed of weights and dropout", 0)

@program("training.example")
def main(options: Options) -> None:
    '''Do something with a corpus.'''
    from training.corpus.corpus_format import Corpus

    print(Corpus(options.corpus))

if __name__ == "__main__":
    sys.exit(main())
```

A program answers `--help` and wrong arguments within half a second. So its module, and the modules
that define its options, import neither Keras nor TensorFlow, nor a module that imports them; `main`
imports what does the work, as above. Keras is imported just before `main` runs, and what libraries
print meanwhile is not shown. `tests/test_light_programs.py` checks the imports.
"""

import contextlib
import dataclasses
import difflib
import functools
import importlib
import inspect
import itertools
import sys
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, NoReturn, TypeVar

import cyclopts

from gpt1_keras.exit_status import UsageError, exit_status
from gpt1_keras.quiet import let_libraries_speak

RESUMABLE = "After an interruption, the same command goes on from the last checkpoint."

_Item = TypeVar("_Item")


def option(
    help: str,
    default: Any = dataclasses.MISSING,
    *,
    name: str | tuple[str, ...] | None = None,
    parse: Callable[[str], Any] | None = None,
    **settings: Any,
) -> Any:
    """Returns a dataclass field that is an option of a program: `data_dir` becomes `--data-dir`.

    The field's annotation says how it is given: `bool` is a flag, `tuple[X, ...]` takes several
    values, and `X | None` may be left out.

    Args:
        help: its text in `--help`, to which the default is added.
        default: without one, the option is required.
        name: another name, such as `"--max-queue"`, or several that mean the same; a name
            without dashes makes a positional argument.
        parse: makes a value of a str, if the annotation is not enough. ValueError means that the
            argument is wrong.
        **settings: any argument of `cyclopts.Parameter`, such as `group`, a heading of `--help`;
            `choices`; and `metavar`.
    """
    if parse is not None:
        settings["converter"] = lambda hint, tokens: parse(tokens[0].value)
    metadata = {"name": name, "settings": {"help": help, **settings}}
    return dataclasses.field(default=default, metadata=metadata)


def program(name: str, **settings: Any) -> Callable[[Callable[..., int | None]], "Program"]:
    """Turns a function whose parameters are dataclasses of `option`s into a program; see `Program`.

    The first paragraph of the function's docstring becomes the program's description.
    """
    return lambda function: Program(function, name, **settings)


@dataclasses.dataclass(eq=False)
class Program:
    """A program: called with its arguments (default: the process's), it returns its exit status.

    See `gpt1_keras.exit_status` for the status. Wrong arguments end the process with status 2, and
    `--help` with 0.

    Args:
        function: does the work.
        name: what follows `python -m`.
        resumable: from the option `--output` to the path that an interrupted program goes on from,
            None if nothing is saved there. The program then says so.
        interrupted: the message after Ctrl-C, if the program is not resumable.
        check: is called with the options before Keras is imported, and raises what can be refused
            without it, such as a bad file.
        takes_more: whether the function gets, as its last argument, the list of all arguments that
            are not options of this program, for `beam_arguments`.
        needs_keras: whether to import Keras, in silence, before the function runs.
        underscores: whether options are named like TensorFlow Serving's flags, `--data_dir`.
        foreseen: further classes of errors to report in one line.

    Attributes:
        command: what was typed to start the process's program, if not `python -m` and its name.
    """

    command: ClassVar[str | None] = None

    function: Callable[..., int | None]
    name: str
    resumable: Callable[[str], str | None] | None = None
    interrupted: str = "Interrupted."
    check: Callable[..., object] | None = None
    takes_more: bool = False
    needs_keras: bool = True
    underscores: bool = False
    foreseen: tuple[type[Exception], ...] = ()

    def __post_init__(self) -> None:
        # `inspect` and documentation tools should see `arguments`, not the dataclasses.
        functools.update_wrapper(self, self.function)
        del self.__dict__["__wrapped__"]

    def __call__(self, arguments: Sequence[str] | None = None) -> int:
        values, more = self.parse(arguments)

        def run() -> int | None:
            options = [_read_options(values, options_cls) for options_cls in self._classes]
            if self.check is not None:
                self.check(*options)
            if self.needs_keras:
                importlib.import_module("keras")
            let_libraries_speak()
            return self.function(*options, more) if self.takes_more else self.function(*options)

        def interrupted() -> str:
            if self.resumable is None:
                return self.interrupted
            saved = self.resumable(values["output"])
            if saved is None:
                return "Interrupted before anything was saved; the same command starts afresh."
            return f"Interrupted; the same command goes on from {saved}."

        try:
            return exit_status(run, interrupted, self.foreseen)
        except UsageError as error:
            self._refuse(error)

    def parse(self, arguments: Sequence[str] | None = None) -> tuple[dict[str, Any], list[str]]:
        """Reads arguments; prints why and raises SystemExit if they are wrong or ask for help.

        Returns the values by the fields' names, and the arguments that are not options of this
        program.
        """

        def work() -> None:
            """Stands for the function, with a parameter for each option."""

        parameters = [each for cls in self._classes for each in _parameters(cls, self.underscores)]
        parameters.sort(key=lambda parameter: parameter.kind)  # positional arguments come first
        work.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        app = cyclopts.App(
            name=self._typed,
            help=self.summary,
            help_epilogue=RESUMABLE if self.resumable else None,
            help_format="plaintext",
            version_flags=(),
            default_parameter=_DEFAULTS,
            print_error=False,
            exit_on_error=False,
        )
        app.default(work)
        app["--help"].show = False  # it would come first, as a command
        given = list(sys.argv[1:] if arguments is None else arguments)
        more: list[str] = []
        try:
            if self.takes_more:
                end = given.index("--") if "--" in given else len(given)
                command, bound, more, _ = app.parse_known_args(given[:end])
                more += given[end:]
            else:
                command, bound, _ = app.parse_args(given)
        except cyclopts.CycloptsError as error:
            error.verbose = False
            is_missing = isinstance(error, cyclopts.MissingArgumentError)
            # That another option is mistyped says more.
            mistyped = [each for each in _options_among(given) if self._nearest(each)]
            self._refuse(self.unknown(mistyped) if is_missing and mistyped else error)
        if command is not work:
            command(*bound.args, **bound.kwargs)  # prints the help
            sys.exit(0)
        bound.apply_defaults()
        return bound.arguments, more

    def unknown(self, arguments: Sequence[str], others: Iterable[str] = ()) -> UsageError:
        """Returns an error about arguments that are not options of this program, or `others`."""
        near = self._nearest(arguments[0], others)
        suggestion = f" Did you mean {near}?" if near else ""
        return UsageError(f"Unknown option: {' '.join(arguments)}.{suggestion}")

    def beam_arguments(self, more: Sequence[str], runner: str | None) -> list[str]:
        """Returns Apache Beam's arguments among those that are not options of this program.

        Those after `--` are not looked at, as a runner's job server may know more than Beam.

        Args:
            runner: the name of Beam's runner; None for none, which takes no arguments.

        Raises:
            UsageError: an argument is an option neither of this program nor of Beam.
            ImportError: Beam is not installed.
        """
        end = more.index("--") if "--" in more else len(more)
        given, unseen = list(more[:end]), list(more[end + 1 :])
        if runner is None:
            if given or unseen:
                raise self.unknown(given or unseen)
            return []
        try:
            from apache_beam.options.pipeline_options import PipelineOptions
        except ImportError:
            raise ImportError(
                'A runner needs Apache Beam: pip install "gpt1-keras[beam]".'
            ) from None
        if "." in runner:  # its options are known once it is imported
            with contextlib.suppress(ImportError):  # of which Beam tells
                importlib.import_module(runner.rpartition(".")[0])
        if runner.endswith(".DaskRunner") and not any("partition" in each for each in more):
            unseen.append("--dask_partition_size=1")  # else one worker gets 128 units of the work
        unknown: list[str] = []
        known = PipelineOptions([]).get_all_options(
            add_extra_args_fn=lambda parser: unknown.extend(parser.parse_known_args(given)[1])
        )
        if unknown:
            error = self.unknown(unknown, (f"--{name}" for name in known))
            raise UsageError(f"{error} Options of a runner's job server come after --.")
        return given + unseen

    def _nearest(self, argument: str, others: Iterable[str] = ()) -> str | None:
        """Returns the option that was probably meant by an argument; None if it is an option."""
        fields = [field for cls in self._classes for field in dataclasses.fields(cls)]
        names = (name for each in fields for name in _names(each, self.underscores))
        known = ["--help", *names, *others]
        given = argument.partition("=")[0]
        near = difflib.get_close_matches(given, known, 1)
        return near[0] if near and given not in known else None

    @property
    def summary(self) -> str:
        """The first paragraph of the function's docstring."""
        return inspect.cleandoc(self.function.__doc__ or "").split("\n\n")[0]

    @property
    def _typed(self) -> str:
        return self.command or f"python -m {self.name}"

    @property
    def _classes(self) -> list[type]:
        hints = typing.get_type_hints(self.function)
        names = inspect.signature(self.function).parameters
        return [hints[each] for each in names if dataclasses.is_dataclass(hints[each])]

    def _refuse(self, error: Exception) -> NoReturn:
        print(f"Usage: {self._typed} [OPTIONS], see --help", file=sys.stderr)
        print(f"{self._typed}: error: {error}", file=sys.stderr)
        sys.exit(2)


class Commands:
    """Several programs in one: the first argument is the name of a program's function.

    Args:
        name: what follows `python -m`.
        programs: each is named by `name`, a blank, and its function's name.
    """

    def __init__(self, name: str, *programs: Program) -> None:
        self._name = name
        self._programs = {each.function.__name__: each for each in programs}

    def __call__(self, arguments: Sequence[str] | None = None) -> int:
        chosen, rest = self._choose(arguments)
        if Program.command is not None:
            Program.command += f" {chosen.function.__name__}"
        return chosen(rest)

    def parse(self, arguments: Sequence[str] | None = None) -> tuple[dict[str, Any], list[str]]:
        """Reads arguments as the program that they name does; see `Program.parse`."""
        chosen, rest = self._choose(arguments)
        return chosen.parse(rest)

    def _choose(self, arguments: Sequence[str] | None) -> tuple[Program, list[str]]:
        command = Program.command or f"python -m {self._name}"
        given = list(sys.argv[1:] if arguments is None else arguments)
        return choose(command, {"Programs": self._programs}, lambda each: each.summary, given)


def choose(
    command: str,
    groups: Mapping[str, Mapping[str, _Item]],
    summary: Callable[[_Item], str],
    arguments: Sequence[str],
) -> tuple[_Item, list[str]]:
    """Finds the program that the first argument names, or lists all.

    Args:
        command: what the user typed before the arguments.
        groups: from headings of the list to programs by name.
        summary: of a program, for the list.

    Returns:
        The program, and its arguments.

    Raises:
        SystemExit: the list has been printed, or there is no such program.
    """
    programs = {name: each for group in groups.values() for name, each in group.items()}
    name, *rest = arguments or ["--help"]
    if name in ("-h", "--help"):
        width = max(map(len, programs))
        lines = [f"Usage: {command} PROGRAM [OPTIONS], see {command} PROGRAM --help"]
        for heading, group in groups.items():
            lines.append(f"\n{heading}:")
            lines += [f"  {name:{width}}  {summary(each)}" for name, each in group.items()]
        sys.exit(exit_status(lambda: print("\n".join(lines))))
    if (found := programs.get(name.replace("-", "_"))) is not None:
        return found, rest
    near = difflib.get_close_matches(name, programs, 1)
    suggestion = f"Did you mean {near[0]}?" if near else f"See {command} --help."
    print(f"{command}: error: Unknown program: {name}. {suggestion}", file=sys.stderr)
    sys.exit(2)


def progress(items: Iterable[_Item], description: str, total: int | None = None) -> Iterable[_Item]:
    """Iterates over the items, with a progress bar on a terminal."""
    from tqdm import tqdm  # imported here, as it takes longer than this file's other imports

    return tqdm(items, description, total, disable=None, leave=False)


def warn(message: str) -> None:
    """Prints a warning, in one line."""
    print(f"warning: {message}", file=sys.stderr, flush=True)


def note(message: str) -> None:
    """Prints what the user should know, in one line."""
    print(f"note: {message}", file=sys.stderr, flush=True)


def check_at_least_one(options: Any, *names: str) -> None:
    """Raises ValueError if one of the named attributes is given and below 1."""
    given = ((name, getattr(options, name)) for name in names)
    check_options(options, *((name, n is None or n >= 1, "at least 1") for name, n in given))


def check_options(options: Any, *rules: tuple[str, bool, str]) -> None:
    """Raises ValueError for the first option with an invalid value.

    Args:
        rules: of an option's name, whether its value is valid, and what is expected.
    """
    for name, is_valid, expected in rules:
        if not is_valid:
            raise ValueError(f"{name} must be {expected}. Received: {getattr(options, name)}.")


def _convert(hint: Any, tokens: Sequence[cyclopts.Token]) -> Any:
    """Returns the value of an option. By itself, cyclopts rounds 3.7 where an int is expected."""
    return cyclopts.convert(hint, tokens, converter=lambda kind, text: kind(text))


# For all options. The last value of an option counts: scripts add options to those they set.
_DEFAULTS = cyclopts.Parameter(
    converter=_convert, negative=(), consume_multiple=True, allow_repeating=True
)


def _parameters(options_cls: type, underscores: bool) -> Iterator[inspect.Parameter]:
    hints = typing.get_type_hints(options_cls)
    for field in dataclasses.fields(options_cls):
        default = inspect.Parameter.empty if field.default is dataclasses.MISSING else field.default
        if isinstance(default, tuple):
            shown: str | bool = " ".join(map(str, default))
        else:
            shown = default is not False and default not in (None, "")
        names = _names(field, underscores)
        is_named = names[0].startswith("-")
        described = cyclopts.Parameter(
            name=names if is_named else names[0].upper(),
            show_default=shown or False,
            **field.metadata["settings"],
        )
        yield inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY if is_named else inspect.Parameter.POSITIONAL_ONLY,
            default=default,
            annotation=Annotated[hints[field.name], described],
        )


def _options_among(arguments: Iterable[str]) -> list[str]:
    before = itertools.takewhile(lambda argument: argument != "--", arguments)
    return [argument for argument in before if argument.startswith("--")]


def _names(field: dataclasses.Field, underscores: bool) -> tuple[str, ...]:
    name = field.metadata["name"]
    if name is None:
        name = f"--{field.name if underscores else field.name.replace('_', '-')}"
    return (name,) if isinstance(name, str) else name


def _read_options(values: Mapping[str, Any], options_cls: type) -> Any:
    names = [field.name for field in dataclasses.fields(options_cls)]
    return options_cls(**{name: values[name] for name in names})
