"""Programs from dataclasses of options: what they accept, and how they end."""

import dataclasses
import inspect
import io
import os
import pathlib
import signal
import subprocess
import sys

import pytest
import tensorflow as tf

from gpt1_keras.cli import (
    RESUMABLE,
    UsageError,
    check_at_least_one,
    exit_status,
    option,
    program,
    progress,
    warn,
)
from gpt1_keras.files import atomic_path
from gpt1_keras.quiet import silent_imports


@dataclasses.dataclass(frozen=True)
class Options:
    data_dir: str = option("folder of the data")
    seed: int = option("of weights", 0)
    rate: float | None = option("learning rate", None)
    tasks: tuple[str, ...] = option("at 100% of the examples", ("sst2", "cola"))
    sizes: tuple[int, ...] = option("all of them", ())
    quiet: bool = option("say nothing", False)
    prefix: str = option("of names", "", group="names")
    suffix: str = option("of names", "50%", group="names", name="--ending")
    layers: int | None = option("how many pairs", None, parse=lambda text: 2 * int(text))
    mode: str = option("how to run", "fast", choices=("fast", "slow"))


@dataclasses.dataclass(frozen=True)
class Texts:
    texts: tuple[str, ...] = option("to read", (), name="text")


USAGE = "Usage: python -m training.example [OPTIONS], see --help"


class AnError(Exception):
    """Neither an error of the input nor one of the machine."""


@pytest.fixture
def run():
    """Runs a program with arguments, and returns the options that its function got."""

    def run(*arguments, **settings):
        received = []

        @program("training.example", **settings)
        def main(options: Options, texts: Texts) -> None:
            """Do something useful.

            This is not for users.
            """
            received.extend([options, texts])

        assert main(arguments) == 0
        return received

    return run


@pytest.fixture
def fail():
    """Runs a program whose function raises an error, and returns its exit status."""

    def fail(error, **settings):
        @program("training.example", **settings)
        def main() -> None:
            raise error

        return main([])

    return fail


@pytest.fixture
def help_text(run, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit) as stopped:
        run("--help", resumable=lambda output: None)
    assert stopped.value.code == 0
    return capsys.readouterr().out


def test_defaults(run):
    options, texts = run("--data-dir", "data")
    assert options == Options("data")
    assert texts == Texts(())


def test_values(run):
    arguments = ["--seed", "3", "--rate", "0.5", "--tasks", "a", "b", "--sizes", "1", "2"]
    arguments += ["--quiet", "--prefix", "x", "--ending", "y", "--layers", "4", "--mode", "slow"]
    options, texts = run("one", "two", "--data-dir", "data", *arguments)
    expected = Options("data", 3, 0.5, ("a", "b"), (1, 2), True, "x", "y", 8, "slow")
    assert options == expected
    assert texts == Texts(("one", "two"))


def test_an_empty_tuple(run):
    options, _ = run("--data-dir", "data", "--tasks")
    assert options.tasks == ()


@pytest.mark.parametrize(
    ("texts", "expected"), [(["a"], "a"), ([], "none")], ids=["given", "left out"]
)
def test_one_optional_positional_argument(texts, expected):
    @dataclasses.dataclass(frozen=True)
    class Text:
        text: str = option("to read", "none", name="text")

    received = []

    @program("training.example")
    def main(options: Text) -> None:
        received.append(options.text)

    assert main(texts) == 0
    assert received == [expected]


def test_arguments_of_the_process(monkeypatch):
    received = []

    @program("training.example")
    def main(texts: Texts) -> None:
        received.append(texts.texts)

    monkeypatch.setattr(sys, "argv", ["example.py", "a", "b"])
    assert main() == 0
    assert received == [("a", "b")]


