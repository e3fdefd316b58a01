"""The `tf.distribute` strategies by their names in the programs."""

from typing import TYPE_CHECKING

import keras

from training.runs.pretrain_options import STRATEGIES

if TYPE_CHECKING:  # TensorFlow may be missing on another backend
    import tensorflow as tf


def find_strategy(name: str) -> "tuple[tf.distribute.Strategy | None, bool]":
    """Returns the strategy of that name.

    Args:
        name: `"none"`; `"mirrored"`, for all accelerators of this machine; or
            `"multi_worker"`, for the workers that the environment variable TF_CONFIG lists.

    Returns:
        `(strategy, is_chief)`: the strategy, if any; and whether this process writes the files.

    Raises:
        ValueError: an unknown name, or a backend other than TensorFlow.
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
