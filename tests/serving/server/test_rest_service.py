"""The REST interface: good answers, and TensorFlow Serving's error for every mistake."""

import base64
import http.client
import json
import socket
import urllib.error
import urllib.request

import numpy as np
import pytest

from serving.server.errors import ServingError
from serving.server.limits import Budget
from serving.server.rest_service import write_outputs

PREDICT = "/v1/models/tiny:predict"


@pytest.fixture(scope="module")
def ask(client):
    """A function that sends a request and returns the HTTP status and the JSON of the answer."""

    def send(method, path, document=None):
        body = document if document is None or isinstance(document, bytes) else json.dumps(document)
        request = urllib.request.Request(
            client.rest_url + path,
            method=method,
            data=body.encode() if isinstance(body, str) else body,
        )
        try:
            with urllib.request.urlopen(request, timeout=30) as response:
                assert response.headers["Content-Type"] == "application/json"
                return response.status, json.loads(response.read().decode(errors="surrogateescape"))
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())

    return send


ROW = {"label": "negative", "num_tokens": 2, "scores": [0.8, 0.2], "truncated": False}
COLUMNS = {"label": ["negative"], "num_tokens": [2], "scores": [[0.8, 0.2]], "truncated": [False]}
TOKENS_ROW = {"token_ids": [1, 2, 3], "padding_mask": [1, 1, 0]}
TOKENS_COLUMNS = {"token_ids": [[1, 2, 3]], "padding_mask": [[1, 1, 0]]}
TOKENS_REPLY = {"label": "negative", "scores": [0.7, 0.3]}
PREDICT_ANSWERS = [
    ({"instances": ["ab"]}, {"predictions": [ROW]}),
    ({"instances": [{"text": "ab"}]}, {"predictions": [ROW]}),
    ({"instances": [{"b64": "/v8="}]}, {"predictions": [ROW]}),
    # As absl::Base64Unescape: with line ends, and without padding.
    ({"instances": [{"b64": "/v8=\n"}]}, {"predictions": [ROW]}),
    ({"instances": [{"b64": "/\r\nv8"}]}, {"predictions": [ROW]}),
    ({"instances": [{"text": {"b64": "/v8="}}]}, {"predictions": [ROW]}),
    ({"inputs": ["ab"]}, {"outputs": COLUMNS}),
    ({"inputs": {"text": ["ab"]}}, {"outputs": COLUMNS}),
    ({"inputs": ["ab"], "signature_name": "serving_default"}, {"outputs": COLUMNS}),
    ({"inputs": ["ab"], "signature_name": ""}, {"outputs": COLUMNS}),
    ({"instances": [TOKENS_ROW], "signature_name": "tokens"}, {"predictions": [TOKENS_REPLY]}),
    (
        {"inputs": TOKENS_COLUMNS, "signature_name": "tokens"},
        {"outputs": {"label": ["negative"], "scores": [[0.7, 0.3]]}},
    ),
    # One output comes without its name.
    ({"instances": [-1, 0], "signature_name": "slow"}, {"predictions": [-1, 0]}),
    ({"inputs": [-1, 0], "signature_name": "slow"}, {"outputs": [-1, 0]}),
]


@pytest.mark.parametrize(("document", "answer"), PREDICT_ANSWERS)
def test_predict(ask, document, answer):
    assert ask("POST", PREDICT, document) == (200, answer)


@pytest.mark.parametrize("path", ["/v1/models/tiny/versions/3:predict", "/V1/Models/tiny:Predict"])
def test_predict_paths(ask, path):
    assert ask("POST", path, {"instances": ["ab"]}) == (200, {"predictions": [ROW]})


def test_predict_base64_leaves_only_where_the_name_says_so(ask):
    document = {"instances": ["añ"], "signature_name": "echo"}
    encoded = base64.b64encode("añ".encode()).decode()
    answer = {"predictions": [{"text": "añ", "text_bytes": {"b64": encoded}}]}
    assert ask("POST", PREDICT, document) == (200, answer)


@pytest.mark.parametrize(
    ("escaped", "text"),
    [("\\ud83d\\ude00", "😀"), ("\\\\ud83d", "\\ud83d"), ("\\\\\\ud83d\\ude00", "\\😀")],
)
def test_predict_takes_escapes(ask, escaped, text):
    body = f'{{"inputs": ["{escaped}"], "signature_name": "echo"}}'.encode()
    assert ask("POST", PREDICT, body)[1]["outputs"]["text"] == [text]


