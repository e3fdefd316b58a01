"""Names for annotations."""

from typing import Any, TypeAlias

# A tensor of the Keras backend at hand. Docstrings say its dtype and shape, which no checker knows.
Tensor: TypeAlias = Any

# Ints, and None where a dimension is not known yet.
Shape: TypeAlias = tuple[Any, ...]
