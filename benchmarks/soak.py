"""A server at twice its capacity for half an hour, under faults of all kinds.

    python -m benchmarks.soak

Two different classifiers, fine-tuned from the preset gpt1_tiny_books, are the versions of one model
under `serving.server`, in a process of its own. Requests of all kinds arrive over gRPC and REST, at
twice the rate that the server can answer; some are malformed, oversized or abandoned half-way.
Meanwhile versions are swapped, broken and deleted, and a limit on the size of files stops copies as
a full disk does. Each answer is compared with that of the same version's model in Keras.

The program ends with status 1 if an answer was wrong, if a request ended in a way that is not
allowed, if a version did not reach the state that it should, or if threads, descriptors or memory
stay above their level at the start.
"""

import collections
import contextlib
import http.client
import json
import pathlib
import random
import shutil
import sys
import tempfile
import threading
import time

import grpc
import keras
import numpy as np
import psutil
import tensorflow as tf
from tensorflow_serving.apis.predict_pb2 import PredictRequest
from tensorflow_serving.apis.prediction_service_pb2_grpc import PredictionServiceStub

import gpt1_keras
from benchmarks.harness.program import Program, table
from benchmarks.harness.servers import arrive, measure, percentiles, serve_export
from benchmarks.harness.version_faults import Faults
from serving.export import export

_LABELS = ["negative", "positive"]
_TEXTS = [
    "a joy to watch",
    "a waste of time, and a long one",
    "the staff were kind and the rooms were clean. " * 12,
    "he closed the door behind him, and nobody ever saw him again. " * 8,
]
_MALFORMED = [
    b'{"instances": [',
    b'{"instances": [1]}',
    b'{"instances": ["\xff"]}',
    b'{"inputs": ' + b"[" * 5000 + b"]" * 5000 + b"}",
    b'{"examples": [{"text": 1e999}]}',
]
_PATH = "/v1/models/model"
_CLIENTS = 32
_PATIENCE = 10.0  # seconds after which a waiting client does not send its request any more
_TIMEOUT = 30.0  # seconds
_TOO_LONG = 17 * 2**20  # bytes
_MANY = 80  # more calls than the server runs and lets wait
_MOST_THREADS = 400  # more than the server starts for calls over gRPC
_SETTLED = 10.0  # seconds in which the server closes connections that clients have left
_MORE_MEMORY, _MORE_THREADS = 1.1, 16  # at the end: times, and more than, those at the start


def main():
    program = Program("soak", __doc__)
    program.add("--minutes", type=float, default=30, help="of load (default: %(default)s)")
    options = program.parse()
    with tempfile.TemporaryDirectory() as folder:
        exports, scores = _exports(folder)
        facts, tables, is_clean = _soak(folder, exports, scores, 60 * options.minutes)
    program.report(facts, *tables)
    return 0 if is_clean else 1


def _exports(folder):
    paths, scores = [], []
    for labels in (_LABELS, _LABELS[::-1]):
        keras.utils.set_random_seed(0)
        classifier = gpt1_keras.GPT1TextClassifier.from_preset(
            "gpt1_tiny_books", class_names=_LABELS
        )
        classifier.compile(optimizer=keras.optimizers.Adam(1e-4), loss="auto", run_eagerly=True)
        classifier.fit(_TEXTS, [labels[row % 2] for row in range(len(_TEXTS))], epochs=5, verbose=0)
        paths.append(pathlib.Path(export(classifier, f"{folder}/{labels[0]}", "model")))
        logits = classifier.predict(_TEXTS, verbose=0)
        scores.append(keras.ops.convert_to_numpy(keras.ops.softmax(logits)))
    if np.abs(scores[0] - scores[1]).max(axis=-1).min() < 0.01:
        raise SystemExit("The two versions hardly differ.")
    return paths, scores


def _soak(folder, exports, scores, seconds):
    base, log = pathlib.Path(folder, "model"), pathlib.Path(folder, "log")
    shutil.copytree(exports[1], base / "1")
    with log.open("w") as file, serve_export(base, log=file) as (pid, port, rest_port):
        faults = Faults(exports, base, port)
        requests = Requests(port, rest_port, Answers(scores, faults.copied))
        capacity = measure(lambda: requests.predict, len(_TEXTS), _CLIENTS, seconds=15.0).rate
        # After this, the server has what it allocates once: gRPC's threads, and their memory.
        requests.fall_silent(_MOST_THREADS)
        arrive(requests.send, 5 * capacity, 15.0)
        for _ in range(2):
            faults.swap()
        time.sleep(_SETTLED)
        requests.forget()
        server = psutil.Process(pid)
        samples, ended = [_sample(server)], threading.Event()

        def watch():
            while not ended.wait(5.0):
                samples.append(_sample(server))

        workers = [threading.Thread(target=work) for work in (faults.run, watch)]
        for worker in workers:
            worker.start()
        spent = arrive(requests.send, 2 * capacity, seconds)
        faults.stop()
        ended.set()
        for worker in workers:
            worker.join()
        time.sleep(_SETTLED)
        samples.append(_sample(server))
    tracebacks = log.read_text(errors="replace").count("Traceback")
    return _report(capacity, spent, requests, samples, faults, tracebacks)