def test_bytes_that_are_not_utf8_come_in_base64(ask):
    document = {"instances": [{"b64": "//4="}], "signature_name": "echo"}
    answer = {"predictions": [{"text": "\udcff\udcfe", "text_bytes": {"b64": "//4="}}]}
    assert ask("POST", PREDICT, document) == (200, answer)


@pytest.mark.parametrize("path", ["/v1/models/tiny", "/v1/models/tiny/versions/3"])
def test_status(ask, path):
    status = {"error_code": "OK", "error_message": ""}
    version = {"version": "3", "state": "AVAILABLE", "status": status}
    assert ask("GET", path) == (200, {"model_version_status": [version]})


@pytest.mark.parametrize("path", ["/v1/models/tiny", "/v1/models/tiny/versions/3"])
def test_metadata(ask, path):
    status, answer = ask("GET", path + "/metadata")
    assert status == 200
    assert answer["model_spec"] == {"name": "tiny", "signature_name": "", "version": "3"}
    signatures = answer["metadata"]["signature_def"]["signature_def"]
    assert signatures["serving_default"]["inputs"]["text"] == {
        "dtype": "DT_STRING",
        "tensor_shape": {"dim": [{"size": "-1", "name": ""}], "unknown_rank": False},
        "name": "serving_default_text:0",
    }


BOTH = {"instances": ["a"], "inputs": ["a"]}
CONTRACT_ERRORS = [
    ("GET", "/v1/models/other", None, 404, "Could not find any versions of model other"),
    ("GET", "/v1/models/tiny/versions/2", None, 404, "Could not find version 2 of model tiny"),
    (
        "GET",
        "/v1/models/other/metadata",
        None,
        404,
        "Servable not found for request: Latest(other)",
    ),
    (
        "POST",
        "/v1/models/other:predict",
        {"instances": ["a"]},
        404,
        "Servable not found for request: Latest(other)",
    ),
    (
        "POST",
        "/v1/models/tiny/versions/2:predict",
        {"instances": ["a"]},
        404,
        "Servable not found for request: Specific(tiny, 2)",
    ),
    (
        "POST",
        "/v1/models/tiny/labels/old:predict",
        {"instances": ["a"]},
        400,
        "Unrecognized servable version label: old",
    ),
    (
        "POST",
        PREDICT,
        {"instances": ["a"], "signature_name": "nope"},
        400,
        'Serving signature name: "nope" not found in signature def',
    ),
    ("POST", PREDICT, b"", 400, "JSON Parse error: The document is empty"),
    ("POST", PREDICT, b'{"a": ]', 400, "JSON Parse error: Expecting value at offset: 6"),
    (
        "POST",
        PREDICT,
        '{"ñ": ]'.encode(),
        400,
        "JSON Parse error: Expecting value at offset: 7",
    ),
    ("POST", PREDICT, b"[1]", 400, "JSON Value: [\n    1\n] Is not object"),
    ("POST", PREDICT, {}, 400, "Missing 'inputs' or 'instances' key"),
    (
        "POST",
        PREDICT,
        BOTH,
        400,
        (
            f"JSON Value: {json.dumps(BOTH, indent=4)} Not formatted correctly expecting only one "
            "of 'inputs' or 'instances' keys to exist"
        ),
    ),
    (
        "GET",
        f"/v1/models/tiny/versions/{2**63 - 1}",
        None,
        404,
        f"Could not find version {2**63 - 1} of model tiny",
    ),
    (
        "GET",
        f"/v1/models/tiny/versions/{2**63}",
        None,
        400,
        f"Malformed request: GET /v1/models/tiny/versions/{2**63}",
    ),
    ("POST", "/v1/models/tiny", {}, 400, "Malformed request: POST /v1/models/tiny"),
    ("POST", "/v1/models/:predict", {}, 400, "Malformed request: POST /v1/models/:predict"),
    ("GET", "/v1/models", None, 400, "Malformed request: GET /v1/models"),
    ("GET", PREDICT, None, 400, f"Malformed request: GET {PREDICT}"),
    (
        "GET",
        "/v1/models/tiny/versions/99999999999999999999?x=1",
        None,
        400,
        "Malformed request: GET /v1/models/tiny/versions/99999999999999999999",
    ),
]


