"""The graph of a language model, which predicts one token at a time."""

import tensorflow as tf

from serving.export_names import TEXT, TOKENIZE, TOKENS
from serving.tflite.byte_tokenizer import ByteTokenizer
from serving.tflite.device_backbone import Cache, DeviceBackbone
from serving.tflite.device_graph import (
    INT,
    DeviceGraph,
    DeviceSpec,
    Signatures,
    Tensors,
    fills,
    flag,
    refuse_choices,
)


def next_token_graph(spec: DeviceSpec) -> DeviceGraph:
    """Returns the graph of `GPT1CausalLM`: the next token's logits, and a cache to continue from.

    - `text`: maps `text`, int32 `[max_bytes]`, to `logits`, float `[vocabulary_size]`; `cache`,
      float, the keys and values; and `num_tokens` and `truncated`, int32 `[1]`.
    - `tokenize`: maps the same text to `token_ids`, int32 `[sequence_length]`, `num_tokens` and
      `truncated`.
    - `tokens`: maps `token_ids`, int32 `[1]`, the next token; `num_tokens`, int32 `[1]`, the number
      of tokens read before; and `cache`, to `logits` and `cache`.

    Raises:
        ValueError: a number of choices is given.
    """
    refuse_choices(spec)
    length, tokenizer = spec.sequence_length, spec.model.preprocessor.tokenizer
    [max_bytes] = spec.max_bytes.values()
    byte_tokenizer = ByteTokenizer(tokenizer, [max_bytes])
    backbone = DeviceBackbone(spec.model.backbone, length)

    def tokenize(text: tf.Tensor) -> Tensors:
        ids, _, lengths = byte_tokenizer([text])
        return {
            "token_ids": tf.pad(ids, [[0, max(0, length - ids.shape[0])]])[:length],
            "num_tokens": tf.minimum(lengths, length),
            "truncated": flag((lengths[0] > length) | fills([text])),
        }

    def read(text: tf.Tensor) -> Tensors:
        inputs = tokenize(text)
        token_ids = inputs.pop("token_ids")[tf.newaxis]
        state, cache = backbone.last_state_and_cache(token_ids, inputs["num_tokens"])
        return {**outputs(state, cache), **inputs}

    def read_next(token_ids: tf.Tensor, num_tokens: tf.Tensor, cache: tf.Tensor) -> Tensors:
        blocks = [tuple(tf.split(block, 2)) for block in tf.unstack(cache)]
        return outputs(*backbone.next_state(token_ids, num_tokens, blocks))

    def outputs(state: tf.Tensor, cache: Cache) -> Tensors:
        stacked = tf.stack([tf.concat(block, axis=0) for block in cache])
        return {"logits": backbone.logits(state)[0], "cache": stacked}

    one = tf.TensorSpec([1], INT)
    cache = tf.TensorSpec(backbone.cache_shape, tf.float32)
    texts = {"text": tf.TensorSpec([max_bytes], INT)}
    signatures: Signatures = {
        TEXT: (read, texts),
        TOKENIZE: (tokenize, texts),
        TOKENS: (read_next, {"token_ids": one, "num_tokens": one, "cache": cache}),
    }
    return DeviceGraph(signatures, [backbone], tokenizer.get_vocabulary())
