"""FunctionalModel: the named inputs and the weights files of backbones and tasks."""

import os
from typing import TYPE_CHECKING, Any, ClassVar

from gpt1_keras.files import reading_weights, writing_weights
from gpt1_keras.models.weights_check import check_stored_weights

# Type checkers see what this is mixed into. As a real base, Keras would replace it by its
# functional model, which would then come before KerasHub's classes.
if TYPE_CHECKING:
    from keras import Model
else:
    Model = object


class FunctionalModel(Model):
    """Mixed into a functional Keras model.

    It checks the names of the model's arguments and inputs: if a dict has other names, Keras only
    warns, and takes the values in the alphabetical order of the names, so that a mask could be read
    as token ids. Weights files are written whole or not at all, and errors name a damaged file.
    """

    optional_inputs: ClassVar[tuple[str, ...]] = ()

    def __init__(self, **kwargs: Any) -> None:
        # Keras takes any argument, so a misspelt one would be ignored without an error.
        known = {"inputs", "outputs", "name", "trainable", "dtype", "compile"}
        if unknown := sorted(set(kwargs) - known):
            raise TypeError(f"{type(self).__name__} has no argument {', '.join(unknown)}.")
        super().__init__(**kwargs)

    def __call__(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        return super().__call__(self._by_name(inputs), *args, **kwargs)

    def call(self, inputs: Any, training: bool | None = None, mask: Any = None) -> Any:
        # On JAX, Keras predicts without `__call__`, so the names are checked here too. Without an
        # argument named `training`, Keras would never run dropout and L1.
        return super().call(self._by_name(inputs), training=training, mask=mask)

    def compute_output_spec(self, inputs: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        # Keras reads the shapes of all inputs, even of those that are left out.
        inputs = self._by_name(inputs)
        given = {name: self.input[name] if x is None else x for name, x in inputs.items()}
        return super().compute_output_spec(given, *args, **kwargs)

    def check_inputs(self, inputs: Any) -> None:
        """Checks the inputs of the model or of `fit`.

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
        """Checks the inputs, and returns them with None for optional ones that are left out."""
        self.check_inputs(inputs)
        return {name: inputs.get(name) for name in self.input}

    def save(self, filepath: str | os.PathLike[str], *args: Any, **kwargs: Any) -> None:
        """Saves like `keras.Model.save`.

        Raises:
            ValueError: the file is to be in HDF5, from which Keras loads only its own classes.
        """
        if str(filepath).endswith((".h5", ".hdf5")):
            raise ValueError(
                "Keras loads only its own classes from HDF5. Save the model as .keras, or its "
                f"weights by `save_weights` as .weights.h5. Received: {filepath}."
            )
        super().save(filepath, *args, **kwargs)

    def save_weights(
        self,
        filepath: str | os.PathLike[str],
        overwrite: bool = True,
        max_shard_size: float | None = None,
    ) -> None:
        """Saves weights like `keras.Model.save_weights`, but a single file whole or not at all.

        Raises:
            OSError: it cannot be written, for example because the disk is full. An earlier file
                stays.
        """
        if max_shard_size is not None:
            super().save_weights(filepath, overwrite, max_shard_size)
            return
        with writing_weights(filepath) as memory:
            super().save_weights(memory, overwrite)

    def load_own_variables(self, store: Any) -> None:
        """Checks the weights of a file before Keras reads those of the layers.

        Keras calls it for each file of weights, preset and `.keras` file, and raises the error once
        it has read the rest; with `skip_mismatch`, it only warns. See `check_stored_weights`.
        """
        check_stored_weights(self, store)
        super().load_own_variables(store)

    def load_weights(self, filepath: Any, *args: Any, **kwargs: Any) -> None:
        """Loads weights like `keras.Model.load_weights`.

        Raises:
            ValueError: the weights are damaged or do not fit.
        """
        with reading_weights(filepath):
            super().load_weights(filepath, *args, **kwargs)


def _quoted(names: Any) -> str:
    return ", ".join(repr(name) for name in names)