def _sample(server):
    """Returns a process's memory in MB, and its numbers of threads and file descriptors."""
    return server.memory_info().rss / 2**20, server.num_threads(), server.num_fds()


class Answers:
    """The right answers of each version.

    Args:
        scores: for each export, float `[len(_TEXTS), len(_LABELS)]`.
        copied: dict from a version's number to the index of the export that it is a copy of.
    """

    def __init__(self, scores, copied):
        self._scores, self._copied = scores, copied

    def judge(self, version, rows, scores, labels):
        """Returns OK or WRONG; without a version, any of the exports may have answered."""
        scores = np.array(scores)
        exports = set(self._copied.values()) if version is None else {self._copied.get(version)}
        right = any(
            scores.shape == (len(rows), len(_LABELS))
            and np.allclose(scores, self._scores[each][rows], atol=1e-4)
            for each in exports - {None}
        )
        return "OK" if right and labels == [_LABELS[i] for i in scores.argmax(axis=-1)] else "WRONG"


class Requests:
    """Requests of all kinds, and how they ended.

    Attributes:
        kinds: by kind: what sends a request, how often it is drawn, and the outcomes that are
            allowed: OK, `left`, a code of gRPC or a status of HTTP.
        outcomes: by kind, a `Counter` of outcomes.
        latencies: by kind, the seconds of those that were answered.
        not_sent: how many had no free client in time.
    """

    def __init__(self, port, rest_port, answers):
        self._rest_port, self._answers = rest_port, answers
        self._channel = grpc.insecure_channel(f"127.0.0.1:{port}")
        self._prediction = PredictionServiceStub(self._channel)
        self._lock = threading.Lock()
        busy, rest_busy = {"OK", "RESOURCE_EXHAUSTED"}, {"OK", "429"}
        self.kinds = {
            "gRPC Predict": (self.predict, 60, busy),
            "REST predict": (self._rest_predict, 45, rest_busy),
            "REST status": (lambda _: self._exchange("GET", _PATH)[0], 4, {"OK"}),
            "gRPC, malformed": (self._malformed, 10, {"INVALID_ARGUMENT", "RESOURCE_EXHAUSTED"}),
            "REST, malformed": (self._rest_malformed, 10, {"400", "429"}),
            "gRPC, too long": (self._too_long, 1, {"RESOURCE_EXHAUSTED"}),
            "gRPC, many cancelled": (self._cancel_many, 2, {"left"}),
            "gRPC, silent": (lambda _: self.fall_silent(_MANY), 1, {"left"}),
            "REST, abandoned in the body": (self._abandon, 6, {"left"}),
        }
        weights = [weight for _, weight, _ in self.kinds.values()]
        self._order = random.Random(0).choices([*self.kinds], weights, k=2000)
        self.forget()

    def forget(self):
        """Forgets how earlier requests ended."""
        self.outcomes = collections.defaultdict(collections.Counter)
        self.latencies = collections.defaultdict(list)
        self.not_sent = 0

    def send(self, number, due):
        """Sends a request, unless its client has given up, and notes how it ended."""
        if time.perf_counter() - due > _PATIENCE:
            with self._lock:
                self.not_sent += 1
            return
        kind = self._order[number % len(self._order)]
        try:
            outcome = self.kinds[kind][0](number)
        except grpc.RpcError as error:
            outcome = error.code().name
        except Exception as error:
            outcome = type(error).__name__
        with self._lock:
            self.outcomes[kind][outcome] += 1
            if outcome == "OK":
                self.latencies[kind].append(time.perf_counter() - due)

    def predict(self, number):
        rows = _rows(number)
        reply = self._prediction.Predict(_predict_request(rows), timeout=_TIMEOUT)
        labels = [label.decode() for label in tf.make_ndarray(reply.outputs["label"])]
        scores = tf.make_ndarray(reply.outputs["scores"])
        return self._answers.judge(reply.model_spec.version.value, rows, scores, labels)

    def _rest_predict(self, number):
        rows = _rows(number)
        body = json.dumps({"instances": [_TEXTS[row] for row in rows]})
        status, reply = self._exchange("POST", f"{_PATH}:predict", body)
        if status != "OK":
            return status
        predictions = json.loads(reply)["predictions"]
        labels = [each["label"] for each in predictions]
        return self._answers.judge(None, rows, [each["scores"] for each in predictions], labels)

    def _malformed(self, number):
        request = _predict_request([0])
        request.inputs["text"].tensor_content = b"a"  # strings have none
        request.inputs["text"].tensor_shape.dim[0].size = 2**40
        self._prediction.Predict(request, timeout=_TIMEOUT)
        return "OK"

    def _rest_malformed(self, number):
        return self._exchange("POST", f"{_PATH}:predict", random.choice(_MALFORMED))[0]

    def _too_long(self, number):
        request = _predict_request([0])
        request.inputs["text"].string_val[0] = b"a" * _TOO_LONG
        self._prediction.Predict(request, timeout=_TIMEOUT)
        return "OK"

    def _cancel_many(self, number):
        """More than may run and wait, without a deadline."""
        request = _predict_request(range(len(_TEXTS)))
        calls = [self._prediction.Predict.future(request) for _ in range(_MANY)]
        time.sleep(random.uniform(0.0, 0.2))
        for call in calls:
            call.cancel()
        return "left"

    def fall_silent(self, count):
        """Begins calls whose message never comes, and cancels them."""
        ended = threading.Event()

        def nothing():
            ended.wait(_TIMEOUT)
            yield from ()

        call = self._channel.stream_unary("/tensorflow.serving.PredictionService/Predict")
        calls = [call.future(nothing()) for _ in range(count)]
        time.sleep(2.0)
        for each in calls:
            each.cancel()
        ended.set()
        return "left"

    def _abandon(self, number):
        connection = http.client.HTTPConnection("127.0.0.1", self._rest_port, timeout=_TIMEOUT)
        with contextlib.closing(connection):
            connection.putrequest("POST", f"{_PATH}:predict")
            connection.putheader("Content-Length", "1000")
            connection.endheaders(b'{"instances": ["a')
            time.sleep(random.uniform(0.0, 2.0))
        return "left"

    def _exchange(self, method, path, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self._rest_port, timeout=_TIMEOUT)
        with contextlib.closing(connection):
            connection.request(method, path, body)
            response = connection.getresponse()
            content = response.read()
        return "OK" if response.status == 200 else str(response.status), content


