"""What tasks, pre-training and probes ask of a backbone."""

import keras_hub
from keras import ops

from gpt1_keras.files import reading_weights


class CausalBackbone(keras_hub.models.Backbone):
    """A network that reads texts from left to right: `GPT1Backbone`, `LSTMBackbone`.

    It maps token ids, int32 `[batch, length]` under the key `"token_ids"`, to hidden states, float
    `[batch, length, hidden_dim]`, none of which depends on tokens behind it. It has
    `vocabulary_size`, `hidden_dim` and `max_sequence_length`, `token_embedding`, the token table
    that is tied to the output, and `encode_branches`.
    """

    def load_weights(self, filepath, *args, **kwargs):
        """As `keras.Model.load_weights`. Raises ValueError if they are damaged or do not fit."""
        with reading_weights(filepath):
            super().load_weights(filepath, *args, **kwargs)

    def states_at(self, token_ids, indices, positions=None, branches=None):
        """Hidden states of some tokens, in inference.

        Args:
            token_ids: int `[batch, length]`.
            indices: int `[batch, tokens]`, where they are; of -1, what comes out means nothing.
            positions, branches: as in `encode_branches`, of which `indices` are the ends.

        Returns:
            float `[batch, tokens, hidden_dim]`.
        """
        if branches is None:
            states = self({"token_ids": token_ids}, training=False)
        else:
            states = self.encode_branches(token_ids, positions, branches, indices)
        return ops.take_along_axis(states, ops.maximum(indices, 0)[:, :, None], axis=1)
