"""Runs of an export in TensorFlow's C++ runtime, in another process and from another folder."""

import base64
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from serving.export.check.check_requests import Request
from serving.runtime.process import REQUEST

_TOLERANCE = 1e-5
_TIMEOUT_SECONDS = 600
# Products of attention have four axes, abcd.
_PRODUCT = re.compile(r",exec,cpu,(inner_product|matmul),.*\bsrc:\w+:\w*:blocked:(ab|ba):")


def run_in(folder: str | os.PathLike[str], path: Path, requests: Sequence[Request]) -> Any:
    """Runs requests in a process without Python TensorFlow, on a copy of the export.

    Args:
        folder: the folder of an installed tensorflow package, whose libraries are used.

    Returns:
        What `serving.runtime.process` writes, a dict; and `products`, for each request the lines of
        oneDNN's log about products of two matrices. There are none where TensorFlow does not use
        oneDNN.

    Raises:
        ValueError: the process failed.
    """
    described = [
        {
            "feeds": {
                name: base64.b64encode(proto).decode() for name, proto in request.feeds.items()
            },
            "fetches": request.fetches,
        }
        for request in requests
    ]
    with tempfile.TemporaryDirectory() as elsewhere:
        moved = Path(elsewhere) / "moved"
        shutil.copytree(path, moved, copy_function=_link)
        task = {"runtime": str(Path(folder).absolute()), "path": str(moved), "requests": described}
        process = subprocess.run(
            [sys.executable, "-m", "serving.runtime.process"],
            input=json.dumps(task),
            cwd=Path(__file__).parents[3],
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_SECONDS,
            env={**os.environ, "ONEDNN_VERBOSE": "1"},
        )
    if process.returncode:
        lines = process.stderr.strip().splitlines() or [f"exit status {process.returncode}"]
        raise ValueError(f"the C++ runtime in {folder} failed: {lines[-1]}")
    *log, answer = process.stdout.splitlines()
    return {**json.loads(answer), "products": products_of(log)}


def failures(
    requests: Sequence[Request], found: Mapping[str, Any], first: Mapping[str, Any]
) -> Iterator[str]:
    """Yields the first problem of each signature in one runtime.

    Args:
        found: what `run_in` returned for this runtime.
        first: what it returned for the first one, which the others must agree with.
    """
    if "error" in found:
        yield f"cannot load it: {found['error']}"
        return
    seen = set()
    for index, request in enumerate(requests):
        reply = found["replies"][index]
        if "error" in reply:
            reason = reply["error"].splitlines()[0]
            problem = f"signature {request.signature}, a request {request.origin}: {reason}"
        elif not _same(reply, first.get("replies", found["replies"])[index]):
            problem = f"signature {request.signature}: not the outputs of the first TensorFlow"
        elif names := _not_finite(request, reply):
            problem = f"signature {request.signature}: NaN or infinite numbers in {names}"
        else:
            continue
        if request.signature not in seen:
            yield problem
        seen.add(request.signature)


def unfused(requests: Sequence[Request], found: Mapping[str, Any]) -> Iterator[str]:
    """Yields a note for each signature of whose products none includes its bias.

    An export's blocks have biases. TensorFlow adds them in further passes over the memory if it
    does not know on which device the products are, as in functions that merge requests.

    Args:
        found: what `run_in` returned.
    """
    products: dict[str, list[str]] = {}
    for request, lines in zip(requests, found["products"]):
        products.setdefault(request.signature, []).extend(lines)
    for signature, lines in products.items():
        if lines and not any(" bia" in line for line in lines):
            yield f"signature {signature}: biases are not fused into its products, which is slower"


def products_of(log: Sequence[str]) -> list[list[str]]:
    """Returns the lines about products of two matrices in oneDNN's log, by request."""
    by_request: list[list[str]] = []
    for line in log:
        if line == REQUEST:
            by_request.append([])
        elif by_request and _PRODUCT.search(line):
            by_request[-1].append(line)
    return by_request


def _link(source: str, target: str) -> None:
    """Links a file where the file system can, and otherwise copies it."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def _not_finite(request: Request, reply: Mapping[str, Any]) -> list[str]:
    """Returns the names of the outputs that hold NaN or infinite numbers."""
    values = [np.array(value) for value in reply["values"]]
    return [
        name
        for name, value in zip(request.fetches, values, strict=True)
        if value.dtype.kind == "f" and not np.isfinite(value).all()
    ]


def _same(reply: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Returns whether two replies are the same, up to the last digits of floats."""
    pairs = [(np.array(a), np.array(b)) for a, b in zip(reply["values"], other.get("values", []))]
    return all(
        np.allclose(a, b, rtol=0, atol=_TOLERANCE, equal_nan=True)
        if a.dtype.kind == b.dtype.kind == "f" and a.shape == b.shape
        else np.array_equal(a, b)
        for a, b in pairs
    )
