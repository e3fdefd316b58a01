"""Makes a preset small enough to ship.

    python -m training.compress_preset --preset runs/books/preset --output gpt1_tiny_books

The weights become float16, half the size, which `from_preset` reads as float32; each array carries
a checksum, so that a damaged file is an error when it is loaded, never a worse model.
"""

import argparse
import pathlib
import shutil
import sys

import h5py
import numpy as np

from gpt1_keras.files import atomic_path
from gpt1_keras.presets import find_preset


def publish(preset, output):
    """Writes the published form of a preset.

    Args:
        preset: path of a preset's folder.
        output: path of the folder to write; replaced if it is there.

    Raises:
        FileNotFoundError: there is no preset.
        ValueError: a weight is out of float16's range.
    """
    folder = find_preset(preset)
    with atomic_path(output) as temporary:
        shutil.copytree(folder, temporary)
        for source in folder.glob("*.weights.h5"):
            _halve(source, pathlib.Path(temporary, source.name))


def _halve(source, target):
    """Copies a file of weights, its floats as float16, its arrays with checksums."""
    with h5py.File(source) as old, h5py.File(target, "w") as new:

        def copy(name, item):
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


def main(arguments=None):
    parser = argparse.ArgumentParser(
        prog="python -m training.compress_preset",
        description="Make a preset small enough to ship: float16 weights with checksums.",
    )
    parser.add_argument("--preset", required=True, help="the preset's folder")
    parser.add_argument("--output", required=True, help="folder to write")
    options = parser.parse_args(arguments)
    try:
        publish(options.preset, options.output)
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    size = sum(path.stat().st_size for path in pathlib.Path(options.output).rglob("*"))
    print(f"{options.output}: {size / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