def test_help(help_text):
    lines = [" ".join(line.strip("│╭╮╰╯─ ").split()) for line in help_text.splitlines()]
    assert lines[0] == "Usage: python -m training.example --data-dir STR [OPTIONS] [ARGS]"
    assert "Do something useful." in lines
    assert "This is not for users." not in help_text
    assert "* --data-dir STR folder of the data [required]" in lines
    assert "--seed INT of weights [default: 0]" in lines
    assert "--rate FLOAT learning rate" in lines
    assert "--tasks STR... at 100% of the examples [default: sst2 cola]" in lines
    assert "--sizes INT... all of them" in lines
    assert "--layers INT how many pairs" in lines
    assert "--quiet say nothing" in lines
    assert "TEXT to read" in lines
    names = lines.index("names")
    assert lines[names + 1 :][:2] == ["--prefix STR of names", "--ending STR of names "
                                      "[default: 50%]"]  # fmt: skip
    assert "--mode CHOICE how to run [choices: fast, slow] [default: fast]" in lines
    assert lines[-1] == RESUMABLE


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "Parameter --data-dir requires an argument."),
        (["--data-dir"], "Parameter --data-dir requires an argument."),
        (["--data-dir", "a", "--seed", "x"], 'value for --seed: unable to convert "x" into int.'),
        (["--data-dir", "a", "--seed", "3.7"], 'unable to convert "3.7" into int.'),
        (["--data-dir", "a", "--rate", "none"], 'unable to convert "none" into float.'),
        (["--data-dir", "a", "--sizes", "1", "x"], 'unable to convert "x" into int.'),
        (["--data-dir", "a", "--layers", "x"], "Invalid value for --layers: "),
        (["--data-dir", "a", "--mode", "x"], 'Invalid value "x" for --mode. Choose from: "fast"'),
        (["--data-dir", "a", "--unknown", "--more"], "Unknown option: --unknown."),
        (["--data-dir", "a", "--sede", "3"], "Unknown option: --sede. Did you mean --seed?"),
        (["--data-dri", "a"], "Unknown option: --data-dri. Did you mean --data-dir?"),
        (
            ["--sede", "3"],
            "Unknown option: --sede. Did you mean --seed?",
        ),  # another is missing
    ],
)
def test_wrong_arguments(run, capsys, arguments, message):
    with pytest.raises(SystemExit) as stopped:
        run(*arguments)
    assert stopped.value.code == 2
    usage, error = capsys.readouterr().err.splitlines()
    assert usage == USAGE
    assert error.startswith("python -m training.example: error: ") and message in error


def test_an_option_given_twice_has_its_last_value(run):
    options, _ = run("--data-dir", "a", "--seed", "1", "--data-dir=b", "--seed", "-2")
    assert options == Options("b", seed=-2)


def test_a_flag_with_a_value(run):
    options, _ = run("--data-dir", "a", "--quiet", "--quiet=false")
    assert options == Options("a")
    options, _ = run("--data-dir", "a", "--quiet=true")
    assert options == Options("a", quiet=True)


def test_texts_that_look_like_something_else(run):
    texts = ["", "null", '["a", "b"]', "\udcff"]
    assert run(*texts, "--data-dir", "a")[1] == Texts(tuple(texts))
    assert run("--data-dir", "a", "--", "--seed", "-x")[1] == Texts(("--seed", "-x"))


def test_underscores(run, capsys):
    options, _ = run("--data_dir", "a", underscores=True)
    assert options == Options("a")
    with pytest.raises(SystemExit):
        run("--data_dri", "a", underscores=True)
    assert "Did you mean --data_dir?" in capsys.readouterr().err


def test_arguments_of_another_program():
    """They are passed on, also one that is nearly one of ours."""
    received = []

    @program("training.example", takes_more=True)
    def main(options: Options, more: list[str]) -> None:
        received.extend([options, more])

    assert main(["--data-dir", "a", "--see", "3", "--se=4", "--seed", "5"]) == 0
    assert received == [Options("a", seed=5), ["--see", "3", "--se=4"]]


