"""The query program, asking the running server."""

import json

import pytest
import tensorflow as tf

from serving import query
from serving.server import Server

STRINGS = tf.TensorSpec([None], tf.string)


@pytest.fixture
def ask(client, capsys):
    """A function that runs the program and returns its exit status, output and error output."""

    def run(*arguments):
        status = query.main([f"--target={client.target}", *arguments])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return run


@pytest.fixture(scope="module")
def pair_target(tmp_path_factory):
    """The address of a server of `pair`, which has two inputs and no label: how many bytes more."""
    path = tmp_path_factory.mktemp("pair")
    model = tf.Module()

    @tf.function(input_signature=[STRINGS, STRINGS])
    def more(premise, hypothesis):
        difference = tf.strings.length(premise) - tf.strings.length(hypothesis)
        return {"score": tf.cast(difference, tf.float32)}

    tf.saved_model.save(model, str(path / "1"), signatures=more)
    with Server("pair", str(path), port=0) as server:
        yield f"127.0.0.1:{server.port}"


def test_prints_label_and_score_of_each_text(ask):
    assert ask("--model=tiny", "ab", "abcdefg") == (0, "negative  0.8000\npositive  0.7000\n", "")


def test_prints_all_outputs_as_json(ask):
    status, out, err = ask("--model=tiny", "--json", "ab", "añ")
    assert (status, err) == (0, "")
    assert [json.loads(line) for line in out.splitlines()] == [
        {"label": "negative", "num_tokens": 2, "scores": [0.8, 0.2], "truncated": False},
        {"label": "negative", "num_tokens": 3, "scores": [0.7, 0.3], "truncated": False},
    ]


def test_named_input(ask):
    status, out, _ = ask("--model=tiny", "--input=text=a=b", "--input=text=abcdefg")
    assert (status, out) == (0, "negative  0.7000\npositive  0.7000\n")


def test_pairs(ask, pair_target):
    pairs = ["--input=premise=abc", "--input=hypothesis=a", "--input=hypothesis=b"]
    pairs += ["--input=premise=a"]
    assert ask("--model=pair", f"--target={pair_target}", *pairs) == (0, "2.0000\n0.0000\n", "")


@pytest.mark.parametrize(
    ("arguments", "received"),
    [
        (["a"], "texts without a name"),
        (["--input=premise=a"], "{'premise': 1}"),
        (["--input=premise=a", "--input=hypothesis=a", "--input=premise=b"], "{'premise': 2, "),
    ],
)
def test_pairs_must_be_whole(ask, pair_target, arguments, received):
    status, out, err = ask("--model=pair", f"--target={pair_target}", *arguments)
    assert (status, out) == (1, "")
    assert err.startswith(
        "Expected as many --input hypothesis=TEXT as --input premise=TEXT, received " + received
    )


def test_invalid_utf8_reaches_the_model(ask):
    assert ask("--model=tiny", "\udcff\udcfe")[:2] == (0, "negative  0.8000\n")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["--model=x", "a"], "NOT_FOUND: Servable not found for request: Latest(x)\n"),
        (
            ["--model=tiny", "--input", "premise=a", "--input", "hypothesis=b"],
            "Expected as many --input text=TEXT, received {'premise': 1, 'hypothesis': 1}\n",
        ),
        (["--model=tiny", "--target=127.0.0.1:1", "a"], "UNAVAILABLE: "),
    ],
)
def test_errors_are_one_line(ask, arguments, error):
    status, out, err = ask(*arguments)
    assert (status, out) == (1, "")
    assert err.startswith(error)
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ([], "expected either texts or --input NAME=TEXT for each of the model's inputs"),
        (["a", "--input", "text=a"], "expected either texts or --input NAME=TEXT"),
        (["--input", "a"], "expected NAME=TEXT, received 'a'"),
    ],
)
def test_usage_errors(ask, capsys, arguments, error):
    with pytest.raises(SystemExit) as caught:
        ask("--model=tiny", *arguments)
    assert caught.value.code == 2
    assert error in capsys.readouterr().err
