"""What the signatures of all tasks share."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import tensorflow as tf

from gpt1_keras.tasks.base import RawTextTask
from gpt1_keras.tokenization.padding import bucket_lengths
from serving.export.decoder.int8_block import Int8Block
from serving.export.decoder.int8_support import ExactProducts
from serving.export.explanations.options import Explanation
from serving.export.quantization import saved_variables
from serving.layout import DEFAULT_SIGNATURE

ConcreteFunction: TypeAlias = Any  # of TensorFlow, which does not name it in public
# What must hold, bool of any shape; what is expected, in words; and what was received.
Condition: TypeAlias = tuple[tf.Tensor, str, tf.Tensor]


class Signatures(tf.Module):
    """The signatures of a task's export, and what a SavedModel holds to compute them.

    Args:
        model: a task with a preprocessor.
        sequence_length: the most tokens of a sequence.
        int8: whether to store matrices in 8 bits; the model's own are rounded.
        blocks: the backbone's blocks, as they are to be computed; in its own dtype by default.

    Attributes:
        sequence_length: as above.
    """

    def __init__(
        self,
        model: RawTextTask,
        sequence_length: int,
        int8: bool = False,
        blocks: Sequence[Int8Block] | None = None,
    ) -> None:
        super().__init__()
        # Tracked, a model would bring all weights into the checkpoint a second time.
        self._set_untracked(_model=model)
        self.sequence_length = sequence_length
        self._variables = saved_variables(model, int8, blocks)
        self._blocks = blocks
        if any(block.replaced for block in blocks or ()):
            self._exact_products = ExactProducts()

    def functions(self) -> dict[str, ConcreteFunction]:
        """Returns the signatures by name; `compiled` makes them."""
        raise NotImplementedError

    def explain_by(self, explanation: Explanation) -> None:
        """Adds the signature `explain`.

        Raises:
            ValueError: such a model's answers cannot be explained, or not by this method.
        """
        raise ValueError(
            f"A {type(self._model).__name__}'s answers cannot be explained. Expected a fine-tuned "
            "task: classes, scores or multiple choice."
        )

    def default_function(self) -> ConcreteFunction:
        """Returns `serving_default` alone, to be run here; its requests are not merged."""
        return self.functions()[DEFAULT_SIGNATURE]

    def sample(self, length: int) -> dict[str, tf.Tensor]:
        """Returns inputs of `serving_default` for an example of about so many tokens."""
        raise NotImplementedError

    def bucket_lengths(self) -> list[int]:
        """Returns the lengths that sequences are padded to."""
        return bucket_lengths(self.sequence_length)

    def _set_untracked(self, **attributes: Any) -> None:
        for name, value in attributes.items():
            object.__setattr__(self, name, value)


def compiled(
    function: Callable[..., Mapping[str, tf.Tensor]], specs: Mapping[str, tf.TensorSpec]
) -> ConcreteFunction:
    """Returns a concrete function of named tensors; without XLA, which TF Serving does not have.

    It refuses tensors of other shapes, which the C++ session does not compare with the signature.
    """

    def of_these_shapes(**inputs: tf.Tensor) -> Mapping[str, tf.Tensor]:
        return function(
            **{name: tf.ensure_shape(tensor, specs[name].shape) for name, tensor in inputs.items()}
        )

    return tf.function(of_these_shapes, autograph=False, jit_compile=False).get_concrete_function(
        **specs
    )


def checked(tensors: Mapping[str, Any], *conditions: Condition) -> dict[str, Any]:
    """Returns tensors that are only computed with where all conditions hold."""
    checks = [
        tf.debugging.Assert(tf.reduce_all(condition), [f"{expected} Received:", received])
        for condition, expected, received in conditions
    ]
    with tf.control_dependencies(checks):
        return {name: tf.identity(tensor) for name, tensor in tensors.items()}


def in_range(name: str, numbers: tf.Tensor, size: int) -> Condition:
    """The condition that numbers are indices of so many elements.

    Lookups count negative ones from the end, and those on a GPU take any.
    """
    valid = (numbers >= 0) & (numbers < size)
    return valid, f"Expected {name} from 0 to {size - 1}.", tf.boolean_mask(numbers, ~valid)


def at_most(what: str, numbers: tf.Tensor, most: int) -> Condition:
    """The condition that numbers are at most `most`."""
    return numbers <= most, f"Expected at most {most} {what}.", tf.reduce_max(numbers)


def same_shapes(first: tf.Tensor, *others: tf.Tensor) -> tf.Tensor:
    """Returns whether tensors of one rank have one shape, as a bool tensor."""
    return tf.reduce_all([tf.reduce_all(tf.shape(first) == tf.shape(each)) for each in others])


def input_specs(function: ConcreteFunction) -> dict[str, tf.TensorSpec]:
    """Returns the specs of a signature's inputs by name."""
    return {spec.name: spec for spec in tf.nest.flatten(function.structured_input_signature)}


def words(count: int) -> str:
    """Returns a text of so many tokens: a full stop is one token in any vocabulary."""
    return " ".join(["."] * count)