def test_it_looks_like_a_function_of_its_arguments():
    @program("training.example")
    def main(options: Options) -> None:
        """Do something."""

    assert list(inspect.signature(main).parameters) == ["arguments"]
    assert main.__doc__ == "Do something."
    assert main.__name__ == "main"


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ValueError("a value"), "a value"),
        (FileNotFoundError(2, "No such file", "a.csv"), "[Errno 2] No such file: 'a.csv'"),
        (ImportError("No module"), "No module"),
        (tf.errors.DataLossError(None, None, "damaged\n\t [[node a]]"), "damaged"),
        (ValueError(), "ValueError"),
    ],
)
def test_a_foreseen_error_is_one_line(fail, capsys, error, message):
    assert fail(error) == 1
    assert capsys.readouterr() == ("", f"error: {message}\n")


def test_an_error_that_the_program_foresees(fail, capsys):
    assert fail(AnError("as expected"), foreseen=(AnError,)) == 1
    assert capsys.readouterr().err == "error: as expected\n"


def test_an_unforeseen_error_keeps_its_traceback(fail):
    with pytest.raises(AnError, match="a fault"):
        fail(AnError("a fault"))


def test_a_usage_error(fail, capsys):
    with pytest.raises(SystemExit) as stopped:
        fail(UsageError("either a or b"))
    assert stopped.value.code == 2
    usage, error = capsys.readouterr().err.splitlines()
    assert usage == USAGE
    assert error == "python -m training.example: error: either a or b"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "Interrupted."),
        ({"interrupted": "There is no corpus."}, "There is no corpus."),
    ],
)
def test_ctrl_c(fail, capsys, settings, message):
    assert fail(KeyboardInterrupt(), **settings) == 130
    assert capsys.readouterr().err == f"\n{message}\n"
    assert fail(KeyboardInterrupt(signal.SIGTERM), **settings) == 143


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_signals_that_end_are_as_ctrl_c(tmp_path, capsys, number):
    """What is half written is removed; a second one would end the process at once."""

    @program("training.example", needs_keras=False)
    def main() -> None:
        with atomic_path(tmp_path / "file") as temporary:
            pathlib.Path(temporary).touch()
            os.kill(os.getpid(), number)
            raise AssertionError("This is not reached.")

    before = signal.signal(number, signal.SIG_DFL)
    try:
        assert main([]) == 128 + number
        assert signal.getsignal(number) == signal.SIG_DFL
    finally:
        signal.signal(number, before)
    assert capsys.readouterr().err == "\nInterrupted.\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("given", "received"),
    [
        (["--direct_num_workers", "2"], ["--direct_num_workers", "2"]),
        (
            ["--experiments=a", "--", "--of_a_server", "3"],
            ["--experiments=a", "--of_a_server", "3"],
        ),
        (["--direct_num_worker=2"], "--direct_num_worker=2. Did you mean --direct_num_workers?"),
        (["--sede", "3"], "--sede 3. Did you mean --seed? Options of a runner's job server"),
        (["b"], "Unknown option: b."),
    ],
)
def test_arguments_of_beam(given, received, capsys):
    pytest.importorskip("apache_beam")
    found = []

    def call(runner):
        @program("training.example", takes_more=True, needs_keras=False)
        def main(options: Options, more: list[str]) -> None:
            found.extend(main.beam_arguments(more, runner))

        return main(["--data-dir", "a", *given])

    if isinstance(received, list):
        assert call("FnApiRunner") == 0 and found == received
    else:
        with pytest.raises(SystemExit):
            call("FnApiRunner")
        assert received in capsys.readouterr().err
    with pytest.raises(SystemExit):  # without a runner, none is Beam's
        call(None)
    assert f"Unknown option: {given[0]}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("saved", "message"),
    [
        (None, "Interrupted before anything was saved; the same command starts afresh."),
        ("RUN/step-7", "Interrupted; the same command goes on from RUN/step-7."),
    ],
)
def test_an_interruption_says_what_is_there(saved, message, capsys):
    @dataclasses.dataclass(frozen=True)
    class Output:
        output: str = option("folder of the run")

    @program("training.example", resumable={"RUN": saved}.get)
    def main(options: Output) -> None:
        raise KeyboardInterrupt

    assert main(["--output", "RUN"]) == 130
    assert capsys.readouterr().err == f"\n{message}\n"


