"""Servers on this machine: an export under `serving.server`, a peer behind FastAPI."""

import contextlib
import socket
import subprocess
import sys
import time
import urllib.request

import psutil

from benchmarks.harness.worker import Worker


@contextlib.contextmanager
def serve_export(path, *flags, log=None):
    """Serves the export at a base path in another process, which logs to a file.

    Yields:
        `(pid, port, rest_port)`.
    """
    rest_port = _free_port()
    command = [sys.executable, "-m", "serving.server", "--model_name=model", "--port=0"]
    command += [f"--model_base_path={path}", f"--rest_api_port={rest_port}", *flags]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        # The last of the lines that say where it serves: "  gRPC: localhost:PORT".
        lines = iter(process.stdout.readline, "")
        ready = next((line for line in lines if "gRPC: " in line), None)
        if ready is None:
            raise SystemExit(f"The server of {path} did not start.")
        yield process.pid, int(ready.rpartition(":")[2]), rest_port
    finally:
        process.kill()
        process.communicate()


@contextlib.contextmanager
def serve_peer(peer, **setting):
    """Serves a classifier of a peer; yields `(pid, port)`."""
    port = _free_port()
    with Worker("peers.fastapi_app:serve", peer=peer, port=port, **setting) as worker:
        while not _answers(port):
            if not worker.is_running():
                worker.summary()  # raises an error with what it printed
            time.sleep(0.2)
        yield worker.pid, port


def megabytes(pid):
    """Returns the resident memory of a process, in MB."""
    return psutil.Process(pid).memory_info().rss / 2**20


def _answers(port):
    with contextlib.suppress(OSError):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5).close()
        return True
    return False


def _free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]
