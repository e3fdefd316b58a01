"""LSTMBackbone: the LSTM that the paper compares the Transformer with (section 5)."""

from typing import Any, Unpack

import keras
from keras import ops

from gpt1_keras.models.causal_backbone import CausalBackbone, check_sizes, token_inputs
from gpt1_keras.models.layers import Dropout, ReversibleEmbedding, dense, initializer
from gpt1_keras.models.left_padding import MoveBack, MoveToFront
from gpt1_keras.types import BackboneArguments, Shape, Tensor


@keras.saving.register_keras_serializable(package="gpt1_keras")
class LSTMBackbone(CausalBackbone):
    """A recurrent network instead of the Transformer, for every task and for pre-training.

    The paper says no more than a single layer of 2,048 units "using the same framework". So inputs,
    outputs, initialisation and dropout are those of `GPT1Backbone`, and a linear layer projects the
    LSTM's states to the width of the tied token table: a reconstruction. The LSTM has no positions,
    so it reads sequences of any length; tasks truncate to `max_sequence_length`.

    Args:
        vocabulary_size: number of tokens, special tokens included.
        hidden_dim: width of the token table and of the hidden states.
        units: width of the LSTM.
        dropout: rate of dropout on embeddings and outputs.
        max_sequence_length: length that tasks truncate sequences to.
        dtype: Keras dtype or policy.
        **kwargs: `fine_tuning` and `num_untrained_tokens`, as in `CausalBackbone`, and what all
            Keras models take.

    Raises:
        ValueError: a size is not a whole number of at least 1, or `dropout` is not from 0 to 1.
    """

    def __init__(
        self,
        vocabulary_size: int = 40481,
        hidden_dim: int = 768,
        units: int = 2048,
        dropout: float = 0.1,
        max_sequence_length: int = 512,
        dtype: keras.DTypePolicy | str | None = None,
        **kwargs: Unpack[BackboneArguments],
    ) -> None:
        check_sizes(
            dropout,
            vocabulary_size=vocabulary_size,
            hidden_dim=hidden_dim,
            units=units,
            max_sequence_length=max_sequence_length,
        )
        # === Layers ===
        self.embedding = ReversibleEmbedding(
            vocabulary_size,
            hidden_dim,
            embeddings_initializer=initializer(),
            dtype=dtype,
            name="embedding",
        )
        self.embedding_dropout = Dropout(dropout, dtype=dtype, name="embedding_dropout")
        self.lstm = keras.layers.LSTM(
            units,
            return_sequences=True,
            kernel_initializer=initializer(),
            recurrent_initializer=initializer(),
            dtype=dtype,
            name="lstm",
        )
        self.output_dropout = Dropout(dropout, dtype=dtype, name="output_dropout")
        self.output_projection = dense(hidden_dim, dtype, "output_projection")

        # === Functional model ===
        inputs = token_inputs()
        states = self._encode(MoveToFront(dtype=dtype, name="move_to_front")(*inputs.values()))
        outputs = MoveBack(dtype=dtype, name="move_back")(states, inputs["padding_mask"])
        super().__init__(inputs=inputs, outputs=outputs, dtype=dtype, **kwargs)

        # === Configuration ===
        self.vocabulary_size = vocabulary_size
        self.hidden_dim = hidden_dim
        self.units = units
        self.max_sequence_length = max_sequence_length
        self.dropout = dropout

    def _encode(self, token_ids: Tensor) -> Tensor:
        """Returns the hidden states, float `[batch, length, hidden_dim]`."""
        x = self.lstm(self.embedding_dropout(self.embedding(token_ids)))
        return self.output_projection(self.output_dropout(x))

    @property
    def token_embedding(self) -> ReversibleEmbedding:
        """The token table, tied to the output."""
        return self.embedding

    def encode_branches(
        self, token_ids: Tensor, positions: Tensor, branches: Tensor, extract_indices: Tensor
    ) -> Tensor:
        """Like `GPT1Backbone.encode_branches`, but reads the shared prefix anew for each branch."""
        sequences = _SplitBranches(name="split_branches")(token_ids, branches, extract_indices)
        states = self._encode(sequences)
        return _JoinBranches(name="join_branches")(states, positions, branches)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "vocabulary_size": self.vocabulary_size,
            "hidden_dim": self.hidden_dim,
            "units": self.units,
            "max_sequence_length": self.max_sequence_length,
            "dropout": self.dropout,
        }


class _SplitBranches(keras.layers.Layer):
    """Turns branches after a shared prefix into sequences, int `[batch * branches, length]`."""

    def call(self, token_ids: Tensor, branches: Tensor, extract_indices: Tensor) -> Tensor:
        length = ops.shape(token_ids)[1]
        positions = ops.arange(length)
        prefix_lengths = ops.sum(ops.cast(branches == 0, "int32"), axis=1, keepdims=True)
        # The first branch starts after the prefix, every other one after the branch before it.
        starts = ops.concatenate([prefix_lengths, extract_indices[:, :-1] + 1], axis=1)
        source = starts[:, :, None] + positions - prefix_lengths[:, :, None]
        source = ops.where(positions < prefix_lengths[:, :, None], positions, source)
        # What follows a branch's last token changes nothing, so that token is repeated.
        source = ops.clip(source, 0, ops.maximum(extract_indices, 0)[:, :, None])
        count = ops.shape(extract_indices)[1] * length
        tokens = ops.take_along_axis(token_ids, ops.reshape(source, (-1, count)), axis=1)
        return ops.reshape(tokens, (-1, length))

    def compute_output_shape(
        self, token_ids_shape: Shape, branches_shape: Shape, extract_indices_shape: Shape
    ) -> Shape:
        return (None, token_ids_shape[1])


class _JoinBranches(keras.layers.Layer):
    """The inverse, for the sequences' hidden states: float `[batch, length, hidden_dim]`."""

    def call(self, states: Tensor, positions: Tensor, branches: Tensor) -> Tensor:
        length, width = ops.shape(states)[1], states.shape[2]
        source = ops.maximum(branches - 1, 0) * length + positions
        states = ops.reshape(states, (ops.shape(positions)[0], -1, width))
        return ops.take_along_axis(states, source[:, :, None], axis=1)

    def compute_output_shape(
        self, states_shape: Shape, positions_shape: Shape, branches_shape: Shape
    ) -> Shape:
        return (*positions_shape, states_shape[2])