@pytest.mark.parametrize(("method", "path", "document", "status", "message"), CONTRACT_ERRORS)
def test_errors(ask, method, path, document, status, message):
    assert ask(method, path, document) == (status, {"error": message})


DOCUMENT_ERRORS = [
    ({"instances": []}, "Expected 'instances' to be a list of at least one value; received []"),
    ({"instances": "a"}, "Expected 'instances' to be a list of at least one value; received \"a\""),
    ({"instances": [1]}, "Input text: JSON Value: 1 is not of expected type: string"),
    ({"instances": [None]}, "Input text: JSON Value: null is not of expected type: string"),
    ({"instances": [{"b64": "?"}]}, "Input text: "),
    ({"instances": [{"b64": 1}]}, "Input text: "),
    ({"instances": ["\ud800"]}, "JSON Parse error: The surrogate pair in string is invalid. at "),
    ({"instances": [{"txt": "a"}]}, "Expected all 'instances' to be objects with the keys {text};"),
    ({"instances": ["a", {"text": "a"}]}, "Expected all 'instances' to be objects with the keys"),
    ({"instances": ["a", ["b"]]}, 'Input text: JSON Value: [\n    "b"\n] is not of expected type:'),
    (
        {"instances": [["a"], ["b", "c"]]},
        'Input text: JSON Value: [\n    "a"\n] is not of expected',
    ),
    ({"inputs": {"txt": ["a"]}}, "Expected 'inputs' to be an object with the keys {text};"),
    ({"instances": [2**31], "signature_name": "slow"}, "Input rounds: JSON Value: 2147483648 is"),
    ({"instances": [True], "signature_name": "slow"}, "Input rounds: JSON Value: true is not of"),
    ({"instances": [1.0], "signature_name": "slow"}, "Input rounds: JSON Value: 1.0 is not of"),
    ({"instances": [[1, 2]], "signature_name": "tokens"}, "Expected all 'instances' to be objects"),
    ({"inputs": [[1, 2]], "signature_name": "tokens"}, "Expected 'inputs' to be an object with"),
    ({"inputs": "ab", "signature_name": 1}, "'signature_name' is not a string but 1"),
    (b'{"inputs": ' + b"[" * 100 + b"]" * 100 + b"}", "Input text: JSON Value: ["),
    (b'{"inputs": ' + b"[" * 10**5 + b"]" * 10**5 + b"}", "JSON Parse error: lists or objects"),
    (b'{"inputs": ' + b"1" * 10**5 + b"}", "JSON Parse error: Exceeds the limit"),
]

LARGE = "JSON Value: [\n    [\n        [\n            [\n"
NOT_UTF8 = "JSON Parse error: Expected UTF-8"
DOCUMENT_ERRORS += [
    # In another encoding, a text would get an answer as if it were read.
    (
        '{"inputs": "Kündigung"}'.encode("cp1252"),
        f"{NOT_UTF8}, received the byte 0xfc at offset: 13",
    ),
    (b'{"inputs": {"\xff": ["a"]}}', NOT_UTF8),
    (b'{"inputs": "a", "signature_name": "\xff"}', NOT_UTF8),
    ('{"inputs": "a"}'.encode("utf-16"), f"{NOT_UTF8}, received the byte 0xff at offset: 0"),
    (b'{"inputs": "a", "signature_name": "\\udcff"}', "JSON Parse error: The surrogate pair in"),
    (b'{"inputs": {"\\ud800": "a"}}', "JSON Parse error: The surrogate pair in"),
    (b'{"inputs": "\\ud83d \\ude00"}', "JSON Parse error: The surrogate pair in"),
    # Numbers of hundreds of digits.
    ({"instances": [10**400], "signature_name": "slow"}, "Input rounds: JSON Value: 1000000"),
    ({"instances": [-(10**400)], "signature_name": "slow"}, "Input rounds: JSON Value: -100000"),
    ({"instances": [10**400]}, "Input text: JSON Value: 100000"),
    ({"inputs": "a", "signature_name": [10**400]}, "'signature_name' is not a string but ["),
    # More dimensions than any tensor may have.
    (b'{"inputs": ' + b"[" * 300 + b'"a"' + b"]" * 300 + b"}", "Input text: JSON Value: ["),
    # The message holds the beginning, and the rest is not formatted.
    (b"[" * 300 + b"]" * 300, LARGE),
    ({"instances": ["a"] * 257}, "Input text: expected at most 256 rows in a request, received"),
    (
        {"inputs": ["a"] * 257},
        "Input text: expected at most 256 rows in a request, received 257 (--max_request_rows)",
    ),
]


