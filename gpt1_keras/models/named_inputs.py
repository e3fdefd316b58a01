"""NamedInputs, a functional model whose arguments and inputs are told apart by their names."""

from typing import TYPE_CHECKING, Any, ClassVar

# Type checkers see what this is mixed into. As a base, Keras would put its functional model here,
# before the classes of KerasHub.
if TYPE_CHECKING:
    from keras import Model
else:
    Model = object


class NamedInputs(Model):
    """Mixed into a functional model: checks the names of what it is made and called with.

    Keras reads a dict of other names as the inputs in the alphabetic order of those names, with a
    warning: a mask would be read as token ids.
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
        # The names once more, as the training step on JAX comes past `__call__`. The arguments by
        # name, as Keras looks for `training` among them, and else would run dropout and L1 never.
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
        """The inputs, checked, None for optional ones that are not given."""
        self.check_inputs(inputs)
        return {name: inputs.get(name) for name in self.input}


def _quoted(names: Any) -> str:
    return ", ".join(repr(name) for name in names)
