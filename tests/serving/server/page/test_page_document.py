"""The page at `/`: its headers, its document, and the flag that turns it off. No browser."""

import base64
import hashlib
import html.parser
import http.client
import pathlib
import re

import pytest

import serving.server.page
from serving.server import Server
from serving.server.page import Page
from tests.serving.server.page import page_model

FOLDER = pathlib.Path(serving.server.page.__file__).parent


class Document(html.parser.HTMLParser):
    """What is in a document: tags, attributes, and the texts of some elements."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.texts, self.inside = [], [], {}, None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        self.inside = tag

    def handle_endtag(self, tag):
        self.inside = None

    def handle_data(self, data):
        if self.inside in ("script", "style", "option"):
            self.texts.setdefault(self.inside, []).append(data)


@pytest.fixture
def ask(client):
    """A function that asks the running server, and returns status, headers and body."""

    def send(method, path, rest_url=client.rest_url):
        connection = http.client.HTTPConnection(rest_url.removeprefix("http://"), timeout=30)
        connection.request(method, path)
        response = connection.getresponse()
        found = response.status, dict(response.getheaders()), response.read()
        connection.close()
        return found

    return send


@pytest.fixture(scope="module")
def document():
    return Document(Page().document(["b", page_model.NAME, "a"]).decode())


def test_the_page_lists_the_models(ask):
    status, headers, body = ask("GET", "/")
    assert status == 200
    assert headers["Content-Type"] == "text/html; charset=utf-8"
    assert Document(body.decode()).texts["option"] == ["tiny"]


def test_head_has_the_headers_of_get(ask):
    _, expected, body = ask("GET", "/")
    status, headers, nothing = ask("HEAD", "/")
    assert (status, nothing) == (200, b"")
    assert headers["Content-Length"] == str(len(body))
    assert headers | {"Date": ""} == expected | {"Date": ""}


def test_nothing_but_the_page_s_own_script_and_style_may_run(ask):
    _, headers, body = ask("GET", "/")
    policy = dict(
        each.strip().split(" ", 1) for each in headers["Content-Security-Policy"].split(";")
    )
    texts = Document(body.decode()).texts
    for name in ("script", "style"):
        [text] = texts[name]
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert policy.pop(f"{name}-src") == f"'sha256-{digest}'"
    assert policy == {
        "default-src": "'none'",
        "img-src": "data:",
        "connect-src": "'self'",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
        "require-trusted-types-for": "'script'",
        "trusted-types": "'none'",
    }
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "no-referrer"
    assert headers["Cache-Control"] == "no-store"


@pytest.mark.parametrize(
    ("method", "path", "status", "message"),
    [
        ("POST", "/", 400, "Malformed request: POST /"),
        ("PUT", "/", 501, "Unsupported method ('PUT')"),
        ("OPTIONS", "/", 501, "Unsupported method ('OPTIONS')"),
        ("GET", "/?a=1", 400, "Malformed request: GET /"),
        ("GET", "//", 400, "Malformed request: GET //"),
        ("GET", "/index.html", 400, "Malformed request: GET /index.html"),
        ("GET", "/v1", 400, "Malformed request: GET /v1"),
    ],
)
def test_all_else_is_answered_as_without_a_page(ask, method, path, status, message):
    found, headers, body = ask(method, path)
    assert (found, body.decode()) == (status, f'{{"error": "{message}"}}')
    assert headers["Content-Type"] == "application/json"
    assert "Content-Security-Policy" not in headers


def test_the_flag_turns_it_off(ask, model_base_path, free_port):
    port = free_port()
    options = {"port": 0, "rest_api_port": port, "rest_api_page": False}
    with Server("tiny", str(model_base_path), **options):
        url = f"http://127.0.0.1:{port}"
        status, headers, body = ask("GET", "/", url)
        assert (status, body) == (400, b'{"error": "Malformed request: GET /"}')
        assert headers["Content-Type"] == "application/json"
        assert ask("HEAD", "/", url)[0] == 501


def test_names_of_models_are_text(document):
    """In order, and without an element or an attribute of their own."""
    assert document.texts["option"] == [page_model.NAME, "a", "b"]
    values = [value for name, value in document.attributes if name == "value"]
    assert values == [page_model.NAME, "a", "b"]
    assert document.tags.count("script") == document.tags.count("style") == 1


def test_nothing_comes_from_elsewhere(document):
    """No attribute names an address, but one that holds its picture itself."""
    linked = {n: v for n, v in document.attributes if n in ("src", "href", "action", "srcset")}
    assert list(linked) == ["href"]
    assert linked["href"].startswith("data:image/svg+xml,")
    [style], [script] = document.texts["style"], document.texts["script"]
    assert not re.search(r"url\(|@import|https?:|//\w", style)
    assert not re.search(r"https?:|import\(|new Worker", script)
    assert not {name for name, _ in document.attributes if name.startswith("on")}
    assert "style" not in {name for name, _ in document.attributes}


def test_what_the_server_says_never_becomes_markup():
    scripts = "".join(path.read_text() for path in FOLDER.glob("*.js"))
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|createContextualFragment|document\.write|eval\(",
        scripts,
    )


def test_labels_belong_to_fields(document):
    ids = [value for name, value in document.attributes if name == "id"]
    assert len(set(ids)) == len(ids)
    for attribute in ("for", "aria-labelledby", "data-copies"):
        assert {value for name, value in document.attributes if name == attribute} <= set(ids)
    assert ("lang", "en") in document.attributes
