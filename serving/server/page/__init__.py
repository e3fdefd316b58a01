"""The page at `/`: a form to try the served models in a browser.

It is one document with its style and its script. Its Content-Security-Policy allows only these two,
by their hashes, and lets the page reach only this server.
"""

import base64
import hashlib
import html
from collections.abc import Iterable
from pathlib import Path
from string import Template

_FOLDER = Path(__file__).parent
_SCRIPTS = ("request.js", "fields.js", "answer.js", "main.js")  # one module, in this order
_POLICY = (
    "default-src 'none'; script-src '{script}'; style-src '{style}'; img-src data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)


class Page:
    """The page.

    Attributes:
        headers: the headers of replies with the page, besides those of all replies.
    """

    CONTENT_TYPE = "text/html; charset=utf-8"

    def __init__(self) -> None:
        script = "".join((_FOLDER / name).read_text("utf-8") for name in _SCRIPTS)
        style = (_FOLDER / "style.css").read_text("utf-8")
        self._parts = {"script": script, "style": style}
        self._template = Template((_FOLDER / "index.html").read_text("utf-8"))
        self.headers = {
            "Content-Security-Policy": _POLICY.format(
                script=source_expression(script), style=source_expression(style)
            ),
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cache-Control": "no-store",  # models come and go
        }

    def document(self, models: Iterable[str]) -> bytes:
        """Returns the document, in UTF-8, for models of these names."""
        escaped = [html.escape(name) for name in sorted(models)]
        options = "".join(f'<option value="{name}">{name}</option>' for name in escaped)
        return self._template.substitute(self._parts, models=options).encode()


def source_expression(text: str) -> str:
    """Returns the source expression of a script or style for a Content-Security-Policy."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
