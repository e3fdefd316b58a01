"""The query program, against running servers over both protocols."""

import io
import json
import subprocess
import sys

import pytest
import tensorflow as tf

from serving import query
from serving.client.protocol import QueryError
from serving.server import Server

STRINGS = tf.TensorSpec([None], tf.string)
CHOICES = tf.TensorSpec([None, None], tf.string)
TIMES = tf.TensorSpec([], tf.int32)


class Odd(tf.Module):
    """Has signatures of other tasks than classification."""

    @tf.function(input_signature=[STRINGS, STRINGS])
    def more(self, premise, hypothesis):
        """How many bytes more; has no label."""
        difference = tf.strings.length(premise) - tf.strings.length(hypothesis)
        return {"score": tf.cast(difference, tf.float32)}

    @tf.function(input_signature=[STRINGS, CHOICES])
    def longest(self, context, choices):
        lengths = tf.strings.length(choices)
        best = tf.argmax(lengths, axis=-1)
        return {
            "label": tf.gather(choices, best, batch_dims=1),
            "scores": tf.cast(lengths, tf.float32),
        }

    @tf.function(input_signature=[STRINGS, TIMES])
    def repeat(self, prompt, times):
        """Takes a number that all texts share."""
        return {"text": tf.strings.reduce_join(tf.repeat([prompt], times, axis=0), axis=0)}


@pytest.fixture(scope="module")
def odd_ports(tmp_path_factory, free_port):
    """The ports of a server of `odd`."""
    path = tmp_path_factory.mktemp("odd")
    model = Odd()
    signatures = {"serving_default": model.more, "longest": model.longest, "repeat": model.repeat}
    tf.saved_model.save(model, str(path / "1"), signatures=signatures)
    rest_api_port = free_port()
    with Server("odd", str(path), port=0, rest_api_port=rest_api_port) as server:
        yield server.port, rest_api_port


@pytest.fixture(params=["gRPC", "REST"])
def ask(request, client, odd_ports, capsys, monkeypatch):
    """A function that runs the program and returns its exit status, output and error output."""
    targets = {
        "gRPC": {"tiny": client.target, "odd": f"127.0.0.1:{odd_ports[0]}"},
        "REST": {"tiny": client.rest_url, "odd": f"http://127.0.0.1:{odd_ports[1]}"},
    }[request.param]

    def run(model, *arguments, stdin=None):
        if stdin is not None:
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        status = query.main([f"--target={targets[model]}", f"--model={model}", *arguments])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return run


TABLE = "negative  0.8000  ab\npositive  0.7000  abcdefg\n"


def test_prints_label_score_and_text(ask):
    assert ask("tiny", "ab", "abcdefg") == (0, TABLE, "")


def test_prints_all_outputs_as_json(ask):
    status, out, err = ask("tiny", "--json", "ab", "añ")
    assert (status, err) == (0, "")
    assert [json.loads(line) for line in out.splitlines()] == [
        {"label": "negative", "num_tokens": 2, "scores": [0.8, 0.2], "truncated": False},
        {"label": "negative", "num_tokens": 3, "scores": [0.7, 0.3], "truncated": False},
    ]


EXPLAINED = "negative  0.7000  abc\n +1.0000  a\n +0.2500  b\n -0.5000  c\n"


def test_explains_in_a_table(ask):
    assert ask("tiny", "--explain", "abc") == (0, EXPLAINED, "")
    status, out, _ = ask("tiny", "--explain", "--json", "ab", "abc")
    assert (status, [json.loads(line)["num_words"] for line in out.splitlines()]) == (0, [2, 3])


