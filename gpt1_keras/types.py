"""Names for annotations."""

from typing import Any, TypeAlias

# A tensor of Keras's current backend. Docstrings give dtypes and shapes, which no checker knows.
Tensor: TypeAlias = Any

# Ints, and None where a dimension is not known yet.
Shape: TypeAlias = tuple[Any, ...]
