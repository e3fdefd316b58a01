"""Continues many prompts at once, each with its own length and sampling options."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from serving.export.decoder.cached_decoder import Cache, CachedDecoder
from serving.export.language_model.sampling import sample_tokens, uniform_numbers

# Steps until the window moves to the long cache. Each step copies the window, and each move copies
# everything: about the square root of a context keeps both costs small.
_WINDOW = 16


def continuations(
    decoder: CachedDecoder,
    logits: Callable[[tf.Tensor], tf.Tensor],
    prompts: tf.Tensor,
    kept: tf.Tensor,
    length: tf.Tensor,
    temperature: tf.Tensor,
    top_k: tf.Tensor,
    top_p: tf.Tensor,
    seed: tf.Tensor,
) -> tf.Tensor:
    """Continues prompts token by token.

    No continuation depends on the other prompts. Texts that have all their tokens are no longer
    computed, and the cache has no more columns than the longest remaining text needs.

    Args:
        logits: from hidden states, float `[n, hidden_dim]`, to float32 `[n, vocabulary_size]`.
        prompts: int32 `[batch, context]`, padded on the right.
        kept: int32 `[batch]`, the prompts' numbers of tokens, at least 1.
        length: int32 `[batch]`, the numbers of tokens to add, at least 1. Prompt and continuation
            together must fit into the context.
        temperature, top_k, top_p: as in `sample_tokens`.
        seed: int32 `[batch]`, as in `uniform_numbers`.

    Returns:
        int32 `[batch, context]`, the added tokens, and then zeros.
    """
    context = tf.shape(prompts)[1]
    # From long to short, so that the remaining texts are always the first rows.
    order = tf.argsort(length, direction="DESCENDING", stable=True)
    prompts, kept, length, temperature, top_k, top_p, seed = (
        tf.gather(each, order) for each in (prompts, kept, length, temperature, top_k, top_p, seed)
    )
    uniform = uniform_numbers(seed, prompts.shape[1])

    def sample(states: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
        """Samples the token of this number in each continuation, int32 `[n, 1]`."""
        rows = tf.shape(states)[0]
        options = temperature[:rows], top_k[:rows], top_p[:rows]
        return sample_tokens(logits(states), uniform[:rows, number], *options)[:, tf.newaxis]

    def segment(tokens: tf.Tensor, starts: tf.Tensor, cache: Cache, window: Cache) -> Any:
        """Adds tokens until the window is full, or a text has all its tokens."""
        done = tf.shape(tokens)[1]
        rows = tf.math.count_nonzero(length > done, dtype=tf.int32)
        steps = tf.minimum(_WINDOW, length[rows - 1] - done)
        starts = starts[:rows]
        unused = tf.reduce_min(starts)
        starts -= unused
        cache = [
            tuple(
                tf.concat([old[:rows, :, unused:], new[:rows]], axis=2) for old, new in zip(*pair)
            )
            for pair in zip(cache, window)
        ]
        window = tf.nest.map_structure(
            lambda each: tf.zeros([rows, each.shape[1], steps, each.shape[3]], each.dtype), cache
        )

        def step(index: tf.Tensor, added: tf.Tensor, window: Cache) -> tuple[Any, ...]:
            number = done + index
            states, window = decoder.step(
                added[:, -1], kept[:rows] + number - 1, cache, starts, window, index
            )
            return index + 1, tf.concat([added, sample(states, number)], axis=1), window

        _, added, window = tf.while_loop(
            lambda index, *_: index < steps,
            step,
            (0, tokens[:rows, -1:], window),
            shape_invariants=(tf.TensorShape([]), tf.TensorShape([None, None]), _shapes(window)),
            parallel_iterations=1,
        )
        added = tf.pad(added[:, 1:], [[0, tf.size(length) - rows], [0, 0]])
        return tf.concat([tokens, added], axis=1), starts, cache, window

    states, cache = decoder.read(prompts, kept)
    empty = tf.nest.map_structure(lambda each: each[:, :, :0], cache)
    tokens, *_ = tf.while_loop(
        lambda tokens, *_: tf.shape(tokens)[1] < length[0],
        segment,
        (sample(states, tf.constant(0)), tf.reduce_max(kept) - kept, cache, empty),
        shape_invariants=(
            *(tf.TensorShape([None, None]), tf.TensorShape([None])),
            *(_shapes(cache), _shapes(empty)),
        ),
        parallel_iterations=1,
    )
    tokens = tf.pad(tokens, [[0, 0], [0, context - tf.shape(tokens)[1]]])
    return tf.ensure_shape(
        tf.gather(tokens, tf.math.invert_permutation(order)), [None, prompts.shape[1]]
    )


def _shapes(cache: Cache) -> Any:
    """Returns the shapes of a cache, with any number of texts and columns."""
    return tf.nest.map_structure(
        lambda each: tf.TensorShape([None, each.shape[1], None, each.shape[3]]), cache
    )
