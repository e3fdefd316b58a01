"""The query program, against running servers over both protocols."""

import io
import json
import subprocess
import sys

import openpyxl
import pytest
import tensorflow as tf

from serving import query
from serving.client.clients import QueryError
from serving.server import Server

STRINGS = tf.TensorSpec([None], tf.string)
CHOICES = tf.TensorSpec([None, None], tf.string)
TIMES = tf.TensorSpec([], tf.int32)
COUNTS = tf.TensorSpec([None], tf.int32)
TWO = tf.constant([2])


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

    @tf.function(input_signature=[STRINGS, COUNTS])
    def several(self, prompt, count=TWO):
        """Takes a number for each text, or has one for all."""
        count = tf.broadcast_to(count, tf.shape(prompt))
        texts = tf.map_fn(
            lambda each: tf.strings.reduce_join(tf.repeat(each[0], each[1])),
            (prompt, count),
            fn_output_signature=tf.string,
        )
        return {"text": texts}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "text")])
    def sure(self, text):
        scores = tf.repeat([[0.9, 0.1]], tf.size(text), axis=0)
        is_sure = tf.strings.length(text) > 2
        label = tf.fill(tf.shape(text), "x")
        return {"label": label, "scores": scores, "is_sure": is_sure, "blank": text == "\r"}


CONFIG = """
model_config_list {{
  config {{ name: "odd" base_path: "{odd}" model_platform: "tensorflow" }}
  config {{
    name: "labelled" base_path: "{tiny}" model_platform: "tensorflow"
    version_labels {{ key: "stable" value: 3 }}
  }}
}}
"""


@pytest.fixture(scope="module")
def odd_ports(tmp_path_factory, free_port, model_base_path):
    """The ports of a server of `odd`, and of `labelled`, whose version 3 has a label."""
    path = tmp_path_factory.mktemp("odd")
    model = Odd()
    names = ("longest", "repeat", "several", "sure")
    signatures = {"serving_default": model.more, **{name: getattr(model, name) for name in names}}
    tf.saved_model.save(model, str(path / "1"), signatures=signatures)
    config = path / "models.config"
    config.write_text(CONFIG.format(odd=path, tiny=model_base_path))
    rest_api_port = free_port()
    with Server(
        model_config_file=str(config),
        allow_version_labels_for_unavailable_models=True,
        port=0,
        rest_api_port=rest_api_port,
    ) as server:
        yield server.port, rest_api_port


@pytest.fixture(params=["gRPC", "REST"])
def ask(request, client, odd_ports, capsys, monkeypatch):
    """A function that runs the program and returns its exit status, output and error output."""
    tiny, odd = {
        "gRPC": (client.target, f"127.0.0.1:{odd_ports[0]}"),
        "REST": (client.rest_url, f"http://127.0.0.1:{odd_ports[1]}"),
    }[request.param]
    targets = {"tiny": tiny, "odd": odd, "labelled": odd}

    def run(model, *arguments, stdin=None):
        if stdin is not None:
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        status = query.main([f"--target={targets[model]}", f"--model={model}", *arguments])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return run


TABLE = "label  score  text\nnegative  0.8000  ab\npositive  0.7000  abcdefg\n"


def test_prints_label_score_and_text(ask, tmp_path):
    assert ask("tiny", "ab", "abcdefg") == (0, TABLE, "")
    assert ask("tiny", "--input=text=ab", "--input=text=abcdefg") == (0, TABLE, "")
    file = tmp_path / "texts.txt"
    file.write_bytes(b"ab\r\nabcdefg")
    assert ask("tiny", f"--file={file}") == (0, TABLE, "")


def test_prints_all_outputs_as_json(ask):
    status, out, err = ask("tiny", "--json", "ab", "añ")
    assert (status, err) == (0, "")
    assert [json.loads(line) for line in out.splitlines()] == [
        {"label": "negative", "num_tokens": 2, "scores": [0.8, 0.2], "truncated": False},
        {"label": "negative", "num_tokens": 3, "scores": [0.7, 0.3], "truncated": False},
    ]


EXPLAINED = "label  score  text\nnegative  0.7000  abc\n +1.0000  a\n +0.2500  b\n -0.5000  c\n"


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


def test_texts_from_the_standard_input(ask):
    lines = [b"x" * (number % 7) for number in range(100)]  # more than one batch
    status, out, _ = ask("tiny", "--json", stdin=b"\n".join(lines))
    assert status == 0
    answers = [json.loads(line) for line in out.splitlines()]
    assert [answer["num_tokens"] for answer in answers] == [number % 7 for number in range(100)]


PAIRS = "score  hypothesis  premise\n2.0000  a  abc\n0.0000  b  a\n"


