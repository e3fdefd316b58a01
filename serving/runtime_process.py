"""Runs requests on a model in a process without Python TensorFlow; `gpt1 check` starts it.

It reads a JSON object from the standard input: the `runtime`'s folder, the model's `path`, and
`requests`, each with `feeds` (serialized TensorProtos in base64 by tensor name) and `fetches`. It
writes a JSON object to the last line of the standard output: the runtime's `version` and `ops` (an
OpList in base64), and `replies`, each with `values` (lists, with bytes in base64) or an `error`. If
the model cannot be loaded, there is an `error` instead of `replies`. Before each request, it writes
the line `REQUEST`; with `ONEDNN_VERBOSE=1`, lines that say what oneDNN computes follow. With a
`config`, a ConfigProto in base64, and `measured`, pairs of a number of callers and of seconds, it
also writes `rates`, the answers a second to these callers; each asks one of the requests.
"""

import base64
import json
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from serving.runtime import Runtime, Session, StatusError

REQUEST = "--- a request ---"


def main() -> None:
    """Answers the standard input on the standard output."""
    os.dup2(sys.stderr.fileno(), 2)  # undoes `silence_imports`, to show why the runtime dies
    job = json.load(sys.stdin)
    runtime = Runtime(job["runtime"])
    runtime.disable_xla()
    reply: dict[str, Any] = {
        "version": runtime.Version().decode(),
        "ops": base64.b64encode(runtime.op_list()).decode(),
    }
    try:
        config = base64.b64decode(job.get("config", ""))
        session = Session(runtime, job["path"], config=config)
    except StatusError as error:
        reply["error"] = error.message
    else:
        reply["replies"] = [_reply(session, **request) for request in job["requests"]]
        reply["rates"] = [
            _rate(session, job["requests"], *each) for each in job.get("measured", [])
        ]
    json.dump(reply, sys.stdout)


def _reply(session: Session, feeds: dict[str, str], fetches: list[str]) -> dict[str, Any]:
    """Returns the reply to a request."""
    print(REQUEST, flush=True)
    try:
        arrays = session.run({k: base64.b64decode(v) for k, v in feeds.items()}, fetches)
    except StatusError as error:
        return {"error": error.message}
    return {"values": [_plain(array.tolist()) for array in arrays]}


def _rate(session: Session, requests: list[dict[str, Any]], callers: int, seconds: float) -> float:
    """Returns how many answers a second some callers get, each to one of the requests."""
    begun = time.perf_counter()

    def call(request: dict[str, Any]) -> int:
        feeds, count = {k: base64.b64decode(v) for k, v in request["feeds"].items()}, 0
        while time.perf_counter() - begun < seconds:
            session.run(feeds, request["fetches"])
            count += 1
        return count

    with ThreadPoolExecutor(callers) as pool:
        return sum(pool.map(call, requests[:callers])) / (time.perf_counter() - begun)


def _plain(value: Any) -> Any:
    """Returns nested lists that JSON can hold."""
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


if __name__ == "__main__":
    main()
