"""Data sets of TensorFlow Datasets that are on disk, or are fetched on request."""

import tensorflow as tf
import tensorflow_datasets as tfds


def prepared_builder(name, data_dir=None, download=False):
    """The builder of a data set, whose data can be read.

    Args:
        name: str, such as `"glue/sst2"`.
        data_dir: path of the prepared data sets; TensorFlow Datasets' own by default.
        download: bool, whether to download and prepare what is missing.

    Raises:
        FileNotFoundError: the data set is not on disk.
        ValueError: there is no such data set.
    """
    try:
        builder = tfds.builder(name, data_dir=data_dir)
    except ValueError as error:  # its message goes on with the names of all data sets there are
        raise ValueError(
            f"TensorFlow Datasets has no data set {name!r}: {str(error).splitlines()[0]}"
        ) from None
    if not builder.is_prepared():
        if not download:
            raise FileNotFoundError(
                f"The data set {name} is not in {builder.data_dir}. Give the folder that holds it "
                "with --data-dir, or add --download to fetch it."
            )
        builder.download_and_prepare()
    return builder


def read_split(builder, split):
    """All of a split, in memory.

    Args:
        builder: as `prepared_builder` gives it.
        split: str, such as `"train"` or `"train[:80%]"`.

    Returns:
        dict from feature to an array `[examples, ...]`, or to a ragged tensor where examples differ
        in their lengths.

    Raises:
        ValueError: the data set has no such split.
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