def test_pairs(ask):
    pairs = ["--input=premise=abc", "--input=hypothesis=a", "--input=hypothesis=b"]
    assert ask("odd", *pairs, "--input=premise=a") == (0, PAIRS, "")
    assert ask("tiny", "--input=text=a=b")[1].endswith("  a=b\n")


def test_choices_whose_number_differs(ask):
    rows = [["a", "abc"], ["abcd", "ab"], ["a", "ab", "abc"]]
    stdin = "\n".join(json.dumps({"context": "c", "choices": row}) for row in rows).encode()
    status, out, _ = ask("odd", "--signature=longest", "--json", stdin=stdin)
    assert status == 0
    labels = [json.loads(line)["label"] for line in out.splitlines()]
    assert labels == ["abc", "abcd", "abc"]
    choices = ["--input=context=c", '--input=choices=["a", "ab"]']
    assert ask("odd", "--signature=longest", *choices)[1] == (
        'label  score  choices  context\nab  2.0000  ["a", "ab"]  c\n'
    )


def test_a_number_that_all_texts_share(ask):
    arguments = ["--signature=repeat", "--input=times=3", "ab", "c"]
    assert ask("odd", *arguments) == (0, "text  prompt\nababab  ab\nccc  c\n", "")


def test_a_text_that_all_questions_share(ask, tmp_path, monkeypatch):
    """Given once beside rows of any kind: arguments, a table, lines."""
    expected = (0, "score  hypothesis\n2.0000  a\n1.0000  ab\n", "")
    shared = "--input=premise=abc"
    assert ask("odd", shared, "--input=hypothesis=a", "--input=hypothesis=ab") == expected
    assert ask("odd", shared, "a", "ab") == expected
    assert ask("odd", shared, stdin=b"a\nab\n") == expected
    file = tmp_path / "some.csv"
    file.write_text("hypothesis\na\nab\n")
    assert ask("odd", shared, f"--file={file}") == expected


def test_labelled_tables_as_they_are(ask, tmp_path):
    """Any separator, other columns and similar names; what is left out is said."""
    file = tmp_path / "some.csv"
    file.write_text('id;Comment;label\n1;ab;x\n;;\n2;"abc\ndefg";y\n', encoding="utf-8-sig")
    status, out, err = ask("tiny", f"--file={file}")
    assert (status, out) == (
        0,
        "label  score  text\nnegative  0.8000  ab\npositive  0.8000  abc defg\n",
    )
    assert f"{file}: left out, as the model has no such input: id, label\n" in err
    assert "takes text from 'Comment'" in err and "1 blank row is skipped" in err
    assert ask("tiny", f"--file={file}", "--columns=text=Comment")[:2] == (status, out)


def test_tables_of_pairs_and_choices(ask, tmp_path):
    rows = [{"premise": "abc", "hypothesis": "a", "label": 1}, {"hypothesis": "b", "premise": "a"}]
    stdin = "\n".join(map(json.dumps, rows)).encode()
    assert ask("odd", stdin=stdin) == (
        0,
        PAIRS,
        "note: left out, as the model has no such input: label\n",
    )
    file = tmp_path / "some.jsonl"
    rows[1]["label"] = 0
    file.write_text("\n".join(map(json.dumps, rows)))
    assert ask("odd", f"--file={file}")[:2] == (0, PAIRS)
    file = tmp_path / "some.tsv"
    file.write_text("choice1\tchoice2\tchoice3\na\tabc\t\nabcd\tab\tc\n")
    status, out, _ = ask("odd", "--signature=longest", "--input=context=c", f"--file={file}")
    assert (status, [line.split()[0] for line in out.splitlines()]) == (0, ["label", "abc", "abcd"])


def test_a_workbook_as_people_have_it(ask, tmp_path):
    """With a cover sheet and a title, as `gpt1 predict` reads it."""
    book = openpyxl.Workbook()
    book.active.append(["Created by K."])
    sheet = book.create_sheet("Data")
    for row in (["March"], ["No", "Message"], [1, "ab"], [2, "abcdefg"]):
        sheet.append(row)
    book.save(tmp_path / "a.xlsx")
    status, out, err = ask("tiny", f"--file={tmp_path / 'a.xlsx'}", "--columns=text=Message")
    assert (status, out) == (0, TABLE) and "sheet 'Data'" in err and "row 2" in err


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.xls", b"", "save it as .xlsx"),
        ("a.ods", b"", "save it as .xlsx"),
        ("a.xlsx", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(99), "password"),
    ],
)
def test_files_that_are_refused_before_a_server_is_asked(tmp_path, capsys, name, content, message):
    (tmp_path / name).write_bytes(content)
    arguments = ["--target=127.0.0.1:1", "--model=x", f"--file={tmp_path / name}"]
    assert query.main(arguments) == 1
    assert message in capsys.readouterr().err


