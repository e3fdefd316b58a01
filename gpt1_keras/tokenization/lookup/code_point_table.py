"""A two-level lookup table over Unicode code points."""

from __future__ import annotations

import numpy as np

from gpt1_keras.lazy import tensorflow as tf

CODE_POINTS = 0x110000
_PAGE_BITS = 7
_PAGE = 1 << _PAGE_BITS


class CodePointTable:
    """Maps every code point to an int32, and keeps each distinct page of 128 values once.

    Most of Unicode consists of large blocks whose code points behave alike, so a few dozen pages
    stand for 1.1 million values. A lookup is two gathers.
    """

    def __init__(self, values: np.ndarray) -> None:
        pages, page_of = distinct_pages(values)
        self._values = tf.constant(pages.reshape(-1))
        self._offsets = tf.constant(page_of.astype(np.int32) << _PAGE_BITS)

    def __call__(self, code_points: tf.Tensor) -> tf.Tensor:
        """Returns the values of code points: int32 of any shape to int32 of the same shape."""
        page = tf.bitwise.right_shift(code_points, _PAGE_BITS)
        # Not bitwise_and, which LiteRT lacks.
        return tf.gather(self._values, tf.gather(self._offsets, page) + code_points - page * _PAGE)


def distinct_pages(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Finds the distinct pages of 128 values of one value per code point, int `[0x110000]`.

    Returns `(pages, page_of)`: int32 `[p, 128]`; and uint16 `[0x110000 / 128]`, the index of the
    page of each run of 128 code points. Raises ValueError for another shape.
    """
    if np.shape(values) != (CODE_POINTS,):
        raise ValueError(
            f"A table needs one value for each of the {CODE_POINTS} code points. "
            f"Received values of shape {np.shape(values)}."
        )
    pages: dict[bytes, int] = {}
    values = np.asarray(values, np.int32).reshape(-1, _PAGE)
    page_of = [pages.setdefault(page.tobytes(), len(pages)) for page in values]
    distinct = np.frombuffer(b"".join(pages), np.int32).reshape(-1, _PAGE)
    return distinct, np.array(page_of, np.uint16)