@pytest.mark.parametrize(("result", "status"), [(None, 0), (0, 0), (3, 3)])
def test_the_exit_status_is_the_result(result, status):
    assert exit_status(lambda: result) == status


def test_what_libraries_print_while_they_are_imported(capfd):
    with pytest.raises(ImportError), silent_imports():
        os.write(2, b"hidden")
        raise ImportError
    os.write(2, b"said")
    assert capfd.readouterr().err == "said"


@pytest.mark.parametrize("lines", [1, 100_000])
def test_a_reader_that_has_left(lines):
    """Whether the output fills the pipe or is only flushed at the end, nothing is said of it."""
    script = f"""
import sys

from gpt1_keras import cli

@cli.program("training.example", needs_keras=False)
def main():
    sys.stdin.read()
    for number in range({lines}):
        print("line", number)

sys.exit(main())
"""
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    process.stdout.close()
    process.stdin.close()
    assert process.stderr.read() == b""
    assert process.wait(timeout=60) == 1


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(("stream", "shows"), [(Terminal, True), (io.StringIO, False)])
def test_progress(monkeypatch, stream, shows):
    error = stream()
    monkeypatch.setattr(sys, "stderr", error)
    assert list(progress(iter("abc"), "letters", total=3)) == ["a", "b", "c"]
    assert ("letters" in error.getvalue()) == shows


def test_what_tensorflow_adds_to_its_messages_is_left_out(fail, capsys):
    node = "{{function_node __wrapped__SaveV2_device_/job:localhost/device:CPU:0}}"
    message = f"{node} /a/1/variables; No space left on device [Op:SaveV2] name: "
    assert fail(tf.errors.ResourceExhaustedError(None, None, message)) == 1
    assert capsys.readouterr().err == "error: /a/1/variables; No space left on device\n"


GRAPH_ERROR = """Graph execution error:

Detected at node CollectiveReduceV2 defined at (most recent call last):
  File "/usr/lib/python3.11/runpy.py", line 198, in _run_module_as_main

  File "/a/program.py", line 11, in <module>

Collective ops is aborted by: recvmsg:Connection reset by peer
Additional GRPC error information from remote target /job:worker/replica:0/task:1 while calling it:
\t [[{{node CollectiveReduceV2}}]] [Op:__inference_multi_step_on_iterator_5293]"""


def test_an_error_in_a_graph_is_its_message(fail, capsys):
    """As TensorFlow 2.21 raised it."""
    assert fail(tf.errors.UnavailableError(None, None, GRAPH_ERROR)) == 1
    expected = "error: Collective ops is aborted by: recvmsg:Connection reset by peer\n"
    assert capsys.readouterr().err == expected
    assert fail(tf.errors.UnavailableError(None, None, "Graph execution error:")) == 1
    assert capsys.readouterr().err == "error: Graph execution error:\n"


def test_a_warning_is_one_line(capsys):
    warn("there is little to learn")
    assert capsys.readouterr() == ("", "warning: there is little to learn\n")


@pytest.mark.parametrize(("value", "is_valid"), [(1, True), (7, True), (0, False), (-1, False)])
def test_an_error_of_the_options_themselves(value, is_valid, capsys):
    """It is one line, and not of usage."""

    @dataclasses.dataclass(frozen=True)
    class Checked:
        seeds: int | None = option("left out", None)
        steps: int = option("how many", 0)

        def __post_init__(self):
            check_at_least_one(self, "seeds", "steps")

    @program("training.example")
    def main(options: Checked) -> None:
        assert is_valid

    assert main(["--steps", str(value)]) == (0 if is_valid else 1)
    error = "" if is_valid else f"error: steps must be at least 1. Received: {value}.\n"
    assert capsys.readouterr().err == error
