"""Writes a preset with float16 weights and checksums, small enough to ship."""

import io
import os
import pathlib
import shutil

import h5py
import numpy as np

from gpt1_keras.files import atomic_path
from gpt1_keras.presets import find_preset

FRACTION_BITS = 10  # of float16


def compress_preset(
    preset: str | os.PathLike[str],
    output: str | os.PathLike[str],
    fraction_bits: int = FRACTION_BITS,
) -> None:
    """Writes a preset with float16 weights and checksums.

    Args:
        fraction_bits: how many bits of the fractions of matrices stay, from 1 to 10. The others
            become 0, and take no room in the file.

    Raises:
        FileNotFoundError: there is no such preset.
        ValueError: the number of bits is out of range, or a weight out of float16's; or the preset
            has no weights of Keras.
        OSError: it cannot be written.
    """
    if not 1 <= fraction_bits <= FRACTION_BITS:
        raise ValueError(
            f"fraction_bits must be from 1 to {FRACTION_BITS}. Received: {fraction_bits}."
        )
    folder = find_preset(preset)
    weights = {path: _compress(path, fraction_bits) for path in folder.glob("*.weights.h5")}
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


def _compress(source: pathlib.Path, fraction_bits: int) -> memoryview:
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
                if array.ndim > 1 and fraction_bits < FRACTION_BITS:
                    array = _round(array, fraction_bits)
                with np.errstate(over="ignore"):
                    array = array.astype(np.float16)
                if not np.isfinite(array).all():
                    raise ValueError(f"{source}: {name} has weights out of float16's range.")
            # HDF5 keeps checksums of chunks, and compresses chunks; a scalar has none.
            in_chunks = {"fletcher32": True, "shuffle": True, "compression": "gzip"}
            new.create_dataset(name, data=array, **in_chunks if array.ndim else {})

        old.visititems(copy)
    return compressed.getbuffer()


def _round(array: np.ndarray, fraction_bits: int) -> np.ndarray:
    """Rounds to the nearest numbers that have this many bits after the leading one."""
    significand, exponent = np.frexp(array)  # the significand is from 0.5 to 1
    scale = 2.0 ** (fraction_bits + 1)
    return np.ldexp(np.round(significand * scale) / scale, exponent)
