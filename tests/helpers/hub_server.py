"""A server on loopback that speaks a part of the Hugging Face Hub's protocol.

It serves a repository's files by HEAD and GET, as `huggingface_hub` asks for them, and takes a
commit.
"""

import base64
import contextlib
import hashlib
import http.server
import json
import re
import threading
import urllib.parse

import huggingface_hub
import huggingface_hub.constants
import huggingface_hub.hf_api
import pytest

_COMMIT = "c0ffee" + "0" * 34
_LARGE = (".safetensors", ".h5", ".bin")  # the hub stores these by SHA-256, on another host


class Hub(http.server.ThreadingHTTPServer):
    """Repositories of files.

    Attributes:
        repositories: dict from `"org/name"` to a dict from path to bytes.
        damaged: dict from path to what is sent in place of its content; None cuts the download.
        requests: list of `(method, path)`.
    """

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.repositories, self.damaged, self.requests = {}, {}, []
        self.url = f"http://127.0.0.1:{self.server_port}"

    def add_folder(self, name, folder):
        """Adds a repository with the files of a folder; returns its handle."""
        self.repositories[name] = {
            path.relative_to(folder).as_posix(): path.read_bytes()
            for path in folder.rglob("*")
            if path.is_file()
        }
        return f"hf://{name}"

    def asked_for(self):
        """Returns the names of the files that were downloaded."""
        paths = [path for method, path in self.requests if method == "GET"]
        return {path.split("/resolve/main/")[1] for path in paths if "/resolve/main/" in path}


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def do_HEAD(self):
        self._send_file()

    def do_GET(self):
        self._send_file()

    def _send_file(self):
        path = urllib.parse.unquote(urllib.parse.urlsplit(self.path).path)
        self.server.requests.append((self.command, path))
        match = re.fullmatch(r"/(cdn/)?([^/]+/[^/]+)/resolve/main/(.+)", path)
        files = self.server.repositories.get(match[2]) if match else None
        if files is None:
            return self._send(404, {"X-Error-Code": "RepoNotFound"})
        headers, name = {"X-Repo-Commit": _COMMIT}, match[3]
        if name not in files:
            return self._send(404, headers | {"X-Error-Code": "EntryNotFound"})
        content = files[name]
        if not name.endswith(_LARGE):
            etag = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
            return self._send(200, headers | {"ETag": f'"{etag}"'}, content, name)
        headers |= {
            "X-Linked-Etag": f'"{hashlib.sha256(content).hexdigest()}"',
            "X-Linked-Size": str(len(content)),
        }
        if match[1]:
            return self._send(200, headers, content, name)
        return self._send(302, headers | {"Location": f"{self.server.url}/cdn{path}"})

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        path = urllib.parse.urlsplit(self.path).path
        self.server.requests.append(("POST", path))
        answer = {}
        if path == "/api/repos/create":
            request = json.loads(body)
            name = "/".join(filter(None, (request.get("organization"), request["name"])))
            self.server.repositories.setdefault(name, {})
            answer = {"url": f"{self.server.url}/{name}", "id": name}
        elif match := re.fullmatch(r"/api/models/(.+)/preupload/main", path):
            names = [each["path"] for each in json.loads(body)["files"]]
            fixed = {"uploadMode": "regular", "shouldIgnore": False}
            answer = {"files": [{"path": name, **fixed} for name in names]}
        elif match := re.fullmatch(r"/api/models/(.+)/commit/main", path):
            for line in body.splitlines():
                entry = json.loads(line)
                if entry["key"] == "file":
                    content = base64.b64decode(entry["value"]["content"])
                    self.server.repositories[match[1]][entry["value"]["path"]] = content
            answer = {"commitUrl": f"{self.server.url}/{match[1]}", "commitOid": _COMMIT}
        self._send(200, {"Content-Type": "application/json"}, json.dumps(answer).encode())

    def _send(self, status, headers, content=b"", name=None):
        is_cut = False
        if name in self.server.damaged and self.command == "GET":
            damaged = self.server.damaged[name]
            is_cut = damaged is None
            content = content if is_cut else damaged
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command == "HEAD":
            return
        if not is_cut:
            self.wfile.write(content)
            return
        # Once half of it, and nothing from then on.
        self.wfile.write(content[: len(content) // 2] * ("Range" not in self.headers))
        self.wfile.flush()
        self.close_connection = True


@contextlib.contextmanager
def running_hub(cache):
    """Starts a hub, and makes `huggingface_hub` use it with a cache folder.

    `HF_ENDPOINT` and `HF_HUB_CACHE` do the same for a process that starts.
    """
    hub = Hub()
    thread = threading.Thread(target=hub.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    constants = huggingface_hub.constants
    template = hub.url + "/{repo_id}/resolve/{revision}/{filename}"
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(constants, "ENDPOINT", hub.url)
            patch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
            patch.setattr(constants, "HF_HUB_CACHE", str(cache))
            patch.setattr(huggingface_hub.hf_api.api, "endpoint", hub.url)
            patch.setattr("time.sleep", lambda seconds: None)  # between retries
            yield hub
    finally:
        hub.shutdown()
        thread.join()
        hub.server_close()
