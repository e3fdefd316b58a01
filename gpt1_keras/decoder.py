"""What tasks, pre-training and probes ask of a backbone."""

import keras_hub

from gpt1_keras.files import reading_weights


class Decoder(keras_hub.models.Backbone):
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
