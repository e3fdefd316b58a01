"""Outputs of signatures as plain values, which JSON and tables can hold."""

from typing import Any

import numpy as np


def plain(array: np.ndarray) -> Any:
    """Returns an output as nested lists of str, bool, int or float.

    A float32 becomes its shortest decimal, such as 0.9, not 0.8999999761581421.
    """
    if array.dtype == object:
        decode = np.vectorize(lambda text: text.decode(errors="replace"), otypes=[object])
        return decode(array).tolist()
    if np.issubdtype(array.dtype, np.floating):
        return array.astype(str).astype(float).tolist()
    return array.tolist()
