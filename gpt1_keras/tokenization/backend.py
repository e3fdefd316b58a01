"""The backend that processes texts: TensorFlow, or lists where it is not installed."""

from __future__ import annotations

from typing import Any

from gpt1_keras.lazy import has_tensorflow
from gpt1_keras.tokenization import list_backend, tensor_backend


def text_backend() -> Any:
    """Returns the module that processes texts: `tensor_backend`, or the similar `list_backend`.

    `list_backend` has nested lists in place of ragged tensors, and arrays in place of tensors.
    """
    return tensor_backend if has_tensorflow() else list_backend


def is_single(texts: Any) -> bool:
    """Returns whether texts that a user gives are one string, without a batch dimension."""
    return isinstance(texts, (str, bytes)) or getattr(texts, "ndim", None) == 0


def batch_of_one(texts: Any) -> Any:
    """Adds a batch dimension to a string, a list or an array."""
    is_array = hasattr(texts, "ndim") and not isinstance(texts, (str, bytes))
    return texts[None] if is_array else [texts]
