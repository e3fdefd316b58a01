"""The settings of a server that are fastest for an export on this machine: `gpt1 check --tune`."""

import base64
import dataclasses
import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tensorflow.core.framework.tensor_pb2 import TensorProto
from tensorflow.core.protobuf.config_pb2 import ConfigProto

from serving.export.check import Request, run_in
from serving.export_names import DEFAULT_SIGNATURE

_SECONDS = 1.5  # of each measurement
_ENVIRONMENTS = (  # products by Eigen, by oneDNN, and by oneDNN with weights packed once
    {"TF_ENABLE_ONEDNN_OPTS": "0"},
    {"TF_ENABLE_ONEDNN_OPTS": "1", "TF_ONEDNN_ASSUME_FROZEN_WEIGHTS": "0"},
    {"TF_ENABLE_ONEDNN_OPTS": "1", "TF_ONEDNN_ASSUME_FROZEN_WEIGHTS": "1"},
)
_INTRA_OP = "--tensorflow_intra_op_parallelism"  # the threads that share an op's work; 0: all


def tuned(folder: str | os.PathLike[str], path: Path, requests: Sequence[Request]) -> Iterator[str]:
    """Measures an export with each setting, in about a minute; yields the lines to print.

    The requests are the shortest and the longest of the warm-up for `serving_default`, from one
    caller and from as many as there are cores.

    Raises:
        ValueError: the export cannot be loaded, or does not answer; or it has no such request.
    """
    asked = [each for each in requests if each.signature == DEFAULT_SIGNATURE]
    if not asked:
        raise ValueError(f"there is no signature {DEFAULT_SIGNATURE} to measure")
    cores = os.cpu_count() or 1
    rates: dict[tuple[str, int], dict[str, float]] = {}
    for environment, intra_op in itertools.product(_ENVIRONMENTS, (0, 1)):
        settings = {**environment, _INTRA_OP: intra_op}
        setting = " ".join(f"{name}={value}" for name, value in settings.items())
        config = ConfigProto(
            intra_op_parallelism_threads=intra_op, inter_op_parallelism_threads=cores
        )
        for name, request in {"short": asked[0], "long": asked[-1]}.items():
            callers = sorted({1, cores})
            found = run_in(
                folder,
                path,
                [_varied(request, number) for number in range(cores)],
                environment,
                config=base64.b64encode(config.SerializeToString()).decode(),
                measured=[(each, _SECONDS) for each in callers],
            )
            replies = (found, *found.get("replies", ()))
            errors = [each["error"] for each in replies if "error" in each]
            if errors:
                raise ValueError(errors[0])
            for each, rate in zip(callers, found["rates"]):
                rates.setdefault((name, each), {})[setting] = rate
    for (name, count), by_setting in rates.items():
        yield f"{name} texts, {count} at once, requests a second:"
        best = max(by_setting, key=by_setting.__getitem__)
        for setting, rate in by_setting.items():
            yield f"  {rate:7.1f}  {setting}{'  <- the fastest' if setting == best else ''}"


def _varied(request: Request, number: int) -> Request:
    """Returns a request whose texts no other number has, as exports compute equal texts once."""
    feeds: Mapping[str, bytes] = {
        name: _numbered(TensorProto.FromString(proto), number)
        for name, proto in request.feeds.items()
    }
    return dataclasses.replace(request, feeds=feeds)


def _numbered(proto: TensorProto, number: int) -> bytes:
    for index, value in enumerate(proto.string_val):
        proto.string_val[index] = b"%d %b" % (number, value)
    return proto.SerializeToString()