def _rows(number):
    chosen = number // 7 % (len(_TEXTS) + 1)
    return [chosen] if chosen < len(_TEXTS) else list(range(len(_TEXTS)))


def _predict_request(rows):
    request = PredictRequest()
    request.model_spec.name = "model"
    request.inputs["text"].CopyFrom(tf.make_tensor_proto([_TEXTS[row] for row in rows]))
    return request


def _report(capacity, spent, requests, samples, faults, tracebacks):
    rows, sent, faulty = [], 0, 0
    for kind, (_, _, allowed) in requests.kinds.items():
        outcomes = requests.outcomes[kind]
        unexpected = sum(count for outcome, count in outcomes.items() if outcome not in allowed)
        sent, faulty = sent + outcomes.total(), faulty + unexpected
        ended = ", ".join(f"{name} {count:,}" for name, count in outcomes.most_common())
        times = percentiles(requests.latencies[kind], 50, 99)
        rows.append([kind, f"{outcomes.total():,}", f"{unexpected:,}", *times, ended])
    start, end = samples[0], samples[-1]
    most = [max(column) for column in zip(*samples, strict=True)]
    figures = zip(("memory, MB", "threads", "descriptors"), start, end, most, strict=True)
    is_back = (
        end[0] <= _MORE_MEMORY * start[0]
        and end[1] <= start[1] + _MORE_THREADS
        and end[2] <= start[2]
    )
    facts = (
        f"Capacity {capacity:.0f} requests/s. In {spent / 60:.1f} minutes {sent:,} were sent, "
        f"{sent / spent:.0f}/s, and {requests.not_sent:,} were not, as no client was free."
    )
    header = ["request", "sent", "not allowed", "p50, ms", "p99, ms", "how they ended"]
    levels = [[name, *(f"{value:.0f}" for value in values)] for name, *values in figures]
    versions = (
        f"Versions: {', '.join(f'{name} {count}' for name, count in faults.counts.items())}. "
        f"What did not become what it should: {'; '.join(faults.failures) or 'none'}. "
        f"Tracebacks in the log: {tracebacks}. Back to the start's level (memory within "
        f"{_MORE_MEMORY - 1:.0%}, threads within {_MORE_THREADS}): {'yes' if is_back else 'no'}."
    )
    tables = table(header, rows), table(["server", "start", "end", "most"], levels)
    is_clean = is_back and not (faulty or faults.failures or tracebacks)
    return facts, (*tables, versions), is_clean


if __name__ == "__main__":
    sys.exit(main())
