"""What a `.keras` file keeps of a task's `compile`."""

from __future__ import annotations

from typing import Any

import keras


@keras.saving.register_keras_serializable(package="gpt1_keras")
class CompileConfig:
    """The serialized arguments of `Task.compile`: Keras's own, and the task's, which come first.

    `keras.models.clone_model` deserializes what `get_compile_config` returns, and compiles a plain
    model with it. So this is deserialized to Keras's arguments alone; a task reads all.
    """

    def __init__(
        self, of_keras: dict[str, Any], of_task: dict[str, Any], optimizer_is_built: bool
    ) -> None:
        self.of_keras = of_keras
        self.of_task = of_task
        self.optimizer_is_built = optimizer_is_built

    def get_config(self) -> dict[str, Any]:
        return vars(self)

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Any:
        return keras.saving.deserialize_keras_object(config["of_keras"])

    @classmethod
    def of_file(cls, serialized: dict[str, Any]) -> CompileConfig | None:
        """Returns what a file holds; None if an earlier version wrote it, with Keras's alone."""
        is_own = serialized.get("class_name") == cls.__name__
        return cls(**serialized["config"]) if is_own else None

    def arguments(self) -> dict[str, Any]:
        """Returns the arguments of `Task.compile`."""
        return keras.saving.deserialize_keras_object({**self.of_keras, **self.of_task})
