"""LSTMBackbone, what the paper compares the decoder with (section 5)."""

import keras
from keras import ops

from gpt1_keras.models.causal_backbone import CausalBackbone
from gpt1_keras.models.custom_gradients.lstm import LSTM
from gpt1_keras.models.layers import Dropout, initializer


@keras.saving.register_keras_serializable(package="gpt1_keras")
class LSTMBackbone(CausalBackbone):
    """A recurrent network in the decoder's place: for every task, pre-training and probe.

    The paper has a single layer of 2,048 units "using the same framework", and says no more. So
    inputs, outputs, initialisation and dropout are as the decoder's, and a linear layer takes the
    LSTM's states to the width of the tied token table: a reconstruction. It has no positions, and
    so reads texts of any length; `max_sequence_length` is what tasks cut texts to.

    Args:
        vocabulary_size: int, the tokens, special ones included.
        hidden_dim: int, the width of the token table and of the outputs.
        units: int, the width of the LSTM.
        max_sequence_length: int.
        dropout: float, on embeddings and outputs.
        dtype: a Keras dtype or policy.
    """

    def __init__(
        self,
        vocabulary_size=40481,
        hidden_dim=768,
        units=2048,
        max_sequence_length=512,
        dropout=0.1,
        dtype=None,
        **kwargs,
    ):
        # === Layers ===
        self.embedding = keras.layers.ReversibleEmbedding(
            vocabulary_size,
            hidden_dim,
            embeddings_initializer=initializer(),
            dtype=dtype,
            name="embedding",
        )
        self.embedding_dropout = Dropout(dropout, dtype=dtype, name="embedding_dropout")
        self.lstm = LSTM(
            units,
            kernel_initializer=initializer(),
            recurrent_initializer=initializer(),
            dtype=dtype,
            name="lstm",
        )
        self.output_dropout = Dropout(dropout, dtype=dtype, name="output_dropout")
        self.output_projection = keras.layers.Dense(
            hidden_dim, kernel_initializer=initializer(), dtype=dtype, name="output_projection"
        )

        # === Functional model ===
        token_ids = keras.Input((None,), dtype="int32", name="token_ids")
        outputs = self._encode(token_ids)
        super().__init__(inputs={"token_ids": token_ids}, outputs=outputs, dtype=dtype, **kwargs)

        # === Configuration ===
        self.vocabulary_size = vocabulary_size
        self.hidden_dim = hidden_dim
        self.units = units
        self.max_sequence_length = max_sequence_length
        self.dropout = dropout

    def _encode(self, token_ids):
        x = self.lstm(self.embedding_dropout(self.embedding(token_ids)))
        return self.output_projection(self.output_dropout(x))

    @property
    def token_embedding(self):
        """The token table, a `keras.layers.ReversibleEmbedding`, tied to the output."""
        return self.embedding

    def encode_branches(self, token_ids, positions, branches, extract_indices):
        """As `GPT1Backbone.encode_branches`. Each branch is read behind the beginning anew."""
        sequences = _TakeApart(name="take_apart")(token_ids, branches, extract_indices)
        states = self._encode(sequences)
        return _PutTogether(name="put_together")(states, positions, branches)

    def get_config(self):
        return {
            **super().get_config(),
            "vocabulary_size": self.vocabulary_size,
            "hidden_dim": self.hidden_dim,
            "units": self.units,
            "max_sequence_length": self.max_sequence_length,
            "dropout": self.dropout,
        }


class _TakeApart(keras.layers.Layer):
    """Branches behind a beginning to sequences of their own: int `[batch branches, length]`."""

    def call(self, token_ids, branches, extract_indices):
        length = ops.shape(token_ids)[1]
        place = ops.arange(length)
        beginning = ops.sum(ops.cast(branches == 0, "int32"), axis=1, keepdims=True)
        # A branch begins behind the beginning, or behind the branch before it.
        begins = ops.concatenate([beginning, extract_indices[:, :-1] + 1], axis=1)
        source = begins[:, :, None] + place - beginning[:, :, None]
        source = ops.where(place < beginning[:, :, None], place, source)
        # What follows a branch's end changes nothing, so the end stands for it.
        source = ops.clip(source, 0, ops.maximum(extract_indices, 0)[:, :, None])
        count = ops.shape(extract_indices)[1] * length
        tokens = ops.take_along_axis(token_ids, ops.reshape(source, (-1, count)), axis=1)
        return ops.reshape(tokens, (-1, length))

    def compute_output_shape(self, token_ids_shape, branches_shape, extract_indices_shape):
        return (None, token_ids_shape[1])


class _PutTogether(keras.layers.Layer):
    """The states of such sequences to where their tokens stood, float `[batch, length, width]`."""

    def call(self, states, positions, branches):
        length, width = ops.shape(states)[1], states.shape[2]
        place = ops.maximum(branches - 1, 0) * length + positions
        batch = ops.shape(positions)[0]
        states = ops.reshape(states, (batch, -1, width))
        return ops.take_along_axis(states, place[:, :, None], axis=1)

    def compute_output_shape(self, states_shape, positions_shape, branches_shape):
        return (*positions_shape, states_shape[2])
