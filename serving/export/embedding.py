"""The signature `embed`: returns hidden states of texts, for search and clustering."""

from typing import Any

import tensorflow as tf

from gpt1_keras.tokenization.padding import bucket_lengths, pad
from serving.export.decoder.packed_decoder import PackedDecoder, is_packable
from serving.export.export_options import LAST, MEAN, TOKENS, Embedding
from serving.export.signature import ExportSpec, Signature, Tensors, full_stops, text_specs

_DESCRIPTIONS = {
    MEAN: "the mean of a text's hidden states",
    LAST: "the hidden state of a text's last token",
    TOKENS: "the hidden states of a text's tokens",
}


def embed_signature(spec: ExportSpec, embedding: Embedding, sequence_length: int) -> Signature:
    """Returns the signature `embed` of an export.

    It takes `text`, string `[batch]`, for every task, and reads it without special tokens. It
    returns `embedding`, float32 `[batch, hidden_dim]`; `num_tokens`, int32 `[batch]`; and
    `truncated`, bool `[batch]`. With the pooling `"tokens"`, `embedding` is `[batch, length,
    hidden_dim]`, with zeros for padding, and it also returns `token_ids` and `padding_mask`, int32
    `[batch, length]`. A text without tokens has an embedding of zeros.
    """
    tokenizer, lengths = spec.model.preprocessor.tokenizer, bucket_lengths(sequence_length)
    backbone: Any = spec.model.backbone
    if is_packable(backbone):
        backbone = PackedDecoder(backbone, lengths, spec.blocks)

    def embed(text: tf.Tensor) -> Tensors:
        ids = tokenizer.tokenize(text)
        inputs = pad(ids[:, :sequence_length], tokenizer, sequence_length)
        num_tokens = tf.reduce_sum(inputs["padding_mask"], axis=-1)
        outputs = {"num_tokens": num_tokens, "truncated": ids.row_lengths() > sequence_length}
        if embedding.pooling == LAST:
            last = tf.maximum(num_tokens - 1, 0)[:, tf.newaxis]
            states = tf.cast(backbone.states_at(inputs["token_ids"], last)[:, 0], tf.float32)
            found = tf.where(num_tokens[:, tf.newaxis] > 0, states, 0.0)
            return {"embedding": _scaled(found, embedding), **outputs}
        states = tf.cast(_states_of(backbone, **inputs), tf.float32)
        if embedding.pooling == MEAN:
            rows = tf.where(inputs["padding_mask"] > 0)[:, 0]
            found = tf.math.unsorted_segment_mean(states, rows, tf.size(num_tokens))
            return {"embedding": _scaled(found, embedding), **outputs}
        shape = tf.stack([*tf.unstack(tf.shape(inputs["token_ids"])), states.shape[1]])
        of_texts = tf.RaggedTensor.from_row_lengths(
            _scaled(states, embedding), num_tokens, validate=False
        )
        return {**inputs, "embedding": of_texts.to_tensor(0.0, shape=shape), **outputs}

    scaled = ", of length 1" if embedding.normalize else ""
    return Signature(
        embed,
        text_specs("text"),
        lambda length: {"text": tf.constant([full_stops(length)])},
        lengths,
        f"`embed` returns {_DESCRIPTIONS[embedding.pooling]}{scaled}.",
    )


def _scaled(vectors: tf.Tensor, embedding: Embedding) -> tf.Tensor:
    """Scales vectors on the last axis to length 1, if the options say so; 0 stays 0."""
    if not embedding.normalize:
        return vectors
    return tf.math.divide_no_nan(vectors, tf.norm(vectors, axis=-1, keepdims=True))


def _states_of(backbone: Any, token_ids: tf.Tensor, padding_mask: tf.Tensor) -> tf.Tensor:
    """Returns the hidden states of all tokens, float `[tokens, hidden_dim]`, text by text."""
    if isinstance(backbone, PackedDecoder):
        return backbone.states(token_ids, tf.reduce_sum(padding_mask, axis=1))
    states = backbone({"token_ids": token_ids}, training=False)
    return tf.boolean_mask(states, padding_mask > 0)
