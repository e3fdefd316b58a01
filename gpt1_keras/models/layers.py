"""The small layers of both backbones, and the initial weights."""

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any, TypeAlias

import keras
from keras import ops

from gpt1_keras.models.attention import MASKED_SCORE
from gpt1_keras.models.graph_execution import random_mask
from gpt1_keras.types import Shape, Tensor

# A function of a dense layer and its input, float `[..., in]`.
Observer: TypeAlias = Callable[[keras.layers.Dense, Tensor], None]

_observer: ContextVar[Observer | None] = ContextVar("observer", default=None)

INITIALIZER_STDDEV = 0.02
LAYER_NORM_EPSILON = 1e-5


def linear(layer: keras.layers.Dense, x: Tensor) -> Tensor:
    """Returns x kernel + bias, as the layer does: `[..., in]` to `[..., out]`, in its dtype.

    The layer has no activation; `layer.kernel` includes LoRA's part.
    """
    if observe := _observer.get():
        observe(layer, x)
    if layer.quantization_mode:
        return layer(x)
    x, kernel, bias = (
        ops.cast(each, layer.compute_dtype) for each in (x, layer.kernel, layer.bias)
    )
    # A function that is not inlined does not know the shapes of the variables that it reads.
    kernel = ops.reshape(kernel, kernel.shape)
    return ops.add(ops.matmul(x, kernel), bias)


@contextlib.contextmanager
def observed_inputs(observer: Observer) -> Iterator[None]:
    """Calls a function for each layer that `linear` computes, with the layer and its input."""
    token = _observer.set(observer)
    try:
        yield
    finally:
        _observer.reset(token)


def initializer() -> keras.Initializer:
    """Returns N(0, 0.02), which the paper uses for every matrix (section 4.1)."""
    return keras.initializers.RandomNormal(stddev=INITIALIZER_STDDEV)


def dense(units: int, dtype: keras.DTypePolicy, name: str) -> keras.layers.Dense:
    """Returns a linear layer with the paper's initial weights."""
    return keras.layers.Dense(units, kernel_initializer=initializer(), dtype=dtype, name=name)


@keras.saving.register_keras_serializable(package="gpt1_keras")
class AttentionProjections(keras.layers.Layer):
    """The layers before and after attention, and the seed of its dropout.

    This layer exists for the names of the weights, such as `attention/qkv/kernel`.
    """

    def build(self, input_shape: Shape) -> None:
        hidden_dim = input_shape[-1]
        self.qkv = dense(3 * hidden_dim, self.dtype_policy, "qkv")
        self.output_projection = dense(hidden_dim, self.dtype_policy, "output_projection")
        self.seed_generator = keras.random.SeedGenerator()
        self.qkv.build(input_shape)
        self.output_projection.build(input_shape)
        self.built = True


@keras.saving.register_keras_serializable(package="gpt1_keras")
class ReversibleEmbedding(keras.layers.ReversibleEmbedding):
    """`keras.layers.ReversibleEmbedding`, without logits for tokens that were never trained.

    An untrained row is near 0, and so is its logit, while those of a trained vocabulary may all be
    far below: the untrained token would be the likeliest. The class has the name of Keras's, by
    which weights are found in files.

    Args:
        *args, **kwargs: as in `keras.layers.ReversibleEmbedding`.
        num_untrained_tokens: how many of the last tokens have a logit of -1e9 (-6e4 in float16).
    """

    def __init__(self, *args: Any, num_untrained_tokens: int = 0, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.num_untrained_tokens = num_untrained_tokens

    def call(self, inputs: Tensor, reverse: bool = False) -> Tensor:
        outputs = super().call(inputs, reverse)
        return self._without_untrained(outputs) if reverse else outputs

    def quantized_call(self, inputs: Tensor, reverse: bool = False) -> Tensor:
        outputs = super().quantized_call(inputs, reverse)
        return self._without_untrained(outputs) if reverse else outputs

    def _without_untrained(self, logits: Tensor) -> Tensor:
        if not self.num_untrained_tokens:
            return logits
        is_trained = ops.arange(self.input_dim) < self.input_dim - self.num_untrained_tokens
        # Not minus infinity: on JAX and torch, Keras's losses multiply logits by 0.
        is_half = keras.backend.standardize_dtype(logits.dtype) == "float16"
        masked = ops.cast(-6e4 if is_half else MASKED_SCORE, logits.dtype)
        return ops.where(is_trained, logits, masked)

    def quantize(
        self, mode: str | None = None, type_check: bool = True, config: Any = None
    ) -> None:
        # Keras would leave a subclass in float.
        super().quantize(mode, type_check=False, config=config)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "num_untrained_tokens": self.num_untrained_tokens}


