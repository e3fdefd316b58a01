"""A two-level lookup table over Unicode code points."""

from __future__ import annotations

import numpy as np

from gpt1_keras.lazy import tensorflow as tf

CODE_POINTS = 0x110000
_PAGE_BITS = 7
_PAGE = 1 << _PAGE_BITS


class CodePointTable:
    """Maps every code point to an int32, keeping each distinct page of 128 values once.

    Most of Unicode consists of large blocks that behave alike, so a few dozen pages stand for 1.1
    million entries, and a lookup is two gathers.

    Args:
        pages: int32 array `[p, 128]`, the distinct pages.
        page_of: integer array `[0x110000 / 128]`, the index of the page of each run of 128 code
            points.
    """

    def __init__(self, pages: np.ndarray, page_of: np.ndarray) -> None:
        self._values = tf.constant(np.asarray(pages, np.int32).reshape(-1))
        self._offsets = tf.constant(np.asarray(page_of, np.int32) << _PAGE_BITS)

    @staticmethod
    def compress(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Finds the distinct pages of an array of `[0x110000]` values.

        Returns:
            `(pages, page_of)`, the constructor's arguments: int32 and uint16.

        Raises:
            ValueError: `values` has another shape.
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

    def __call__(self, code_points: tf.Tensor) -> tf.Tensor:
        """Returns the values of code points: int32 of any shape to int32 of the same shape."""
        page = tf.bitwise.right_shift(code_points, _PAGE_BITS)
        # Not bitwise_and, which LiteRT lacks.
        return tf.gather(self._values, tf.gather(self._offsets, page) + code_points - page * _PAGE)
