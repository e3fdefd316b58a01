"""The `tf.distribute` strategies by their names in the programs."""

import contextlib
import json
import os
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import keras

from training.runs.pretrain_options import STRATEGIES

if TYPE_CHECKING:  # TensorFlow may be missing on another backend
    import tensorflow as tf


# How TensorFlow names a worker; with a device after it, the name is that of a place in a graph.
_WORKER = re.compile(r"/job:(\w+)/replica:\d+/task:(\d+)(?![\d/])")


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
