"""Faults in the folder of a served model: versions swapped, broken or deleted; a full disk."""

import collections
import contextlib
import os
import random
import resource
import shutil
import threading
import time

import grpc
from tensorflow_serving.apis.get_model_status_pb2 import GetModelStatusRequest, ModelVersionStatus
from tensorflow_serving.apis.model_service_pb2_grpc import ModelServiceStub

_PATIENCE = 300.0  # seconds that the busy server may take to see a change


class Faults:
    """Causes faults in a model's folder, one after another.

    Versions are copies of the two exports, in turn.

    Args:
        exports: folders of two versions.
        base: the model's folder.

    Attributes:
        copied: dict from a version's number to the index of the export that it is a copy of.
        counts: how often each fault was caused.
        failures: list of str: what the server did not do in time.
    """

    def __init__(self, exports, base, port):
        self._exports, self._base = exports, base
        self.copied = {1: 1}
        self._status = ModelServiceStub(grpc.insecure_channel(f"127.0.0.1:{port}"))
        self._good = [1]  # versions that can be served, oldest first
        self._last = 1
        self._random = random.Random(0)
        self._stopping = threading.Event()
        self.counts = collections.Counter()
        self.failures = []

    def run(self):
        """Causes all faults in random order, again and again, until `stop` is called."""
        faults = {
            "swapped": self.swap,
            "broken": self._break,
            "broken while served": self._break_served,
            "deleted": self._delete,
            "disk full": self._fill_disk,
        }
        while True:
            for name in self._random.sample(list(faults), len(faults)):
                if self._stopping.wait(self._random.uniform(1, 6)):
                    return
                try:
                    faults[name]()
                except Exception as error:
                    self.failures.append(f"{name}: {error}")
                self.counts[name] += 1

    def stop(self):
        """Ends `run` after the present fault."""
        self._stopping.set()

    def swap(self):
        """Adds a whole new version, which takes over."""
        number, source = self._next()
        beside = self._base / f"{number}.new"
        shutil.copytree(source, beside)
        beside.rename(self._base / str(number))
        self._becomes_good(number)

    def _break(self):
        """Adds a version with half a graph, which is completed later."""
        number, source = self._next()
        beside = self._base / f"{number}.new"
        shutil.copytree(source, beside)
        _halve(beside)
        beside.rename(self._base / str(number))
        self._expect(number, "END")
        self._complete(number, source)

    def _break_served(self):
        """Cuts the graph of the served version in half; then another version takes over."""
        broken = self._good.pop()
        _halve(self._base / str(broken))
        time.sleep(3.0)
        self.swap()
        shutil.rmtree(self._base / str(broken))

    def _delete(self):
        """Deletes the served version; the one before it takes over."""
        if len(self._good) < 2:
            self.swap()
        deleted = self._good.pop()
        shutil.rmtree(self._base / str(deleted))
        self._expect(self._good[-1], "AVAILABLE")
        self._expect(deleted, "END")

    def _fill_disk(self):
        """Copies a version without room for all of it; it is completed later."""
        number, source = self._next()
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        largest = max(file.stat().st_size for file in source.rglob("*"))
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest // 2, limits[1]))
        try:
            with contextlib.suppress(OSError):
                shutil.copytree(source, self._base / str(number))
            self._expect(number, "END")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        self._complete(number, source)

    def _complete(self, number, source):
        """Copies again what a version lacks; the server then loads it."""
        shutil.copytree(source, self._base / str(number), dirs_exist_ok=True)
        self._becomes_good(number)

    def _next(self):
        """Returns the next version's number, and the export that it will be a copy of."""
        self._last += 1
        self.copied[self._last] = self._last % 2
        return self._last, self._exports[self._last % 2]

    def _becomes_good(self, number):
        """Waits until a version is served, and deletes the oldest if there are more than two."""
        self._expect(number, "AVAILABLE")
        self._good.append(number)
        while len(self._good) > 2:
            shutil.rmtree(self._base / str(self._good.pop(0)))

    def _expect(self, number, state):
        """Waits until a version is in a state."""
        request = GetModelStatusRequest()
        request.model_spec.name = "model"
        end = time.monotonic() + _PATIENCE
        while time.monotonic() < end:
            status = self._status.GetModelStatus(request, timeout=_PATIENCE)
            states = {each.version: each.state for each in status.model_version_status}
            if states.get(number) == ModelVersionStatus.State.Value(state):
                return
            time.sleep(0.2)
        raise TimeoutError(f"version {number} is not {state} after {_PATIENCE:g} s")


def _halve(version):
    graph = version / "saved_model.pb"
    os.truncate(graph, graph.stat().st_size // 2)
