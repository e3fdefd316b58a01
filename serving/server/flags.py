"""The program's flags: all those of tensorflow_model_server 2.20, and `--host`."""

import argparse
import dataclasses
import difflib
import logging
from collections.abc import Callable
from typing import Any, NoReturn

from serving.server.options import Options

# Flags that change nothing here: their type, the value that says what is done anyway, and why.
_WITHOUT_EFFECT: dict[str, tuple[type, Any, str]] = {
    "rest_api_num_threads": (int, None, "connections have threads of their own"),
    "rest_api_enable_cors_support": (bool, False, "a proxy can add the headers"),
    "num_load_threads": (int, 0, "versions are loaded one after the other"),
    "num_unload_threads": (int, 0, "versions are unloaded after their last request"),
    "max_num_load_retries": (int, 0, "a version is tried again when its files change"),
    "load_retry_interval_micros": (int, None, "a version is tried again when its files change"),
    "flush_filesystem_caches": (bool, False, "the system frees them when it needs memory"),
    "platform_config_file": (str, "", "there is one platform, TensorFlow"),
    "remove_unused_fields_from_bundle_metagraph": (bool, True, "only signatures are kept"),
    "num_tflite_interpreters_per_pool": (int, 1, "--num_tflite_pools says how many there are"),
    "enable_signature_method_name_check": (bool, False, "TensorFlow 2 does not set the names"),
    "enable_profiler": (bool, False, "there is no profiler"),
    "thread_pool_factory_config_file": (str, "", "all models share TensorFlow's threads"),
    "skip_initialize_tpu": (bool, True, "there is no TPU"),
    "enable_serialization_as_tensor_content": (bool, False, "values are in typed fields"),
    "enable_batching": (bool, False, "exports made with --batching merge requests in the graph"),
    "batching_parameters_file": (str, "", "exports made with --batching have their own"),
    "enable_per_model_batching_parameters": (bool, False, "an export's parameters are its own"),
}
# Flags of the process, as XLA is on or off for all of it.
_XLA = {
    "xla_cpu_compilation_enabled": "compile with XLA where a graph asks for it",
    "xla_gpu_compilation_enabled": "the same; TensorFlow has one switch for both",
}


def parser() -> argparse.ArgumentParser:
    """Returns a parser of the program's flags."""
    made = _Parser(
        prog="python -m serving.server",
        description="Serve exported models over gRPC and REST, with TensorFlow Serving's flags, "
        "protocols and errors.",
        allow_abbrev=False,
    )
    for field in dataclasses.fields(Options):
        kind = _TYPES[type(field.default)](field.metadata)
        _add(made, field.name, kind, field.default, field.metadata["help"])
    for name, text in _XLA.items():
        _add(made, name, _boolean, False, text)
    _add(made, "version", _boolean, False, "print the versions, and end")
    group = made.add_argument_group("flags of TensorFlow Serving that have no effect here")
    for name, (kind, _, why) in _WITHOUT_EFFECT.items():
        value_type = _boolean if kind is bool else kind
        _add(group, name, value_type, argparse.SUPPRESS, why)
    return made


def read(parsed: argparse.Namespace) -> tuple[Options, bool]:
    """Returns the options of a parsed command line, and whether XLA may compile graphs.

    One warning names all flags that have no effect.
    """
    given = vars(parsed)
    ignored = [
        f"--{name} ({why})"
        for name, (_, anyway, why) in _WITHOUT_EFFECT.items()
        if name in given and given[name] != anyway
    ]
    if ignored:
        logging.warning("Without effect here: %s", ", ".join(ignored))
    names = [field.name for field in dataclasses.fields(Options)]
    options = Options(**{name: given[name] for name in names})
    return options, any(given[name] for name in _XLA)


class _Parser(argparse.ArgumentParser):
    """Says which flag may have been meant by one that there is not."""

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        parsed, unknown = self.parse_known_args(args, namespace)
        if unknown:
            self._refuse(unknown[0])
        return parsed

    def _refuse(self, argument: str) -> NoReturn:
        flag = argument.partition("=")[0]
        known = [option for action in self._actions for option in action.option_strings]
        nearest = difflib.get_close_matches(flag, known, n=1, cutoff=0)
        self.error(f"unknown argument: {argument}; the nearest flag is {nearest[0]}")


def _add(group: Any, name: str, kind: Callable[[str], Any], default: Any, text: str) -> None:
    """Adds a flag. Booleans are given as --flag, --flag=true or --flag=false."""
    if default not in ("", argparse.SUPPRESS):
        text += f" (default: {str(default).lower()})"
    optional: dict[str, Any] = {"nargs": "?", "const": True} if kind is _boolean else {}
    group.add_argument(f"--{name}", type=kind, default=default, help=text, **optional)


def _boolean(text: str) -> bool:
    """Parses a boolean."""
    if text.lower() not in ("true", "false"):
        raise argparse.ArgumentTypeError(f"expected true or false, received {text!r}")
    return text.lower() == "true"


def _text(text: str) -> str:
    """Checks a string: gRPC and protocol buffers hold no other bytes than UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise argparse.ArgumentTypeError(f"expected UTF-8, received {text!r}") from error
    return text


def _number(kind: type, word: str, bounds: Any) -> Callable[[str], Any]:
    """Returns a parser of numbers within bounds."""

    def parse_number(text: str) -> Any:
        least, most = bounds["least"], bounds["most"]
        try:
            number = kind(text) if text.isascii() else None
        except ValueError:
            number = None
        if number is None or not least <= number <= most:
            raise argparse.ArgumentTypeError(
                f"expected {word} from {least} to {most}, received {text!r}"
            )
        return number

    return parse_number


_TYPES: dict[type, Callable[[Any], Callable[[str], Any]]] = {
    str: lambda bounds: _text,
    bool: lambda bounds: _boolean,
    int: lambda bounds: _number(int, "a whole number", bounds),
    float: lambda bounds: _number(float, "a number", bounds),
}
