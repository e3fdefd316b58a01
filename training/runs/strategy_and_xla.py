"""How a pre-training is computed: under which strategy, and in XLA or TensorFlow's graph."""

import contextlib
import json
import os
import re
import statistics
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import keras

from training.runs.pretrain_options import MULTI_WORKER, STRATEGIES

if TYPE_CHECKING:  # TensorFlow may be missing on another backend
    import tensorflow as tf

# How TensorFlow names a worker; with a device after it, the name is that of a place in a graph.
_WORKER = re.compile(r"/job:(\w+)/replica:\d+/task:(\d+)(?![\d/])")

_WARMUP_STEPS = 2  # of each mode: the first traces or compiles, the second fills caches
_MEASURED_STEPS = 3
_STEPS = 2 * (_WARMUP_STEPS + _MEASURED_STEPS)
# XLA takes 10 to 60 seconds to compile, and then saves a third of the time at best.
_SECONDS_THAT_PAY = 300.0


@contextlib.contextmanager
def naming_lost_workers() -> Iterator[None]:
    """Says which of TF_CONFIG's workers was lost, where TensorFlow's error names it."""
    try:
        yield
    except Exception as error:
        lost = _WORKER.search(str(error))
        if lost is None or "TF_CONFIG" not in os.environ:
            raise
        job, index = lost[1], int(lost[2])
        address = json.loads(os.environ["TF_CONFIG"])["cluster"][job][index]
        raise ConnectionError(
            f"Lost the {job} {index}, {address}, which was killed or cannot be reached. Start all "
            "workers again with the same command: they go on from the last checkpoint, if any."
        ) from error


def find_strategy(name: str) -> "tuple[tf.distribute.Strategy | None, bool]":
    """Returns the strategy of that name.

    Args:
        name: `"none"`; `"mirrored"`, for all accelerators of this machine; or
            `"multi_worker"`, for the workers that the environment variable TF_CONFIG lists.

    Returns:
        `(strategy, is_chief)`: the strategy, if any; and whether this process writes the files.
    """
    if name not in STRATEGIES:
        raise ValueError(f"Unknown strategy {name!r}; expected one of {list(STRATEGIES)}.")
    if name == "none":
        return None, True
    if keras.backend.backend() != "tensorflow":
        raise ValueError(
            f"The strategy {name!r} needs Keras's TensorFlow backend. Received: "
            f"{keras.backend.backend()!r}."
        )
    import tensorflow as tf

    if name == "mirrored":
        devices = tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU")
        return tf.distribute.MirroredStrategy([device.name for device in devices]), True
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    return strategy, not strategy.cluster_resolver.task_id


class CompilationTrial(keras.callbacks.Callback):
    """Trains a few steps in the graph and a few in XLA, and goes on with the faster.

    These are steps of the training itself: their batches and their state are the same, only what
    computes them differs. A run gives the same object to each of its `fit`s. Its model is compiled
    with `jit_compile=False`.
    """

    def __init__(self, steps: int) -> None:
        super().__init__()
        self._left = steps
        self._seconds: dict[bool, list[float]] = {False: [], True: []}  # by `jit_compile`
        self._is_over = steps <= _STEPS
        if self._is_over:
            _say(f"in the graph, as {steps} steps are too few to try XLA")

    def on_train_batch_begin(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        self._started = time.perf_counter()

    def on_train_batch_end(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        if self._is_over:
            return
        taken = self._seconds[self.model.jit_compile]
        taken.append(time.perf_counter() - self._started)
        self._left -= 1
        if len(taken) < _WARMUP_STEPS + _MEASURED_STEPS:
            return
        graph = self._typical(False)
        if self.model.jit_compile:
            self._choose(graph, self._typical(True))
        elif self._left * graph < _SECONDS_THAT_PAY:
            self._is_over = True
            _say(
                f"in the graph, at {graph:.3g} s a step; the {self._left} that are left take "
                "less time than trying XLA would be worth"
            )
        else:
            self._use(True)

    def _choose(self, graph: float, xla: float) -> None:
        self._is_over = True
        compiling = self._seconds[True][0] - xla
        figures = f"{xla:.3g} s a step in XLA, {graph:.3g} s in the graph"
        if xla < graph:
            _say(f"in XLA, which took {compiling:.0f} s to compile: {figures}")
        else:
            self._use(False)
            _say(f"in the graph: {figures}")

    def _typical(self, jit_compile: bool) -> float:
        """Returns the median seconds of a step after the first ones."""
        return statistics.median(self._seconds[jit_compile][_WARMUP_STEPS:])

    def _use(self, jit_compile: bool) -> None:
        """Makes `fit` take its next steps in XLA or not; the step function itself has no state."""
        self.model.jit_compile = jit_compile
        self.model.make_train_function(force=True)


def can_try(strategy: str) -> bool:
    """Returns whether a run can measure: on TensorFlow, on CPUs, and in one process.

    On accelerators XLA is faster, and Keras's `"auto"` chooses it. Several workers could make
    different choices; then each would wait for ever for the others' gradients.
    """
    if strategy == MULTI_WORKER or keras.backend.backend() != "tensorflow":
        return False
    import tensorflow as tf

    return all(device.device_type == "CPU" for device in tf.config.list_physical_devices())


def _say(how: str) -> None:
    print(f"\nTraining {how}.", flush=True)  # after the progress bar's line