@pytest.mark.parametrize(("document", "message"), DOCUMENT_ERRORS)
def test_documents_that_do_not_fit_the_signature(ask, document, message):
    status, answer = ask("POST", PREDICT, document)
    assert status == 400
    assert answer["error"].startswith(message)


@pytest.mark.parametrize("shape", [(), (3,)])
def test_rows_need_outputs_of_one_batch_size(shape):
    outputs = {"label": np.zeros(2), "scores": np.zeros(shape)}
    with pytest.raises(ServingError, match="Expected outputs of one batch size"):
        write_outputs({"instances": ["a", "b"]}, outputs)


ARRAYS = {
    "floats": np.random.default_rng(0).normal(size=(3, 5, 7)).astype(np.float32),
    "numbers": np.arange(6).reshape(3, 2),
    "text": np.array([[b"a", b"\xff"], [b"", b'"'], [b"\xc3\xa9", b"\n"]], object),
    "nothing": np.zeros((3, 0), np.int32),
}


@pytest.mark.parametrize("piece", [1, 4, 40, 2**13])
def test_replies_that_are_written_in_pieces(monkeypatch, piece):
    monkeypatch.setattr("serving.server.rest_service._PIECE", piece)
    lists = {
        "floats": [[[float(str(x)) for x in row] for row in matrix] for matrix in ARRAYS["floats"]],
        "numbers": ARRAYS["numbers"].tolist(),
        "text": [["a", "\udcff"], ["", '"'], ["é", "\n"]],
        "nothing": [[], [], []],
    }
    rows = [dict(zip(lists, row)) for row in zip(*lists.values())]
    assert json.loads(write_outputs({"inputs": 0}, ARRAYS)) == {"outputs": lists}
    assert json.loads(write_outputs({"instances": 0}, ARRAYS)) == {"predictions": rows}
    for name, array in ARRAYS.items():
        assert json.loads(write_outputs({"inputs": 0}, {name: array})) == {"outputs": lists[name]}
        one = {name: array[1]}
        assert json.loads(write_outputs({"instances": 0}, one)) == {"predictions": lists[name][1]}
    scalar = {"x": np.array(0.1, np.float32)}
    assert write_outputs({"inputs": 0}, scalar) == '{"outputs": 0.1}'
    assert write_outputs({"inputs": 0}, {}) == '{"outputs": {}}'


def test_an_answer_that_is_too_large(ask):
    """Before a reply is made of it, which takes memory and time."""
    document = {"inputs": ["a" * 600_000], "signature_name": "echo"}
    status, answer = ask("POST", PREDICT, document)
    assert status == 429
    assert answer["error"].startswith("Expected outputs of at most 1048576 bytes (--max_request_b")


def test_a_reply_that_takes_too_long_is_given_up():
    outputs = {"x": np.zeros([4, 4])}
    for document in {"inputs": 0}, {"instances": 0}:
        with pytest.raises(ServingError, match="Timed out while the reply was written"):
            write_outputs(document, outputs, Budget(seconds=-1))


CLASSIFY_ANSWERS = [
    ({"examples": [{"text": "abc"}]}, [[["negative", 0.7], ["positive", 0.3]]]),
    ({"examples": [{"text": ["abc"]}]}, [[["negative", 0.7], ["positive", 0.3]]]),
    ({"examples": [{"text": {"b64": "YWJj"}}]}, [[["negative", 0.7], ["positive", 0.3]]]),
    (
        {"examples": [{}, {"text": "a"}], "context": {"text": "abc"}},
        [[["negative", 0.7], ["positive", 0.3]], [["negative", 0.9], ["positive", 0.1]]],
    ),
]


@pytest.mark.parametrize(("document", "results"), CLASSIFY_ANSWERS)
def test_classify(ask, document, results):
    document = {"signature_name": "classify", **document}
    assert ask("POST", "/v1/models/tiny:classify", document) == (200, {"results": results})


