"""Names for annotations."""

from typing import Any, TypeAlias, TypedDict

# A tensor of Keras's current backend. Docstrings give dtypes and shapes, which no checker knows.
Tensor: TypeAlias = Any

# Ints, and None where a dimension is not known yet.
Shape: TypeAlias = tuple[Any, ...]


class ModelArguments(TypedDict, total=False):
    """Constructor arguments of all Keras models."""

    name: str | None
    trainable: bool


class BackboneArguments(ModelArguments, total=False):
    """Further constructor arguments of `CausalBackbone`."""

    fine_tuning: dict[str, Any] | None


class TaskArguments(ModelArguments, total=False):
    """Further constructor arguments of `keras_hub.models.Task`."""

    dtype: Any
    compile: bool
