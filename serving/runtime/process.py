"""Runs requests on a model in a process without Python TensorFlow; `gpt1 check` starts it.

It reads a JSON object from the standard input: the `runtime`'s folder, the model's `path`, and
`requests`, each with `feeds` (serialized TensorProtos in base64 by tensor name) and `fetches`. It
writes a JSON object to the last line of the standard output: the runtime's `version` and `ops` (an
OpList in base64), and `replies`, each with `values` (lists, with bytes in base64) or an `error`. If
the model cannot be loaded, there is an `error` instead of `replies`. Before each request, it writes
the line `REQUEST`; with `ONEDNN_VERBOSE=1`, lines that say what oneDNN computes follow.
"""

import base64
import json
import os
import sys
from typing import Any

from serving.runtime.c_api import Runtime, StatusError
from serving.runtime.session import Session

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
        session = Session(runtime, job["path"])
    except StatusError as error:
        reply["error"] = error.message
    else:
        reply["replies"] = [_reply(session, **request) for request in job["requests"]]
    json.dump(reply, sys.stdout)


def _reply(session: Session, feeds: dict[str, str], fetches: list[str]) -> dict[str, Any]:
    """Returns the reply to a request."""
    print(REQUEST, flush=True)
    try:
        arrays = session.run({k: base64.b64decode(v) for k, v in feeds.items()}, fetches)
    except StatusError as error:
        return {"error": error.message}
    return {"values": [_plain(array.tolist()) for array in arrays]}


def _plain(value: Any) -> Any:
    """Returns nested lists that JSON can hold."""
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


if __name__ == "__main__":
    main()
