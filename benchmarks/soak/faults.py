"""Faults in a model's folder: versions swapped, copied slowly, broken or deleted; a full disk."""

import collections
import os
import pathlib
import random
import resource
import shutil
import threading
import time

import grpc
from tensorflow_serving.apis.get_model_status_pb2 import GetModelStatusRequest, ModelVersionStatus
from tensorflow_serving.apis.model_service_pb2_grpc import ModelServiceStub

_GRAPH = "saved_model.pb"
_DATA = "variables/variables.data-00000-of-00001"
_KEPT = 2  # good versions on disk
_PATIENCE = 300.0  # seconds that the busy server may take to see a change


class Faults:
    """Causes faults in a model's folder, one after another.

    Versions are copies of the two exports, in turn.

    Args:
        exports: folders of two versions.
        base: the model's folder.
        right: `Answers`, which learn of which export each version is a copy.

    Attributes:
        counts: how often each fault was caused.
        failures: list of str: what the server did not do in time.
    """

    def __init__(self, exports, base, port, right):
        self._exports = [pathlib.Path(each) for each in exports]
        self._base = pathlib.Path(base)
        self._status = ModelServiceStub(grpc.insecure_channel(f"127.0.0.1:{port}"))
        self._right = right
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
            "copied slowly": self._copy_slowly,
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
                    self._clear()
                self.counts[name] += 1

    def stop(self):
        """Ends `run` after the present fault."""
        self._stopping.set()

    def swap(self):
        """Adds a whole new version, which takes over."""
        number, beside = self._copy()
        self._right.exports[number] = number % 2
        beside.rename(self._base / str(number))
        self._expect(number, "AVAILABLE")
        self._keep(number)

    def _copy_slowly(self):
        """Copies a version slowly: the graph first, variables last and in parts."""
        number = self._next()
        source, target = self._export(number), self._base / str(number)
        files = [file.relative_to(source) for file in source.rglob("*") if file.is_file()]
        late = [file for file in files if file.parts[0] == "variables"]
        self._random.shuffle(late)
        self._right.exports[number] = number % 2
        for file in [*sorted(set(files) - set(late), key=lambda file: str(file) != _GRAPH), *late]:
            (target / file).parent.mkdir(parents=True, exist_ok=True)
            content = (source / file).read_bytes()
            size = len(content) // 4 + 1 if file in late else len(content) + 1
            with (target / file).open("wb", buffering=0) as output:
                for begin in range(0, len(content), size):
                    output.write(content[begin : begin + size])
                    time.sleep(0.7 if file in late else 0)
        self._expect(number, "AVAILABLE")
        self._keep(number)

    def _break(self):
        """Adds a version with half a file, which is later mended or deleted."""
        number, beside = self._copy()
        file = self._random.choice((_GRAPH, _DATA))
        os.truncate(beside / file, (beside / file).stat().st_size // 2)
        beside.rename(self._base / str(number))
        self._expect(number, "END")
        self._mend_or_delete(number)

    def _break_served(self):
        """Cuts the files of the served version in half; later another version takes over."""
        for file in (_GRAPH, _DATA):
            path = self._base / str(self._good[-1]) / file
            os.truncate(path, path.stat().st_size // 2)
        time.sleep(3.0)
        broken = self._good.pop()
        self.swap()
        shutil.rmtree(self._base / str(broken))

    def _delete(self):
        """Deletes the served version; the one before it takes over."""
        if len(self._good) < _KEPT:
            self.swap()
        deleted = self._good.pop()
        shutil.rmtree(self._base / str(deleted))
        self._expect(self._good[-1], "AVAILABLE")
        self._expect(deleted, "END")

    def _fill_disk(self):
        """Copies a version without room for all of it; it is later completed or deleted."""
        number = self._next()
        target = self._base / str(number)
        half = (self._export(number) / _DATA).stat().st_size // 2
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (half, limits[1]))
        try:
            shutil.copytree(self._export(number), target)
            raise AssertionError("the copy fitted")
        except OSError:
            self._expect(number, "END")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        self._mend_or_delete(number)

    def _mend_or_delete(self, number):
        if self._random.random() < 0.5:
            shutil.rmtree(self._base / str(number))
            return
        self._right.exports[number] = number % 2
        shutil.copytree(self._export(number), self._base / str(number), dirs_exist_ok=True)
        self._expect(number, "AVAILABLE")
        self._keep(number)

    def _next(self):
        self._last += 1
        return self._last

    def _export(self, number):
        return self._exports[number % 2]

    def _copy(self):
        """Copies an export beside the versions; returns its number and its folder."""
        number = self._next()
        beside = self._base / f"{number}.new"
        shutil.copytree(self._export(number), beside)
        return number, beside

    def _keep(self, number):
        """Notes a good version, and deletes the oldest if there are more than `_KEPT`."""
        self._good.append(number)
        while len(self._good) > _KEPT:
            shutil.rmtree(self._base / str(self._good.pop(0)))

    def _clear(self):
        """Deletes what a failed fault left, so that the next one can run."""
        for child in self._base.iterdir():
            if child.name not in map(str, self._good):
                shutil.rmtree(child) if child.is_dir() else child.unlink()

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