def test_explains_in_colour_on_a_terminal(ask, monkeypatch):
    for name, value in {"FORCE_COLOR": "1", "TERM": "xterm", "COLORTERM": "truecolor"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("NO_COLOR", raising=False)
    status, out, _ = ask("tiny", "--explain", "abc")
    legend, answer, text = out.splitlines()
    assert (status, answer) == (0, "negative  0.7000")
    assert legend.startswith("Blue speaks for the answer, orange against it")
    deep, pale, against = "86;180;233", "213;236;250", "242;207;128"
    assert text == "".join(
        f"\x1b[30;48;2;{colour}m{word}\x1b[0m" for colour, word in zip((deep, pale, against), "abc")
    )
    monkeypatch.setenv("NO_COLOR", "1")
    assert ask("tiny", "--explain", "abc") == (0, EXPLAINED, "")


def test_explains_only_what_has_explanations(ask, capsys):
    status, _, err = ask("odd", "--explain", "abc")
    assert status == 1 and "has no signature explain" in err
    with pytest.raises(SystemExit):
        query.main(["--model=tiny", "--explain", "--signature=tokens", "a"])
    assert "either --explain or --signature" in capsys.readouterr().err


def test_texts_from_a_file(ask, tmp_path):
    file = tmp_path / "texts.txt"
    file.write_bytes(b"ab\r\nabcdefg")
    assert ask("tiny", f"--file={file}") == (0, TABLE, "")


def test_texts_from_the_standard_input(ask):
    lines = [b"x" * (number % 7) for number in range(100)]  # more than one batch
    status, out, _ = ask("tiny", "--json", stdin=b"\n".join(lines))
    assert status == 0
    answers = [json.loads(line) for line in out.splitlines()]
    assert [answer["num_tokens"] for answer in answers] == [number % 7 for number in range(100)]


def test_named_input(ask):
    status, out, _ = ask("tiny", "--input=text=a=b", "--input=text=abcdefg")
    assert (status, out) == (0, "negative  0.7000  a=b\npositive  0.7000  abcdefg\n")


PAIRS = "2.0000  a  abc\n0.0000  b  a\n"  # hypothesis before premise


def test_pairs(ask):
    pairs = ["--input=premise=abc", "--input=hypothesis=a", "--input=hypothesis=b"]
    assert ask("odd", *pairs, "--input=premise=a") == (0, PAIRS, "")


def test_pairs_from_the_standard_input(ask):
    rows = [{"premise": "abc", "hypothesis": "a"}, {"hypothesis": "b", "premise": "a"}]
    stdin = "\n".join(map(json.dumps, rows)).encode()
    assert ask("odd", stdin=stdin) == (0, PAIRS, "")


def test_choices_whose_number_differs(ask):
    rows = [["a", "abc"], ["abcd", "ab"], ["a", "ab", "abc"]]
    stdin = "\n".join(json.dumps({"context": "c", "choices": row}) for row in rows).encode()
    status, out, _ = ask("odd", "--signature=longest", "--json", stdin=stdin)
    assert status == 0
    labels = [json.loads(line)["label"] for line in out.splitlines()]
    assert labels == ["abc", "abcd", "abc"]
    choices = ["--input=context=c", '--input=choices=["a", "ab"]']
    assert ask("odd", "--signature=longest", *choices)[1] == 'ab  2.0000  ["a", "ab"]  c\n'


def test_a_number_that_all_texts_share(ask):
    arguments = ["--signature=repeat", "--input=times=3", "ab", "c"]
    assert ask("odd", *arguments) == (0, "ababab  ab\nccc  c\n", "")


def test_invalid_utf8_reaches_the_model(ask):
    assert ask("tiny", "\udcff\udcfe")[:2] == (0, "negative  0.8000  \ufffd\ufffd\n")


EXPECTED = "Expected as many --input hypothesis=TEXT as --input premise=TEXT, received "


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["a"], "Expected a value for each of ['hypothesis', 'premise'], received a text without"),
        (["--input=premise=a"], EXPECTED + "{'premise': 1}"),
        (
            ["--input=premise=a", "--input=hypothesis=a", "--input=premise=b"],
            EXPECTED + "{'premise': 2, ",
        ),
        (["--input=text=a"], "The signature has no input text, only ['hypothesis', 'premise']"),
        (["--signature=no"], "The model has no signature no, only ["),
        (
            ["--signature=longest", "--input=context=a", "--input=choices=a"],
            "Expected --input choices= with JSON, received 'a'",
        ),
        pytest.param(
            ["--signature=longest", "--input=context=a", "--input=choices=" + "[" * 100_000],
            "Expected --input choices= with JSON, received '[[",
            id="nested",
        ),
    ],
)
def test_questions_that_do_not_fit(ask, arguments, error):
    status, out, err = ask("odd", *arguments)
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert err.startswith(f"error: {error}")


@pytest.mark.parametrize(
    "line",
    [
        *("a", "[]", '{"premise": "a"}', '{"premise": "a", "x": "b"}', ""),
        pytest.param("[" * 100_000, id="nested"),
    ],
)
def test_lines_that_do_not_fit(ask, line):
    stdin = b'{"premise": "a", "hypothesis": "b"}\n' + line.encode() + b"\n"
    status, _, err = ask("odd", stdin=stdin)
    assert (status, err) == (
        1,
        "error: Expected a JSON object with ['hypothesis', 'premise'] in line 2\n",
    )


def test_errors_of_the_server_are_one_line(ask, client):
    for target, error in [
        (client.target, "NOT_FOUND: Servable not found for request: Latest(x)"),
        (client.rest_url, "HTTP 404: Servable not found for request: Latest(x)"),
        ("127.0.0.1:1", "UNAVAILABLE: "),
        ("http://127.0.0.1:1", "Cannot ask http://127.0.0.1:1/v1/models/x: "),
        (f"http://{client.target}", f"Cannot ask http://{client.target}/v1/models/x: "),  # gRPC's
        ("http://127.0.0.1:a b", "Cannot ask http://127.0.0.1:a b/v1/models/x: "),
    ]:
        status, out, err = ask("tiny", "--model=x", f"--target={target}", "a")
        assert (status, out, err.count("\n")) == (1, "", 1)
        assert err.startswith(f"error: {error}")


def test_a_missing_file(ask):
    assert ask("tiny", "--file=nowhere")[::2] == (
        1,
        "error: [Errno 2] No such file or directory: 'nowhere'\n",
    )


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["a", "--file=b"], "expected either texts or --file"),
        (["--input", "a"], "expected NAME=VALUE, received 'a'"),
    ],
)
def test_usage_errors(ask, capsys, arguments, error):
    with pytest.raises(SystemExit) as caught:
        ask("tiny", *arguments)
    assert caught.value.code == 2
    assert error in capsys.readouterr().err


def test_rest_does_without_tensorflow():
    """Which takes ten seconds to import."""
    code = "import sys, serving.query; sys.exit('tensorflow' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_asking_from_a_script(client):
    [answer] = query.ask(client.rest_url, "tiny", ["ab"])
    assert answer["label"] == "negative"
    with pytest.raises(QueryError, match="Latest\\(x\\)"):
        query.ask(client.target, "x", ["ab"])
