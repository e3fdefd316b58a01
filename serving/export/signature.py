"""The parts of an export, and its signatures: named functions with examples."""

import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import tensorflow as tf

from gpt1_keras.tasks.task import Task
from serving.export.decoder.int8 import Int8Block
from serving.export.export_options import Batching, Embedding, Explanation

Tensors: TypeAlias = dict[str, Any]  # dense or ragged tensors by name
ConcreteFunction: TypeAlias = Any  # of TensorFlow, which does not name it in public


@dataclasses.dataclass(frozen=True)
class ExportSpec:
    """The model of an export, and its options.

    Args:
        model: a task with a preprocessor.
        batching: how requests are merged; None to answer each request alone.
        int8: whether matrices are stored in 8 bits; the model's own matrices are rounded in place.
        blocks: 8-bit blocks that replace the backbone's own.
        embedding: what the signature `embed` returns; None for an export without it.
        explanation: how the signature `explain` finds the words' shares; None for an export
            without it.
    """

    model: Task
    batching: Batching | None = None
    int8: bool = False
    blocks: Sequence[Int8Block] | None = None
    embedding: Embedding | None = None
    explanation: Explanation | None = None


@dataclasses.dataclass(frozen=True)
class Signature:
    """A function of named tensors, as an export offers it.

    Args:
        function: maps named tensors to named tensors.
        specs: the specs of its inputs by name.
        example: maps a number of tokens to the inputs of one example of about this length, by name.
            Warm-up requests, and so the requests of `gpt1 check`, are made of it. Further
            tensors that it returns are left out.
        lengths: the lengths, in tokens, of the examples for warm-up.
        description: a sentence for the export's README.
        defaults: the values of inputs that a request may leave out, by name.
    """

    function: Callable[..., Mapping[str, tf.Tensor]]
    specs: Mapping[str, tf.TensorSpec]
    example: Callable[[int], Mapping[str, tf.Tensor]]
    lengths: Sequence[int]
    description: str = ""
    defaults: Mapping[str, tf.Tensor] = dataclasses.field(default_factory=dict)

    @functools.cached_property
    def compiled(self) -> ConcreteFunction:
        """The signature as it is called in Python, with all its inputs."""
        return compiled(self.function, self.specs)

    @functools.cached_property
    def saved(self) -> Any:
        """The signature as `tf.saved_model.save` takes it, which asks a function for defaults."""
        if not self.defaults:
            return self.compiled

        def call(*inputs: tf.Tensor) -> Mapping[str, tf.Tensor]:
            return self.compiled(**dict(zip(self.specs, inputs)))

        kind, empty = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.empty
        call.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [
                inspect.Parameter(name, kind, default=self.defaults.get(name, empty))
                for name in self.specs
            ]
        )
        return tf.function(call, autograph=False, input_signature=list(self.specs.values()))

    def inputs_of_example(self, length: int) -> dict[str, tf.Tensor]:
        """Returns the inputs of one example of about `length` tokens, by name."""
        example = self.example(length)
        return {name: example[name] for name in self.specs}


@dataclasses.dataclass(frozen=True)
class Signatures:
    """All signatures of an export.

    Args:
        sequence_length: the most tokens of a sequence.
        by_name: the signatures. `serving_default` is among them.
    """

    sequence_length: int
    by_name: dict[str, Signature]


def compiled(
    function: Callable[..., Mapping[str, tf.Tensor]], specs: Mapping[str, tf.TensorSpec]
) -> ConcreteFunction:
    """Returns a concrete function of named tensors; without XLA, which TF Serving does not have.

    It refuses tensors of other shapes. The C++ session itself does not compare shapes with the
    signature.
    """

    def of_these_shapes(**inputs: tf.Tensor) -> Mapping[str, tf.Tensor]:
        return function(
            **{name: tf.ensure_shape(tensor, specs[name].shape) for name, tensor in inputs.items()}
        )

    return tf.function(of_these_shapes, autograph=False, jit_compile=False).get_concrete_function(
        **specs
    )


def text_specs(*names: str) -> dict[str, tf.TensorSpec]:
    """Returns the specs of named strings `[batch]`."""
    return {name: tf.TensorSpec([None], tf.string, name) for name in names}


def full_stops(count: int) -> str:
    """Returns a text of `count` tokens: a full stop is one token in any vocabulary."""
    return " ".join(["."] * count)
