"""CompileArguments: what a task's `compile` was given, as `.keras` files keep it."""

from collections.abc import Iterator, Mapping
from typing import Any

import keras


@keras.saving.register_keras_serializable(package="gpt1_keras")
class CompileArguments(Mapping[str, Any]):
    """The arguments of a task's `compile`.

    As a mapping, it has only what `keras.Model.compile` takes: Keras clones a task to a plain
    model, which it compiles with them.

    Args:
        of_keras: what the task passed on to `keras.Model.compile`.
        is_built: whether the optimizer has a state.
        **given: all arguments, with the optimizer and metrics that `"auto"` stood for.
    """

    def __init__(self, of_keras: Mapping[str, Any], is_built: bool = False, **given: Any) -> None:
        self._of_keras, self.is_built, self.given = dict(of_keras), is_built, given

    def __getitem__(self, name: str) -> Any:
        return self._of_keras[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._of_keras)

    def __len__(self) -> int:
        return len(self._of_keras)

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments, serialized."""
        config = {"of_keras": self._of_keras, "is_built": self.is_built, **self.given}
        return keras.saving.serialize_keras_object(config)

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "CompileArguments":
        """Makes the arguments of what `get_config` returned."""
        return cls(**keras.saving.deserialize_keras_object(config))
