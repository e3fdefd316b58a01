"""Continues many prompts at once: decodes, samples, and joins the words as people write them."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from serving.export.decoder.packed_decoder import Cache, CachedDecoder

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


_TINY = np.finfo(np.float32).tiny  # processors may treat smaller numbers as 0


def uniform_numbers(seeds: tf.Tensor, count: int) -> tf.Tensor:
    """Returns `count` numbers in [0, 1) for each text, independent of the other texts.

    Args:
        seeds: int32 `[batch]`.

    Returns:
        float32 `[batch, count]`.
    """
    return tf.map_fn(
        lambda seed: tf.random.stateless_uniform([count], tf.stack([seed, 0])),
        seeds,
        fn_output_signature=tf.float32,
    )


def sample_tokens(
    logits: tf.Tensor,
    uniform: tf.Tensor,
    temperature: tf.Tensor,
    top_k: tf.Tensor,
    top_p: tf.Tensor,
) -> tf.Tensor:
    """Samples a token for each text by the inverse of the tokens' distribution function.

    Args:
        logits: float32 `[batch, vocabulary_size]`.
        uniform: float32 `[batch]`, numbers in [0, 1).
        temperature: float32 `[batch]`, 0 for the likeliest token.
        top_k: int32 `[batch]`, the number of likeliest tokens to choose from, 0 for all.
        top_p: float32 `[batch]`: of these, only the likeliest that together have this probability,
            at least one; 1 for all.

    Returns:
        int32 `[batch]`, ids.
    """
    vocabulary_size = tf.shape(logits)[1]
    is_greedy, is_nucleus = temperature < _TINY, top_p < 1.0
    has_all = (top_k == 0) | (top_k >= vocabulary_size)
    from_all = ~is_greedy & ~is_nucleus & has_all
    # Only as many tokens are sorted as a text needs; texts that choose from all need none.
    count = tf.where(has_all, vocabulary_size, top_k)
    count = tf.where(is_greedy | from_all, 1, count)
    values, ids = tf.math.top_k(logits, tf.reduce_max(tf.concat([count, [1]], axis=0)))
    is_kept = tf.range(tf.shape(values)[1]) < count[:, tf.newaxis]
    divisor = tf.where(is_greedy, 1.0, temperature)
    values = tf.where(is_kept, values, float("-inf"))
    likelier = tf.cumsum(tf.nn.softmax(values / divisor[:, tf.newaxis]), axis=-1, exclusive=True)
    is_kept = ~is_nucleus[:, tf.newaxis] | (likelier < top_p[:, tf.newaxis])
    values = tf.where(is_kept, values, float("-inf"))
    tokens = tf.gather(ids, _sample(values, uniform, divisor), batch_dims=1)
    rows = tf.where(from_all)
    logits, uniform, divisor = (tf.gather_nd(each, rows) for each in (logits, uniform, divisor))
    return tf.tensor_scatter_nd_update(tokens, rows, _sample(logits, uniform, divisor))


def _sample(logits: tf.Tensor, uniform: tf.Tensor, temperature: tf.Tensor) -> tf.Tensor:
    """Samples columns, int32 `[batch]`, and never one whose logit is minus infinity."""
    largest = tf.reduce_max(logits, axis=-1, keepdims=True)
    weights = tf.exp((logits - largest) / temperature[:, tf.newaxis])
    # A column's sum does not depend on how many columns come after it.
    cumulative = tf.cumsum(weights, axis=-1)
    reached = (uniform * cumulative[:, -1])[:, tf.newaxis]
    index = tf.reduce_sum(tf.cast(cumulative <= reached, tf.int32), axis=-1)
    return tf.minimum(index, tf.shape(logits)[1] - 1)


# What has no space before it, and may be a word by itself; and what begins a word, such as ".5".
_CLOSING = r"[.,!?;:%)\]}…]"
_PROTECTED = "\x01"  # stands for a space meanwhile; normalisations remove it from texts
_RULES = (
    # `bert` makes three words of "it's", and `original` two.
    (r" ' ?(s|t|m|d|ll|re|ve)( |\n|$)", r"'\1\2"),
    (r" n't( |\n|$)", r"n't\1"),
    (rf" ({_CLOSING})([^\s.,!?;:%)\]}}…])", rf"{_PROTECTED}\1\2"),
    (rf" ({_CLOSING})", r"\1"),
    (_PROTECTED, " "),
    (r"([(\[{]) ", r"\1"),
    (r" ?\n ?", "\n"),
)


def joined(texts: tf.Tensor) -> tf.Tensor:
    """Removes the spaces that tokenization puts around punctuation and inside contractions.

    `it did n't ( yet ) .` becomes `it didn't (yet).`. Quotation marks and hyphens keep their
    spaces, as it takes the meaning of a text to know which word they belong to.

    Args:
        texts: words separated by spaces, string of any shape.
    """
    for pattern, rewrite in _RULES:
        texts = tf.strings.regex_replace(texts, pattern, rewrite)
    return texts


def joined_continuations(texts: tf.Tensor) -> tf.Tensor:
    """Like `joined`, for texts that go on from others: they are joined as in the whole text."""
    return tf.strings.strip(joined(tf.strings.join([" ", texts])))


def before_stops(texts: tf.Tensor, stops: tf.Tensor) -> tf.Tensor:
    """Cuts each text before the earliest place where one of its stop texts occurs.

    Args:
        texts: string `[batch]`.
        stops: string `[batch, n]`; an empty string is none.

    Returns:
        string `[batch]`.
    """

    def cut(inputs: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        text, row = inputs

        def earlier(end: tf.Tensor, stop: tf.Tensor) -> tf.Tensor:
            before = tf.cond(
                tf.equal(stop, ""),  # an empty separator would be white space
                lambda: text,
                lambda: tf.strings.split(text, stop)[0],
            )
            return tf.minimum(end, tf.strings.length(before))

        return tf.strings.substr(text, 0, tf.foldl(earlier, row, tf.strings.length(text)))

    return tf.map_fn(cut, (texts, stops), fn_output_signature=tf.string)
