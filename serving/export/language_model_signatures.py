"""The signatures of a language model's export: log-probabilities, and text generation."""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

import gpt1_keras
from gpt1_keras.tasks.base import RawTextTask
from gpt1_keras.tokenization.padding import pad
from serving.export.batching import Batching
from serving.export.decoder.base import ServedBlock
from serving.export.decoder.cached_decoder import CachedDecoder
from serving.export.offsets import ENDS, STARTS
from serving.export.sampling import sample_tokens, uniform_numbers
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
        batching: None.
        int8: whether to store matrices in 8 bits; the model's own are rounded.
        blocks: the backbone's blocks, as they are to be computed; in its own dtype by default.

    Raises:
        ValueError: another backbone than `GPT1Backbone`, or batching.
    """

    def __init__(
        self,
        model: RawTextTask,
        batching: Batching | None = None,
        int8: bool = False,
        blocks: Sequence[ServedBlock] | None = None,
    ) -> None:
        if not isinstance(model.backbone, gpt1_keras.GPT1Backbone):
            raise ValueError(
                "A language model needs a GPT1Backbone to be exported. Received: "
                f"{type(model.backbone).__name__}."
            )
        if batching:
            raise ValueError(
                "A language model's requests cannot be merged: export it without batching."
            )
        # Its context, which may be longer than what it was trained on.
        super().__init__(model, model.backbone.max_sequence_length, int8, blocks)
        decoder = CachedDecoder(model.backbone, blocks) if blocks else None
        self._set_untracked(
            _backbone=model.backbone,
            _states=decoder.states if decoder else self._states_of_backbone,
            _states_with_cache=(decoder or model).states_with_cache,
        )
        self._tokenizer = model.preprocessor.tokenizer
        ids = tf.range(model.backbone.vocabulary_size)
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
        score = self.default_function()
        return {
            DEFAULT_SIGNATURE: score,
            SCORE: score,
            GENERATE: compiled(self._for_any_batch(self._generate), {**text, **options}),
            TOKENIZE: compiled(self._tokenize_with_offsets, text),
        }

    def default_function(self) -> ConcreteFunction:
        text = {"text": tf.TensorSpec([None], tf.string, "text")}
        return compiled(self._for_any_batch(self._score), text)

    def sample(self, length: int) -> dict[str, tf.Tensor]:
        """Returns a text of so many tokens, and how to continue it."""
        values = {"length": [1], "temperature": [1.0], "top_k": [0], "seed": [0]}
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

    def _score(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        inputs = self._tokenize(text)
        token_ids, mask = inputs["token_ids"], inputs["padding_mask"]
        states = self._states(token_ids)

        def log_probabilities(row: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
            states, targets = row
            logits = tf.cast(self._logits(states), tf.float32)
            return -tf.nn.sparse_softmax_cross_entropy_with_logits(targets, logits)

        # One text at a time: all logits of many texts would not fit in memory.
        of_targets = tf.map_fn(
            log_probabilities, (states[:, :-1], token_ids[:, 1:]), fn_output_signature=tf.float32
        )
        of_targets *= tf.cast(mask[:, 1:], tf.float32)
        num_tokens = tf.reduce_sum(mask, axis=-1)
        count = tf.cast(num_tokens - 1, tf.float32)
        return {
            "token_ids": token_ids,
            "log_probabilities": tf.pad(of_targets, [[0, 0], [1, 0]]),
            "score": tf.math.divide_no_nan(tf.reduce_sum(of_targets, axis=-1), count),
            "num_tokens": num_tokens,
            "truncated": inputs["truncated"],
        }

    def _generate(
        self,
        text: tf.Tensor,
        length: tf.Tensor,
        temperature: tf.Tensor,
        top_k: tf.Tensor,
        seed: tf.Tensor,
    ) -> dict[str, tf.Tensor]:
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
        token_ids = self._continue(prompts, kept, length, temperature, top_k, seed)
        rows, total = tf.unstack(tf.shape(token_ids))
        flat, starts = tf.reshape(token_ids, [-1]), total * tf.range(rows)
        ends = kept + length
        return {
            "text": self._tokenizer.detokenize(_slices(flat, starts, starts + ends)),
            "continuation": self._tokenizer.detokenize(_slices(flat, starts + kept, starts + ends)),
            "num_tokens": ends,
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
        prompts: tf.RaggedTensor,
        kept: tf.Tensor,
        length: tf.Tensor,
        temperature: tf.Tensor,
        top_k: tf.Tensor,
        seed: tf.Tensor,
    ) -> tf.Tensor:
        """Prompts with their continuations, then any ids, int32 `[batch, longest]`."""
        total = tf.reduce_max(kept + length)
        uniform = uniform_numbers(seed, self.sequence_length)
        first = tf.reduce_min(kept)
        token_ids = prompts.to_tensor(0, shape=tf.stack([-1, total]))
        cache = self._model.empty_cache(tf.shape(token_ids)[0], total)
        # All but the last token that every prompt has are read at once; then token by token, each
        # returning the next, which is the prompt's own as long as it has one.
        _, cache = self._states_with_cache(token_ids[:, : first - 1], cache, 0)

        def step(position: tf.Tensor, token_ids: tf.Tensor, cache: tf.Tensor) -> tuple[Any, ...]:
            last = tf.gather(token_ids, [position - 1], axis=1)
            state, cache = self._states_with_cache(last, cache, position - 1)
            sampled = sample_tokens(
                tf.cast(self._logits(state[:, 0]), tf.float32) + self._never,
                tf.gather(uniform, tf.maximum(position - kept, 0), batch_dims=1),
                temperature,
                top_k,
            )
            is_new = (tf.range(total) == position) & (position >= kept)[:, tf.newaxis]
            token_ids = tf.where(is_new, sampled[:, tf.newaxis], token_ids)
            return position + 1, token_ids, cache

        return tf.while_loop(
            lambda position, *_: position < total,
            step,
            (first, token_ids, cache),
            shape_invariants=(
                first.shape,
                tf.TensorShape([None, None]),
                tf.TensorShape([None, *cache.shape[1:4], None, cache.shape[5]]),
            ),
        )[1]

    def _states_of_backbone(self, token_ids: tf.Tensor) -> tf.Tensor:
        return self._backbone({"token_ids": token_ids}, training=False)

    def _logits(self, states: tf.Tensor) -> tf.Tensor:
        return self._backbone.token_embedding(states, reverse=True)


def _slices(values: tf.Tensor, starts: tf.Tensor, ends: tf.Tensor) -> tf.RaggedTensor:
    """A ragged tensor of slices of a flat one."""
    indices = tf.ragged.range(starts, ends)
    return indices.with_values(tf.gather(values, indices.values))
