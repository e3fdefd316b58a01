"""Parses JSON documents of the REST interface, and shows parts of them in messages."""

import json
import re
from collections.abc import Mapping
from typing import Any

from serving.export_names import DEFAULT_SIGNATURE
from serving.server.errors import invalid_argument

BASE64_KEY = "b64"  # the key of an object that stands for bytes
_MAX_SHOWN_CHARS = 512
_ENCODER = json.JSONEncoder(indent=4, ensure_ascii=False)
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
# Text up to an escape that stands for half a character. The quantifiers are possessive, so that
# matching a long text needs no memory for going back.
_UP_TO_LONE_SURROGATE = re.compile(
    rb"(?:[^\\]++|\\[^u]|\\u(?![dD][89a-fA-F])"
    rb"|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})*+",
    re.DOTALL,
)


def parse_document(body: bytes) -> dict[str, Any]:
    """Returns the JSON object in a request's body.

    It has to be UTF-8, as RFC 8259 says. TensorFlow Serving takes other bytes as well, but then a
    text in another encoding gets an answer as if it were read.
    """
    if not body:
        raise invalid_argument("JSON Parse error: The document is empty")
    if _SURROGATE.search(body):
        found = _UP_TO_LONE_SURROGATE.match(body)
        if found and found.end() < len(body):
            raise invalid_argument(
                "JSON Parse error: The surrogate pair in string is invalid. at offset: "
                f"{found.end()}"
            )
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise invalid_argument(
            f"JSON Parse error: Expected UTF-8, received the byte 0x{body[error.start]:02x} at "
            f"offset: {error.start}"
        ) from error
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        offset = len(text[: error.pos].encode())
        raise invalid_argument(f"JSON Parse error: {error.msg} at offset: {offset}") from error
    except ValueError as error:  # a number of thousands of digits
        raise invalid_argument(f"JSON Parse error: {error}") from error
    except RecursionError as error:
        raise invalid_argument("JSON Parse error: lists or objects nested too deeply") from error
    if not isinstance(document, dict):
        raise invalid_argument(f"JSON Value: {shown(document)} Is not object")
    return document


def read_signature_name(document: Mapping[str, Any]) -> str:
    """Returns the name of the signature that a document asks for, or of the default one."""
    name = document.get("signature_name", "")
    if not isinstance(name, str):
        raise invalid_argument(f"'signature_name' is not a string but {shown(name)}")
    return name or DEFAULT_SIGNATURE


def shown(value: Any) -> str:
    """Returns a JSON value for a message, cut so that the rest of the message can be seen.

    The rest of the value is not even formatted: it may be a thousand times longer than the request.
    """
    pieces, length = [], 0
    for piece in _ENCODER.iterencode(value):
        pieces.append(piece[:_MAX_SHOWN_CHARS])
        length += len(piece)
        if length > _MAX_SHOWN_CHARS:
            return "".join(pieces)[:_MAX_SHOWN_CHARS] + "..."
    return "".join(pieces)