def test_regress(ask):
    document = {"signature_name": "regress", "examples": [{"text": "abc"}, {"text": ""}]}
    path = "/v1/models/tiny/versions/3:regress"
    assert ask("POST", path, document) == (200, {"results": [0.3, 0.0]})


EXAMPLE_ERRORS = [
    ({}, "Expected 'examples' to be a list of at least one object; received null"),
    ({"examples": []}, "Expected 'examples' to be a list of at least one object; received []"),
    ({"examples": ["a"]}, 'Expected an example to be an object; received "a"'),
    (
        {"examples": [{"text": None}]},
        "Input text: JSON Value: null is not of expected type: string",
    ),
    ({"examples": [{"text": ["a", 1]}]}, "Input text: JSON Value: 1 is not of expected type: "),
    ({"examples": [{"text": [["a"]]}]}, 'Input text: JSON Value: [\n    "a"\n] is not of '),
    ({"examples": [{"text": 2**63}]}, "Input text: JSON Value: 9223372036854775808 is not of"),
    ({"examples": [{}], "context": 1}, "Expected an example to be an object; received 1"),
    ({"examples": [{}]}, "Name: <unknown>, Feature: text (data type: string) is required"),
    (
        {"examples": [{"text": 1.5}]},
        "Name: <unknown>, Key: text, Index: 0.  Data types don't match",
    ),
    ({"examples": [{"text": 1}]}, "Name: <unknown>, Key: text, Index: 0.  Data types don't match"),
    (b'{"signature_name": "%s", "examples": [{"\xff": "a"}]}', NOT_UTF8),
    ({"examples": [{"text": [0.5, 10**400]}]}, "Input text: JSON Value: 1000000000000000000000"),
    ({"examples": [{}] * 257}, "Input: expected at most 256 rows in a request, received 257"),
    (
        {"examples": [{}] * 200, "context": {"text": "x" * 9000}},
        "Input: expected at most 1048576 bytes in a request once it is expanded, received 18",
    ),
    ({"examples": [{"text": "a"}], "signature_name": "no"}, "No signature was found with the name"),
    ({"examples": [{"text": "a"}], "signature_name": 1}, "'signature_name' is not a string but 1"),
]


@pytest.mark.parametrize("verb", ["classify", "regress"])
@pytest.mark.parametrize(("document", "message"), EXAMPLE_ERRORS)
def test_example_errors(ask, verb, document, message):
    if isinstance(document, bytes):
        document = document.replace(b"%s", verb.encode())
    else:
        document = {"signature_name": verb, **document}
    status, answer = ask("POST", f"/v1/models/tiny:{verb}", document)
    assert status == 400
    assert answer["error"].startswith(message)


def test_unsupported_http_methods(ask):
    assert ask("PUT", PREDICT, {}) == (501, {"error": "Unsupported method ('PUT')"})


def test_one_connection_takes_many_requests(client):
    connection = http.client.HTTPConnection(client.rest_url.removeprefix("http://"), timeout=30)
    for body, status in [(b'{"instances": ["ab"]}', 200), (b"[", 400), (b'{"inputs": ["a"]}', 200)]:
        connection.request("POST", PREDICT, body)
        opened = connection.sock
        response = connection.getresponse()
        assert response.status == status
        assert response.read()
        assert connection.sock is opened is not None
        connection.request("GET", "/v1/models/tiny")
        response = connection.getresponse()
        assert (response.status, response.version) == (200, 11)
        response.read()
    connection.close()


@pytest.mark.parametrize(
    ("headers", "message"),
    [
        ("Transfer-Encoding: chunked", "Expected a body with a Content-Length, and not in chunks"),
        ("Content-Encoding: gzip", "Expected a body as it is, without a Content-Encoding"),
        ("Content-Length: -1", "Malformed HTTP: bad Content-Length"),
        (f"Content-Length: {2**20 + 1}", f"Expected a body of at most {2**20} bytes, not "),
    ],
)
def test_bodies_of_unknown_or_absurd_length(client, headers, message):
    host, port = client.rest_url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall(
            f"POST {PREDICT} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n\r\n".encode()
        )
        answer = connection.makefile("rb").read()
    assert answer.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert f'{{"error": "{message}'.encode() in answer
