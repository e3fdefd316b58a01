"""The graph of a language model: a token at a time."""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from gpt1_keras.tasks.base import RawTextTask
from serving.export_names import TEXT, TOKENIZE, TOKENS
from serving.tflite.byte_tokenizer import ByteTokenizer
from serving.tflite.device_backbone import Cache, DeviceBackbone
from serving.tflite.device_graph import INT, DeviceGraph, Specs, Tensors, fills, flag


class NextTokenGraph(DeviceGraph):
    """`GPT1CausalLM`: the logits of the next token, and a cache to continue from.

    - `text`: `text`, int32 `[max_bytes]`, to `logits`, float `[vocabulary_size]`, `cache`, float,
      the keys and values, and `num_tokens` and `truncated`, int32 `[1]`.
    - `tokenize`: the same text to `token_ids`, int32 `[sequence_length]`, `num_tokens` and
      `truncated`.
    - `tokens`: `token_ids`, int32 `[1]`, the next token; `num_tokens`, int32 `[1]`, how many were
      read before; and `cache`; to `logits` and `cache`.

    Args:
        model: `GPT1CausalLM` with a preprocessor.
        max_bytes: one number, the bytes of the prompt.
        sequence_length: the most tokens of prompt and continuation.
        num_choices: None.
    """

    def __init__(
        self,
        model: RawTextTask,
        max_bytes: Sequence[int],
        sequence_length: int,
        num_choices: int | None = None,
    ) -> None:
        super().__init__(model, num_choices)
        [self._max_bytes] = max_bytes
        self._byte_tokenizer = ByteTokenizer(model.preprocessor.tokenizer, max_bytes)
        self._backbone = DeviceBackbone(model.backbone, sequence_length)
        self._get_vocabulary = model.preprocessor.tokenizer.get_vocabulary

    def signatures(self) -> dict[str, tuple[Callable[..., Tensors], Specs]]:
        one = tf.TensorSpec([1], INT)
        cache = tf.TensorSpec(self._backbone.cache_shape, tf.float32)
        texts = {"text": tf.TensorSpec([self._max_bytes], INT)}
        return {
            TEXT: (self._read, texts),
            TOKENIZE: (self._tokenize, texts),
            TOKENS: (self._read_next, {"token_ids": one, "num_tokens": one, "cache": cache}),
        }

    def metadata(self) -> dict[str, Any]:
        return {"vocabulary": self._get_vocabulary()}

    def _tokenize(self, text: tf.Tensor) -> Tensors:
        length = self._backbone.sequence_length
        ids, _, lengths = self._byte_tokenizer([text])
        return {
            "token_ids": tf.pad(ids, [[0, max(0, length - ids.shape[0])]])[:length],
            "num_tokens": tf.minimum(lengths, length),
            "truncated": flag((lengths[0] > length) | fills([text])),
        }

    def _read(self, text: tf.Tensor) -> Tensors:
        inputs = self._tokenize(text)
        token_ids = inputs.pop("token_ids")[tf.newaxis]
        read = self._backbone.last_state_and_cache(token_ids, inputs["num_tokens"])
        return {**self._outputs(*read), **inputs}

    def _read_next(self, token_ids: tf.Tensor, num_tokens: tf.Tensor, cache: tf.Tensor) -> Tensors:
        blocks = [tuple(tf.split(block, 2)) for block in tf.unstack(cache)]
        return self._outputs(*self._backbone.next_state(token_ids, num_tokens, blocks))

    def _outputs(self, state: tf.Tensor, cache: Cache) -> Tensors:
        stacked = tf.stack([tf.concat(block, axis=0) for block in cache])
        return {"logits": self._backbone.logits(state)[0], "cache": stacked}