@keras.saving.register_keras_serializable(package="gpt1_keras")
class TokenAndPositionEmbedding(keras.layers.Layer):
    """The sum of token and learned position embeddings: h_0 = U W_e + W_p (equation 2).

    KerasHub's layer of this name is not used: its tables have other names in weights files, so
    saved models would not load; it does not check the length; and int8 leaves its positions in
    float. Without `has_positions`, only tokens are embedded.
    """

    def __init__(
        self,
        vocabulary_size: int,
        max_sequence_length: int,
        hidden_dim: int,
        has_positions: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.vocabulary_size = vocabulary_size
        self.max_sequence_length = max_sequence_length
        self.hidden_dim = hidden_dim
        self.has_positions = has_positions
        self.tokens = ReversibleEmbedding(
            vocabulary_size,
            hidden_dim,
            embeddings_initializer=initializer(),
            dtype=self.dtype_policy,
            name="tokens",
        )
        if has_positions:
            self.positions = keras.layers.Embedding(
                max_sequence_length,
                hidden_dim,
                embeddings_initializer=initializer(),
                dtype=self.dtype_policy,
                name="positions",
            )

    def build(self, input_shape: Shape) -> None:
        self.tokens.build(input_shape)
        if self.has_positions:
            self.positions.build(input_shape)
        self.built = True

    def call(
        self, token_ids: Tensor, start_index: int | Tensor = 0, positions: Tensor | None = None
    ) -> Tensor:
        """Embeds token ids, int `[batch, length]`, to float `[batch, length, hidden_dim]`.

        Args:
            token_ids: the ids.
            start_index: int scalar, the position of the first token.
            positions: optional int `[batch, length]`, where positions are not consecutive.

        Raises:
            ValueError: more tokens than `max_sequence_length`.
        """
        if positions is None:
            self._check_length(token_ids)
            positions = start_index + ops.arange(ops.shape(token_ids)[1], dtype="int32")
        return self.add_positions(self.tokens(token_ids), positions)

    def add_positions(self, x: Tensor, positions: Tensor) -> Tensor:
        """Adds the embeddings of positions, int `[batch, length]` or `[length]`, to tokens'."""
        return x + self.positions(positions) if self.has_positions else x

    def compute_output_spec(
        self, token_ids: Tensor, start_index: int | Tensor = 0, positions: Tensor | None = None
    ) -> keras.KerasTensor:
        # On torch, Keras would otherwise try a length that may be longer than the context.
        if positions is None:
            self._check_length(token_ids)
        return keras.KerasTensor((*token_ids.shape, self.hidden_dim), self.compute_dtype)

    def _check_length(self, token_ids: Tensor) -> None:
        length = token_ids.shape[1]
        # An unknown length is None, or a symbol on the JAX backend.
        if isinstance(length, int) and length > self.max_sequence_length:
            raise ValueError(
                f"A sequence may have at most {self.max_sequence_length} tokens, the context "
                f"of this model. Received token_ids of shape {tuple(token_ids.shape)}."
            )

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "vocabulary_size": self.vocabulary_size,
            "max_sequence_length": self.max_sequence_length,
            "hidden_dim": self.hidden_dim,
            "has_positions": self.has_positions,
        }


@keras.saving.register_keras_serializable(package="gpt1_keras")
class Dropout(keras.layers.Dropout):
    """`keras.layers.Dropout`, with cheaper random numbers."""

    def call(self, x: Tensor, training: bool | None = False) -> Tensor:
        if not training or not self.rate:
            return x
        kept = random_mask(ops.shape(x), 1.0 - self.rate, self.seed_generator)
        return ops.where(kept, x / (1.0 - self.rate), ops.zeros((), x.dtype))
