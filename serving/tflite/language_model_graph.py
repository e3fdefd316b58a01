"""The graph of a language model: a token at a time."""

import tensorflow as tf

from serving.tflite.device_backbone import DeviceBackbone
from serving.tflite.task_graphs import INT, fills, flag
from serving.tflite.tokenizer import ByteTokenizer


class NextTokenGraph(tf.Module):
    """`GPT1CausalLM`: the logits of the next token, and what was read, to go on from.

    - `text`: `text`, int32 `[max_bytes]`, to `logits`, float `[vocabulary_size]`, `cache`, float,
      the keys and values, and `num_tokens` and `truncated`, int32 `[1]`.
    - `tokenize`: the same text to `token_ids`, int32 `[sequence_length]`, `num_tokens` and
      `truncated`.
    - `tokens`: `token_ids`, int32 `[1]`, the next token; `num_tokens`, int32 `[1]`, how many were
      read before; and `cache`; to `logits` and `cache`.

    Args:
        model: `GPT1CausalLM` with a preprocessor.
        max_bytes: list of one int, the bytes of the prompt.
        sequence_length: int, the most tokens of prompt and continuation.
    """

    def __init__(self, model, max_bytes, sequence_length):
        super().__init__()
        [self._max_bytes] = max_bytes
        self._byte_tokenizer = ByteTokenizer(model.preprocessor.tokenizer, max_bytes)
        self._decoder = DeviceBackbone(model.backbone, sequence_length)

    def signatures(self):
        """As those of `TaskGraph`."""
        one = tf.TensorSpec([1], INT)
        cache = tf.TensorSpec(self._decoder.cache_shape, tf.float32)
        texts = {"text": tf.TensorSpec([self._max_bytes], INT)}
        return {
            "text": (self._read, texts),
            "tokenize": (self._tokenize, texts),
            "tokens": (self._go_on, {"token_ids": one, "num_tokens": one, "cache": cache}),
        }

    def _tokenize(self, text):
        length = self._decoder.sequence_length
        ids, _, lengths = self._byte_tokenizer([text])
        return {
            "token_ids": tf.pad(ids, [[0, max(0, length - ids.shape[0])]])[:length],
            "num_tokens": tf.minimum(lengths, length),
            "truncated": flag((lengths[0] > length) | fills([text])),
        }

    def _read(self, text):
        inputs = self._tokenize(text)
        token_ids = inputs.pop("token_ids")[tf.newaxis]
        read = self._decoder.last_state_and_cache(token_ids, inputs["num_tokens"])
        return {**self._outputs(*read), **inputs}

    def _go_on(self, token_ids, num_tokens, cache):
        blocks = [tuple(tf.split(block, 2)) for block in tf.unstack(cache)]
        return self._outputs(*self._decoder.next_state(token_ids, num_tokens, blocks))

    def _outputs(self, states, cache):
        cache = tf.stack([tf.concat(block, axis=0) for block in cache])
        return {"logits": self._decoder.logits(states)[0], "cache": cache}
