"""The signature `embed`: texts to hidden states, for search and clustering."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from gpt1_keras.tasks.base import RawTextTask
from gpt1_keras.tokenization.padding import pad
from serving.export.decoder.int8_block import Int8Block
from serving.export.decoder.packed_decoder import PackedDecoder, is_packable
from serving.export.signatures import ConcreteFunction, Signatures, compiled

MEAN, LAST, TOKENS = "mean", "last", "tokens"
POOLINGS = (MEAN, LAST, TOKENS)


@dataclasses.dataclass(frozen=True)
class Embedding:
    """What `embed` returns of a text.

    Args:
        pooling: `"mean"` of the hidden states of all tokens, `"last"` for that of the last token,
            `"tokens"` for all of them.
        normalize: whether vectors are scaled to a length of 1, so that products are cosines.

    Raises:
        ValueError: another pooling.
    """

    pooling: str
    normalize: bool = False

    def __post_init__(self) -> None:
        if self.pooling not in POOLINGS:
            raise ValueError(
                f"`pooling` must be one of {list(POOLINGS)}. Received: {self.pooling!r}."
            )

    def scaled(self, vectors: tf.Tensor) -> tf.Tensor:
        """Vectors on the last axis, of a length of 1 if that is asked for; 0 stays 0."""
        if not self.normalize:
            return vectors
        return tf.math.divide_no_nan(vectors, tf.norm(vectors, axis=-1, keepdims=True))


def embed_function(
    model: RawTextTask,
    signatures: Signatures,
    embedding: Embedding,
    blocks: Sequence[Int8Block] | None = None,
) -> ConcreteFunction:
    """Returns the signature `embed` of an export.

    It takes `text`, string `[batch]`, whatever the task's own fields are: a text as the tokenizer
    reads it, without special tokens. It returns `embedding`, float32 `[batch, hidden_dim]`, or of
    each token `[batch, length, hidden_dim]`, padded with 0 as `token_ids` and `padding_mask`, int32
    `[batch, length]`, which it then returns too; `num_tokens`, int32 `[batch]`; and `truncated`,
    bool `[batch]`. A text without tokens has the embedding 0.

    Args:
        model: a task with a preprocessor.
        signatures: the export's others, whose variables it reads.
        embedding: what it returns.
        blocks: the backbone's blocks, as they are to be computed; in its own dtype by default.
    """
    tokenizer, length = model.preprocessor.tokenizer, signatures.sequence_length
    backbone: Any = model.backbone
    if is_packable(backbone):
        backbone = PackedDecoder(backbone, signatures.bucket_lengths(), blocks)

    def embed(text: tf.Tensor) -> dict[str, tf.Tensor]:
        ids = tokenizer.tokenize(text)
        inputs = pad(ids[:, :length], tokenizer, length)
        num_tokens = tf.reduce_sum(inputs["padding_mask"], axis=-1)
        outputs = {"num_tokens": num_tokens, "truncated": ids.row_lengths() > length}
        if embedding.pooling == LAST:
            last = tf.maximum(num_tokens - 1, 0)[:, tf.newaxis]
            states = tf.cast(backbone.states_at(inputs["token_ids"], last)[:, 0], tf.float32)
            found = tf.where(num_tokens[:, tf.newaxis] > 0, states, 0.0)
            return {"embedding": embedding.scaled(found), **outputs}
        states = tf.cast(_states_of(backbone, **inputs), tf.float32)
        if embedding.pooling == MEAN:
            rows = tf.where(inputs["padding_mask"] > 0)[:, 0]
            found = tf.math.unsorted_segment_mean(states, rows, tf.size(num_tokens))
            return {"embedding": embedding.scaled(found), **outputs}
        shape = tf.stack([*tf.unstack(tf.shape(inputs["token_ids"])), states.shape[1]])
        of_texts = tf.RaggedTensor.from_row_lengths(
            embedding.scaled(states), num_tokens, validate=False
        )
        return {**inputs, "embedding": of_texts.to_tensor(0.0, shape=shape), **outputs}

    return compiled(embed, {"text": tf.TensorSpec([None], tf.string, "text")})


def _states_of(backbone: Any, token_ids: tf.Tensor, padding_mask: tf.Tensor) -> tf.Tensor:
    """The hidden states of all tokens, float `[tokens, hidden_dim]`, text after text."""
    if isinstance(backbone, PackedDecoder):
        return backbone.states(token_ids, tf.reduce_sum(padding_mask, axis=1))
    states = backbone({"token_ids": token_ids}, training=False)
    return tf.boolean_mask(states, padding_mask > 0)
