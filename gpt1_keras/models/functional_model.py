"""FunctionalModel, what backbones and tasks share: named inputs, and files of weights."""

import os
from typing import TYPE_CHECKING, Any, ClassVar

from gpt1_keras.files import reading_weights, writing_weights

# Type checkers see what this is mixed into. As a base, Keras would put its functional model here,
# before the classes of KerasHub.
if TYPE_CHECKING:
    from keras import Model
else:
    Model = object


class FunctionalModel(Model):
    """Mixed into a functional Keras model.

    It checks the names of what the model is made and called with: Keras reads a dict of other names
    as the inputs in the alphabetic order of those names, with a warning, so that a mask would be
    read as token ids. Its files of weights are written whole or not at all, and a damaged one is
    named.
    """

    optional_inputs: ClassVar[tuple[str, ...]] = ()

    def __init__(self, **kwargs: Any) -> None:
        # Keras takes any argument, so that a misspelt one would change nothing, without a word.
        known = {"inputs", "outputs", "name", "trainable", "dtype", "compile"}
        if unknown := sorted(set(kwargs) - known):
            raise TypeError(f"{type(self).__name__} has no argument {', '.join(unknown)}.")
        super().__init__(**kwargs)

    def __call__(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        return super().__call__(self._by_name(inputs), *args, **kwargs)

    def call(self, inputs: Any, training: bool | None = None, mask: Any = None) -> Any:
        # On JAX, Keras predicts without `__call__`, so the names are checked here too. It looks for
        # an argument named `training`, and would else never run dropout and L1.
        return super().call(self._by_name(inputs), training=training, mask=mask)

    def compute_output_spec(self, inputs: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        # Keras reads the shapes of all inputs, also of those that are not given.
        given = {name: self.input[name] if x is None else x for name, x in inputs.items()}
        return super().compute_output_spec(given, *args, **kwargs)

    def check_inputs(self, inputs: Any) -> None:
        """Checks what the model, or `fit`, is given as inputs.

        Raises:
            ValueError: they are not a dict, or a name is missing or unknown.
        """
        names = list(self.input)
        if not isinstance(inputs, dict):
            raise ValueError(
                f"{type(self).__name__} takes a dict of {_quoted(names)}. Received: "
                f"{type(inputs).__name__}."
            )
        if not set(names) - set(self.optional_inputs) <= set(inputs) <= set(names):
            optional = _quoted(self.optional_inputs) or "none"
            raise ValueError(
                f"{type(self).__name__} takes a dict of {_quoted(names)}, of which {optional} may "
                f"be left out. Received: {_quoted(inputs)}."
            )

    def _by_name(self, inputs: Any) -> dict[str, Any]:
        """Returns the inputs, checked, with None for optional ones that are not given."""
        self.check_inputs(inputs)
        return {name: inputs.get(name) for name in self.input}

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


def _quoted(names: Any) -> str:
    return ", ".join(repr(name) for name in names)