def test_numbers_in_tables_and_options_that_may_be_left_out(ask, tmp_path):
    file = tmp_path / "some.csv"
    file.write_text("prompt,count\nab,2\nc,3\n")
    arguments = ["--signature=several", f"--file={file}"]
    assert ask("odd", *arguments)[:2] == (0, "text  count  prompt\nabab  2  ab\nccc  3  c\n")
    file.write_text("prompt\nab\nc\n")
    assert ask("odd", *arguments)[:2] == (0, "text  prompt\nabab  ab\ncc  c\n")
    assert ask("odd", *arguments, "--input=count=1")[:2] == (0, "text  prompt\nab  ab\nc  c\n")
    file.write_text("prompt,count\nab,two\n")
    error = f"error: {file}, line 2: expected numbers, received 'two'\n"
    assert ask("odd", *arguments)[::2] == (1, error)


def test_what_the_model_says_of_its_answers(ask):
    """Whether it is sure of them, and whether it has read the texts."""
    assert ask("odd", "--signature=sure", "ab", "abc") == (
        0,
        "label  score  is_sure  text\nx  0.9000  false  ab\nx  0.9000  true  abc\n",
        "",
    )
    _, out, err = ask("odd", "--signature=sure", "a", "\r", "b", "\r")
    assert out.count("\n") == 5
    assert err.startswith("note: in 2 of 4 questions") and err.endswith("number 2\n")


def test_a_version_and_a_label(ask):
    expected = "label  score  text\nnegative  0.8000  ab\n"
    for choice in ("--version=3", "--label=stable"):
        assert ask("labelled", choice, "ab") == (0, expected, "")
    assert "Specific(labelled, 2)" in ask("labelled", "--version=2", "ab")[2]
    assert (
        "Unrecognized servable version label: canary" in ask("labelled", "--label=canary", "ab")[2]
    )


def test_invalid_utf8_reaches_the_model(ask):
    expected = "label  score  text\nnegative  0.8000  \ufffd\ufffd\n"
    assert ask("tiny", "\udcff\udcfe")[:2] == (0, expected)


def test_lines_in_another_encoding(ask):
    """A model would answer them as if it had read them."""
    error = "error: Expected UTF-8, received the byte 0xfc at offset 1 of line 2\n"
    assert ask("tiny", stdin="ab\nKündigung\n".encode("cp1252")) == (1, "", error)


def test_replies_of_more_than_4_mib(odd_ports):
    text = "x" * 3 * 2**20
    [answer] = query.ask(f"127.0.0.1:{odd_ports[0]}", "labelled", [text], "echo")
    assert answer == {"text": text, "text_bytes": text}


@pytest.mark.parametrize(
    ("arguments", "received"),
    [
        (["a"], "['hypothesis', 'premise'], received a text without"),
        (["--input=premise=a", "--input=premise=b"], "{'premise': 2}"),
        ([*["--input=premise=a"] * 3, *["--input=hypothesis=a"] * 2], "{'premise': 3, "),
        (["--input=premise=a", "--input=hypothesis=a", "b"], "received all inputs"),
        (["--file=nowhere.csv"], "nowhere.csv"),
        (["--file=nowhere"], "nowhere"),
        (["--input=text=a"], "no input text, only ['hypothesis', 'premise']"),
        (["--signature=no"], "no signature no, only ["),
        (["--explain", "a"], "no signature explain"),
        (["--signature=longest", "--input=context=a", "--input=choices=a"], "JSON, received 'a'"),
        pytest.param(
            ["--signature=longest", "--input=context=a", "--input=choices=" + "[" * 100_000],
            "JSON, received '[[",
            id="nested",
        ),
    ],
)
def test_questions_that_do_not_fit(ask, arguments, received):
    status, out, err = ask("odd", *arguments)
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert err.startswith("error: ") and received in err


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
    assert status == 1 and "['hypothesis', 'premise'] in line 2\n" in err


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


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["a", "--file=b"], "either texts or --file"),
        (["--input", "a"], "NAME=VALUE"),
        (["a", "--version=1", "--label=b"], "either --version or --label"),
        (["a", "--columns=text=b"], "--columns"),
        (["a", "--explain", "--signature=tokens"], "either --explain or --signature"),
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


@pytest.mark.slow
def test_grpc_prints_nothing_of_libraries():
    command = [sys.executable, "-m", "serving.query", "--target=127.0.0.1:1", "--model=x", "a"]
    asked = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (asked.returncode, asked.stdout) == (1, "")
    [line] = asked.stderr.splitlines()
    assert line.startswith("error: UNAVAILABLE: ")


def test_asking_from_a_script(client):
    [answer] = query.ask(client.rest_url, "tiny", ["ab"])
    assert answer["label"] == "negative"
    with pytest.raises(QueryError, match="Latest\\(x\\)"):
        query.ask(client.target, "x", ["ab"])
