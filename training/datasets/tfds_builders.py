"""Data sets of TensorFlow Datasets: on disk, or downloaded on request."""

from typing import Any

import tensorflow as tf
import tensorflow_datasets as tfds

from training.datasets.data_options import DataOptions


def prepared_builder(name: str, data: DataOptions) -> tfds.core.DatasetBuilder:
    """Returns the builder of a data set that is ready to be read.

    Args:
        name: such as `"glue/sst2"`.
        data: where it is, and whether to download and prepare it if it is missing.

    Raises:
        FileNotFoundError: the data set is not on disk.
        ValueError: TensorFlow Datasets has no data set of that name.
    """
    try:
        builder = tfds.builder(name, data_dir=data.data_dir)
    except ValueError as error:  # its message goes on with the names of all data sets
        raise ValueError(
            f"TensorFlow Datasets has no data set {name!r}: {str(error).splitlines()[0]}"
        ) from None
    if not builder.is_prepared():
        if not data.download:
            raise FileNotFoundError(
                f"The data set {name} is not in {builder.data_dir}. Give the folder that holds it "
                "with --data-dir, or add --download to fetch it."
            )
        builder.download_and_prepare()
    return builder


def read_split(builder: tfds.core.DatasetBuilder, split: str) -> dict[str, Any]:
    """Reads a whole split into memory.

    Args:
        split: such as `"train"` or `"train[:80%]"`.

    Returns:
        dict from feature to an array `[examples, ...]`, or to a ragged tensor where examples differ
        in length.
    """
    if split.split("[")[0] not in builder.info.splits:
        raise ValueError(
            f"{builder.info.full_name} in {builder.data_dir} has no split {split!r}; it has "
            f"{sorted(builder.info.splits)}."
        )
    rows = builder.as_dataset(split=split)
    columns = next(iter(rows.ragged_batch(len(rows)))) if len(rows) else {}
    return {
        feature: column.numpy() if isinstance(column, tf.Tensor) else column
        for feature, column in columns.items()
    }
