"""Writes a preset with float16 weights and checksums, small enough to ship."""

import io
import os
import pathlib
import shutil

import h5py
import numpy as np

from gpt1_keras.files import atomic_path
from gpt1_keras.presets import find_preset


def compress_preset(preset: str | os.PathLike[str], output: str | os.PathLike[str]) -> None:
    """Writes a preset with float16 weights and checksums."""
    folder = find_preset(preset)
    weights = {path: _compress(path) for path in folder.glob("*.weights.h5")}
    if not weights:
        raise ValueError(
            f"{preset} has no Keras weights to compress. Load it, and save it by `save_to_preset`."
        )
    with atomic_path(output) as temporary:
        try:
            shutil.copytree(folder, temporary, ignore=shutil.ignore_patterns("*.weights.h5"))
        except shutil.Error as error:  # all that failed, in one list
            raise OSError(f"Could not copy {folder}: {error.args[0][0][2]}.") from error
        for path, content in weights.items():
            pathlib.Path(temporary, path.name).write_bytes(content)


def _compress(source: pathlib.Path) -> memoryview:
    """Returns a file of weights with floats as float16 and arrays with checksums.

    The file is made in memory, because HDF5 crashes the process when the disk is full.
    """
    compressed = io.BytesIO()
    with h5py.File(source) as old, h5py.File(compressed, "w") as new:

        def copy(name: str, item: h5py.Group | h5py.Dataset) -> None:
            if isinstance(item, h5py.Group):
                new.require_group(name)
                return
            array = item[()]
            if np.issubdtype(array.dtype, np.floating):
                with np.errstate(over="ignore"):
                    array = array.astype(np.float16)
                if not np.isfinite(array).all():
                    raise ValueError(f"{source}: {name} has weights out of float16's range.")
            # HDF5 keeps checksums of chunks, and a scalar has none.
            new.create_dataset(name, data=array, fletcher32=array.ndim > 0)

        old.visititems(copy)
    return compressed.getbuffer()
