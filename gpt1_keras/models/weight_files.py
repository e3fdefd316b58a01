"""WeightFiles, a model whose files of weights are written whole, and named if they are damaged."""

import os
from typing import TYPE_CHECKING, Any

from gpt1_keras.files import reading_weights, writing_weights

# Type checkers see what this is mixed into.
if TYPE_CHECKING:
    from keras import Model
else:
    Model = object


class WeightFiles(Model):
    """Mixed into a Keras model: how it saves and loads weights."""

    def save_weights(
        self,
        filepath: str | os.PathLike[str],
        overwrite: bool = True,
        max_shard_size: float | None = None,
    ) -> None:
        """Saves weights, as `keras.Model.save_weights`, but a single file whole or not at all.

        Raises:
            OSError: it cannot be written, as when the disk is full. An earlier one stays.
        """
        if max_shard_size is not None:
            super().save_weights(filepath, overwrite, max_shard_size)
            return
        with writing_weights(filepath) as memory:
            super().save_weights(memory, overwrite)

    def load_weights(self, filepath: Any, *args: Any, **kwargs: Any) -> None:
        """Loads weights, as `keras.Model.load_weights`.

        Raises:
            ValueError: the weights are damaged or do not fit.
        """
        with reading_weights(filepath):
            super().load_weights(filepath, *args, **kwargs)
