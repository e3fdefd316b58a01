"""The signatures of a language model's export: log-probabilities, and text generation."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from gpt1_keras.tasks.base import RawTextTask
from gpt1_keras.tokenization.padding import pad
from serving.export.batching import Batching, batched, merged
from serving.export.decoder.cached_decoder import CachedDecoder
from serving.export.decoder.int8_block import Int8Block
from serving.export.decoder.packed_decoder import computes_by_blocks
from serving.export.language_model.continuation import continuations
from serving.export.language_model.scoring import log_probabilities
from serving.export.offsets import ENDS, STARTS
from serving.export.signatures import ConcreteFunction, Signatures, checked, compiled, words
from serving.layout import DEFAULT_SIGNATURE, GENERATE, SCORE, TOKENIZE


class LanguageModelSignatures(Signatures):
    """A language model's signatures, as functions of named tensors.

    - `serving_default` and `score`: `text`, string `[batch]`, to `token_ids`, int32
      `[batch, length]`; `log_probabilities`, float `[batch, length]`, of each token given those
      before it, in nats, 0 for the first, which is given, and for padding; `score`, float
      `[batch]`, their mean.
    - `generate`: `text`; and for each text `length`, int32 `[batch]`, the number of tokens to add;
      `temperature`, float `[batch]`, 0 for the likeliest token always; `top_k`, int32 `[batch]`,
      the number of likeliest tokens to choose from, 0 for all; `seed`, int32 `[batch]`. To `text`,
      string `[batch]`, prompt and continuation as normalised, and `continuation`, what was added.
      A prompt too long to be continued loses its first tokens.
    - `tokenize`: `text` to `token_ids` and `padding_mask`, int32 `[batch, length]`; and `starts`
      and `ends` of this shape, the range of bytes that each token came from, -1 for padding.

    All outputs have `num_tokens`, int32 `[batch]`, and `truncated`, bool `[batch]`.

    Args:
        model: `GPT1CausalLM` with a preprocessor.
        batching: if given, texts of many requests are answered together: those of `score`, and
            those of `generate` with all their options.
        int8: whether to store matrices in 8 bits; the model's own are rounded.
        blocks: the backbone's blocks, as they are to be computed; in its own dtype by default.

    Raises:
        ValueError: another backbone than `GPT1Backbone`.
    """

    def __init__(
        self,
        model: RawTextTask,
        batching: Batching | None = None,
        int8: bool = False,
        blocks: Sequence[Int8Block] | None = None,
    ) -> None:
        backbone = model.backbone
        if not computes_by_blocks(backbone):
            raise ValueError(
                "A language model needs a GPT1Backbone to be exported, or a subclass whose blocks "
                f"override `project` or `finish` alone. Received: {type(backbone).__name__}."
            )
        # Its context, which may be longer than what it was trained on.
        super().__init__(model, backbone.max_sequence_length, int8, blocks)
        self._set_untracked(
            _decoder=CachedDecoder(backbone, self.bucket_lengths(), blocks),
            _token_embedding=backbone.token_embedding,
        )
        self._batching = batching
        self._tokenizer = model.preprocessor.tokenizer
        ids = tf.range(backbone.vocabulary_size)
        is_word = ids < self._tokenizer.vocabulary_size()
        for special in self._tokenizer.special_token_ids:
            is_word &= ids != special
        self._never = tf.where(is_word, 0.0, float("-inf"))

    def functions(self) -> dict[str, ConcreteFunction]:
        text = {"text": tf.TensorSpec([None], tf.string, "text")}
        options = {
            name: tf.TensorSpec([None], dtype, name)
            for name, dtype in (
                ("length", tf.int32),
                ("temperature", tf.float32),
                ("top_k", tf.int32),
                ("seed", tf.int32),
            )
        }
        answer, go_on = self._score_texts, self._continue
        if self._batching:
            prompts = [
                tf.TensorSpec([None, self.sequence_length], tf.int32, "prompts"),
                tf.TensorSpec([None], tf.int32, "kept"),
            ]
            answer = merged(answer, ["text"], self._batching)
            go_on = batched(go_on, [*prompts, *options.values()], self._batching)
        score = self._scoring(answer)
        generate = functools.partial(self._generate, go_on)
        return {
            DEFAULT_SIGNATURE: score,
            SCORE: score,
            GENERATE: compiled(self._for_any_batch(generate), {**text, **options}),
            TOKENIZE: compiled(self._tokenize_with_offsets, text),
        }

    def default_function(self) -> ConcreteFunction:
        return self._scoring(self._score_texts)

    def sample(self, length: int) -> dict[str, tf.Tensor]:
        """Returns a text of so many tokens, and how to continue it."""
        # The first token after a text is that of its last state; the second takes a step.
        values = {
            "length": [min(2, self.sequence_length - 1)],
            "temperature": [1.0],
            "top_k": [0],
            "seed": [0],
        }
        return {"text": tf.constant([words(length)])} | {
            name: tf.constant(value) for name, value in values.items()
        }

    def _for_any_batch(
        self, function: Callable[..., dict[str, tf.Tensor]]
    ) -> Callable[..., dict[str, tf.Tensor]]:
        """Makes a function that takes batches without a text: it computes a made-up one instead."""
        made_up = self.sample(1)

        def run(**inputs: tf.Tensor) -> dict[str, tf.Tensor]:
            size = tf.size(inputs["text"])
            conditions = [
                (tf.size(tensor) == size, f"Expected a {name} for every text.", tf.size(tensor))
                for name, tensor in inputs.items()
            ]
            missing = tf.maximum(1 - size, 0)
            outputs = function(
                **{
                    name: tf.concat([tensor, made_up[name][:missing]], axis=0)
                    for name, tensor in checked(inputs, *conditions).items()
                }
            )
            return {name: tensor[:size] for name, tensor in outputs.items()}

        return run

    def _tokenize(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        return self._pad(self._tokenizer.tokenize(text))

    def _tokenize_with_offsets(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        ids, *ranges = self._tokenizer.tokenize_with_offsets(text)
        inputs = self._pad(ids)
        shape = tf.shape(inputs["token_ids"])
        for name, offsets in zip((STARTS, ENDS), ranges):
            inputs[name] = tf.cast(offsets.to_tensor(-1, shape=shape), tf.int32)
        return inputs

    def _pad(self, ids: tf.RaggedTensor) -> dict[str, tf.Tensor]:
        """The first ids of each text, int32 `[batch, None]`, and whether there are more."""
        padded = pad(ids[:, : self.sequence_length], self._tokenizer, self.sequence_length)
        return {**padded, "truncated": ids.row_lengths() > self.sequence_length}

    def _scoring(self, answer: Callable[..., dict[str, tf.Tensor]]) -> ConcreteFunction:
        """The signature `score`, from `_score_texts` or what merges its calls."""
        buckets = self.bucket_lengths()

        def score(text: tf.Tensor) -> dict[str, tf.Tensor]:
            outputs = answer(text=text)
            longest = tf.reduce_max(outputs["num_tokens"], keepdims=True)
            length = tf.gather(buckets, tf.searchsorted(buckets, longest)[0])
            for name in ("token_ids", "log_probabilities"):
                outputs[name] = outputs[name][:, :length]
            return outputs

        text = {"text": tf.TensorSpec([None], tf.string, "text")}
        return compiled(self._for_any_batch(score), text)

    def _score_texts(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        """The outputs of `score`, with as many columns as the context is long."""
        ids = self._tokenizer.tokenize(text)
        token_ids = ids.to_tensor(self._tokenizer.pad_token_id, shape=[None, self.sequence_length])
        num_tokens = tf.minimum(tf.cast(ids.row_lengths(), tf.int32), self.sequence_length)
        found = log_probabilities(self._decoder, self._logits, token_ids, num_tokens)
        count = tf.cast(num_tokens - 1, tf.float32)
        return {
            "token_ids": token_ids,
            "log_probabilities": found,
            "score": tf.math.divide_no_nan(tf.reduce_sum(found, axis=-1), count),
            "num_tokens": num_tokens,
            "truncated": ids.row_lengths() > self.sequence_length,
        }

    def _generate(
        self,
        go_on: Callable[..., dict[str, tf.Tensor]],
        text: tf.Tensor,
        length: tf.Tensor,
        temperature: tf.Tensor,
        top_k: tf.Tensor,
        seed: tf.Tensor,
    ) -> dict[str, tf.Tensor]:
        """The signature `generate`, from `_continue` or what merges its calls."""
        with tf.control_dependencies(self._checks(length, temperature, top_k)):
            ids = self._tokenizer.tokenize(text)
        before = tf.cast(ids.row_lengths(), tf.int32)
        check = tf.debugging.Assert(
            tf.reduce_all(before > 0),
            ["Every text needs a token to continue from. Tokens:", before],
        )
        with tf.control_dependencies([check]):
            kept = tf.minimum(before, self.sequence_length - length)
        limits = tf.cast(ids.row_limits(), tf.int32)
        prompts = _slices(ids.values, limits - kept, limits)
        added = go_on(
            prompts=prompts.to_tensor(0, shape=[None, self.sequence_length]),
            kept=kept,
            length=length,
            temperature=temperature,
            top_k=top_k,
            seed=seed,
        )["added"]
        added = tf.RaggedTensor.from_tensor(added, tf.cast(length, tf.int64))
        return {
            "text": self._tokenizer.detokenize(tf.concat([prompts, added], axis=1)),
            "continuation": self._tokenizer.detokenize(added),
            "num_tokens": kept + length,
            "truncated": before > kept,
        }

    def _checks(self, length: tf.Tensor, temperature: tf.Tensor, top_k: tf.Tensor) -> list[Any]:
        return [
            tf.debugging.Assert(
                tf.reduce_all((length >= 1) & (length < self.sequence_length)),
                [f"length must be from 1 to {self.sequence_length - 1}. Received:", length],
            ),
            tf.debugging.Assert(
                tf.reduce_all((temperature >= 0.0) & (temperature < float("inf"))),
                ["temperature must be at least 0. Received:", temperature],
            ),
            tf.debugging.Assert(
                tf.reduce_all(top_k >= 0), ["top_k must be at least 0. Received:", top_k]
            ),
        ]

    def _continue(
        self,
        prompts: tf.Tensor,
        kept: tf.Tensor,
        length: tf.Tensor,
        temperature: tf.Tensor,
        top_k: tf.Tensor,
        seed: tf.Tensor,
    ) -> dict[str, tf.Tensor]:
        """The continuations of prompts, as `added`; see `continuations`."""
        arguments = prompts, kept, length, temperature, top_k, seed
        return {"added": continuations(self._decoder, self._word_logits, *arguments)}

    def _word_logits(self, states: tf.Tensor) -> tf.Tensor:
        return self._logits(states) + self._never

    def _logits(self, states: tf.Tensor) -> tf.Tensor:
        return tf.cast(self._token_embedding(states, reverse=True), tf.float32)


def _slices(values: tf.Tensor, starts: tf.Tensor, ends: tf.Tensor) -> tf.RaggedTensor:
    """A ragged tensor of slices of a flat one."""
    indices = tf.ragged.range(starts, ends)
    return indices.with_values(tf.gather(values, indices.values))
