"""The signatures of a language model's export: log-probabilities, and text generation."""

import tensorflow as tf

from gpt1_keras.tokenization.input_transformations import bucket_lengths, pad
from serving.export.quantization import saved_variables
from serving.export.task_signatures import compiled, words


class LanguageModelSignatures(tf.Module):
    """A language model's signatures, as functions of named tensors.

    - `serving_default` and `score`: `text`, string `[batch]`, to `token_ids`, int32
      `[batch, length]`; `log_probabilities`, float `[batch, length]`, of each token behind those
      before it, in nats, 0 of the first, which is given, and of padding; `score`, float `[batch]`,
      their mean.
    - `generate`: `text`; and of each text `length`, int32 `[batch]`, how many tokens to add;
      `temperature`, float `[batch]`, 0 for the likeliest token always; `top_k`, int32 `[batch]`,
      from how many of the likeliest to draw, 0 for all; `seed`, int32 `[batch]`. To `text`, string
      `[batch]`, all of it as normalised, and `continuation`, what was added. Of a text too long to
      be continued, the beginning is left out.
    - `tokenize`: `text` to `token_ids` and `padding_mask`, int32 `[batch, length]`.

    All outputs have `num_tokens`, int32 `[batch]`, and `truncated`, bool `[batch]`.

    Args:
        model: `GPT1CausalLM` with a `GPT1Backbone` and a preprocessor.
        int8: bool, weights in 8 bits; the model's are rounded.
    """

    def __init__(self, model, int8=False):
        super().__init__()
        # Tracked, they would bring all weights into the checkpoint a second time.
        object.__setattr__(self, "_model", model)
        object.__setattr__(self, "_backbone", model.backbone)
        self._tokenizer = model.preprocessor.tokenizer
        self.sequence_length = model.backbone.max_sequence_length  # not what it was trained on
        self._variables = saved_variables(model, int8)
        ids = tf.range(model.backbone.vocabulary_size)
        is_word = ids < self._tokenizer.vocabulary_size()
        for special in self._tokenizer.special_token_ids:
            is_word &= ids != special
        self._never = tf.where(is_word, 0.0, float("-inf"))

    def functions(self):
        """The signatures by name."""
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
        score = compiled(self._score, text)
        return {
            "serving_default": score,
            "score": score,
            "generate": compiled(self._generate, {**text, **options}),
            "tokenize": compiled(self._tokenize, text),
        }

    def bucket_lengths(self):
        """The lengths that texts are padded to, a list of int."""
        return bucket_lengths(self.sequence_length)

    def sample(self, length):
        """A text of so many tokens, and how to continue it, as tensors."""
        values = {"length": [1], "temperature": [1.0], "top_k": [0], "seed": [0]}
        return {"text": tf.constant([words(length)])} | {
            name: tf.constant(value) for name, value in values.items()
        }

    def _tokenize(self, text):
        ids = self._tokenizer.tokenize(text)
        padded = pad(ids[:, : self.sequence_length], self._tokenizer, self.sequence_length)
        return {**padded, "truncated": ids.row_lengths() > self.sequence_length}

    def _score(self, text):
        inputs = self._tokenize(text)
        token_ids, mask = inputs["token_ids"], inputs["padding_mask"]
        states = self._backbone({"token_ids": token_ids}, training=False)

        def log_probabilities(row):
            states, targets = row
            logits = tf.cast(self._logits(states), tf.float32)
            return -tf.nn.sparse_softmax_cross_entropy_with_logits(targets, logits)

        # One text at a time: all logits of many texts would not fit the memory.
        behind = tf.map_fn(
            log_probabilities, (states[:, :-1], token_ids[:, 1:]), fn_output_signature=tf.float32
        )
        behind *= tf.cast(mask[:, 1:], tf.float32)
        num_tokens = tf.reduce_sum(mask, axis=-1)
        count = tf.cast(num_tokens - 1, tf.float32)
        return {
            "token_ids": token_ids,
            "log_probabilities": tf.pad(behind, [[0, 0], [1, 0]]),
            "score": tf.math.divide_no_nan(tf.reduce_sum(behind, axis=-1), count),
            "num_tokens": num_tokens,
            "truncated": inputs["truncated"],
        }

    def _generate(self, text, length, temperature, top_k, seed):
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
        flat, begins = tf.reshape(token_ids, [-1]), total * tf.range(rows)
        ends = kept + length
        return {
            "text": self._tokenizer.detokenize(_slices(flat, begins, begins + ends)),
            "continuation": self._tokenizer.detokenize(_slices(flat, begins + kept, begins + ends)),
            "num_tokens": ends,
            "truncated": before > kept,
        }

    def _checks(self, length, temperature, top_k):
        return [
            tf.debugging.Assert(tf.size(length) > 0, ["There is no text to continue."]),
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

    def _continue(self, prompts, kept, length, temperature, top_k, seed):
        """Prompts with their continuations, and anything behind, int32 `[batch, longest]`."""
        total = tf.reduce_max(kept + length)
        # One draw for each token that is added, whatever the other texts are.
        draws = tf.map_fn(
            lambda row: tf.random.stateless_uniform([self.sequence_length], tf.stack([row, 0])),
            seed,
            fn_output_signature=tf.float32,
        )
        first = tf.reduce_min(kept)
        token_ids = prompts.to_tensor(0, shape=tf.stack([-1, total]))
        cache = self._model.empty_cache(tf.shape(token_ids)[0], total)
        # All but the last token that every prompt has are read at once; then token by token, each
        # giving the next, which is the prompt's own as long as it has one.
        _, cache = self._model.states_with_cache(token_ids[:, : first - 1], cache, 0)

        def step(position, token_ids, cache):
            last = tf.gather(token_ids, [position - 1], axis=1)
            state, cache = self._model.states_with_cache(last, cache, position - 1)
            drawn = _draw(
                tf.cast(self._logits(state[:, 0]), tf.float32) + self._never,
                tf.gather(draws, tf.maximum(position - kept, 0), batch_dims=1),
                temperature,
                top_k,
            )
            is_drawn = (tf.range(total) == position) & (position >= kept)[:, tf.newaxis]
            token_ids = tf.where(is_drawn, drawn[:, tf.newaxis], token_ids)
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

    def _logits(self, states):
        return self._backbone.token_embedding(states, reverse=True)


def _slices(values, begins, ends):
    """A ragged tensor of slices of a flat one."""
    places = tf.ragged.range(begins, ends)
    return places.with_values(tf.gather(values, places.values))


def _draw(logits, uniform, temperature, top_k):
    """Draws a token for each row, from those of its `top_k` likeliest, by the inverse of their
    distribution function; int32 `[batch]`.
    """
    count = tf.where(top_k > 0, tf.minimum(top_k, tf.shape(logits)[1]), tf.shape(logits)[1])
    count = tf.where(temperature > 0.0, count, 1)
    values, ids = tf.math.top_k(logits, tf.reduce_max(count))
    is_kept = tf.range(tf.shape(values)[1]) < count[:, tf.newaxis]
    values /= tf.where(temperature > 0.0, temperature, 1.0)[:, tf.newaxis]
    shares = tf.cumsum(tf.nn.softmax(tf.where(is_kept, values, float("-inf"))), axis=-1)
    place = tf.reduce_sum(tf.cast(shares <= uniform[:, tf.newaxis], tf.int32), axis=-1)
    return tf.gather(ids, tf.minimum(place, count - 1), batch_dims=1)
