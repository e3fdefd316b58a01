"""The paper's input transformations (section 3.3): tokenized segments to framed ids."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gpt1_keras.lazy import tensorflow as tf
from gpt1_keras.tokenization.padding import SpecialIds

# How two segments that are too long together are truncated. By `ROUND_ROBIN` they get tokens in
# turn, as in KerasHub, so a pair that fits keeps all tokens. By `HALVES` each keeps at most half of
# the room, as in the paper's released code.
ROUND_ROBIN, HALVES = "round_robin", "halves"
TRUNCATIONS = (ROUND_ROBIN, HALVES)


def frame(
    segments: Sequence[tf.RaggedTensor],
    tokenizer: SpecialIds,
    sequence_length: int,
    truncate: str = ROUND_ROBIN,
    tail: float = 0.0,
) -> tuple[tf.RaggedTensor, tf.Tensor]:
    """Frames segments: `[start] first [delimiter] second ... [extract]`.

    Classification frames one segment, and entailment two: premise and hypothesis. Each segment
    keeps as many tokens as `kept_lengths` returns, which raises ValueError if there is no room for
    text.

    Args:
        segments: token ids of one or two segments, each int32 `[batch, None]`.
        tokenizer: for the special ids.
        sequence_length: the most tokens in a sequence.
        truncate: one of `TRUNCATIONS`, for two segments.
        tail: the share of the kept tokens of a truncated segment that are its last ones; by
            default, it keeps its first ones alone.

    Returns `(ids, truncated)`: int32 `[batch, None]`; and bool `[batch]`, whether any segment was
    truncated.
    """
    lengths = [segment.row_lengths() for segment in segments]
    kept_of_each = kept_lengths(lengths, sequence_length, truncate, tf.minimum, tf.maximum)
    pool, starts, (start, delimiter, extract) = _pool(segments, tokenizer)
    zero = tf.zeros_like(lengths[0])
    slices = [(start + zero, 1 + zero)]
    for segment in zip(starts, lengths, kept_of_each):
        slices += [*kept_slices(*segment, tail), (delimiter + zero, 1 + zero)]
    slices[-1] = extract + zero, 1 + zero
    slice_starts, kept = _columns(slices)
    ids = tf.RaggedTensor.from_row_lengths(
        tf.gather(pool, _ranges(slice_starts, kept)), tf.reduce_sum(kept, axis=1), validate=False
    )
    truncated = tf.reduce_any(tf.stack(kept_of_each) < tf.stack(lengths), axis=0)
    return ids, truncated


def frame_windows(
    segment: tf.RaggedTensor,
    tokenizer: SpecialIds,
    sequence_length: int,
    tail: float,
    windows: int,
) -> tuple[tf.RaggedTensor, tf.Tensor]:
    """Frames each text as one window or more, `[start] share [extract]`.

    A text that is too long for one sequence is cut into as few shares as fit into one, of equal
    lengths as far as possible, and at most into `windows`. Shares that are still too long are
    truncated as texts are; see `frame`.

    Returns `(ids, truncated)`: int32 `[batch, None, None]`, the windows of each text; and bool
    `[batch]`, whether any share was truncated.
    """
    [room] = kept_lengths([sequence_length], sequence_length)
    lengths = segment.row_lengths()
    counts = tf.clip_by_value(-(-lengths // room), 1, windows)
    numbers = tf.ragged.range(counts)
    length, count = (tf.gather(each, numbers.value_rowids()) for each in (lengths, counts))
    start, end = ((numbers.values + each) * length // count for each in (0, 1))
    shares = tf.RaggedTensor.from_row_lengths(segment.values, end - start, validate=False)
    ids, _ = frame([shares], tokenizer, sequence_length, tail=tail)
    return numbers.with_values(ids), lengths > windows * room


def interleave(first: tf.RaggedTensor, second: tf.RaggedTensor) -> tf.RaggedTensor:
    """Returns the rows of both, `[batch, None]`, in turn: `[2 * batch, None]`."""
    batch = first.nrows()
    order = tf.reshape(tf.stack([tf.range(batch), batch + tf.range(batch)], axis=1), [-1])
    return tf.gather(tf.concat([first, second], axis=0), order)


def kept_lengths(
    lengths: Sequence[Any],
    sequence_length: int,
    truncate: str = ROUND_ROBIN,
    least: Callable[..., Any] = min,
    most: Callable[..., Any] = max,
) -> list[Any]:
    """Returns how many tokens each of one or two segments keeps, from their lengths.

    Lengths are ints; or int tensors of one shape, for which `least` and `most` are `tf.minimum` and
    `tf.maximum`. Raises ValueError if `sequence_length` leaves no room for text.
    """
    if len(lengths) == 1:
        return [least(lengths[0], _checked(sequence_length - 2, 1, sequence_length))]
    first, second = lengths
    limit = second_limit(first, sequence_length, truncate, most)
    kept = least(second, limit)
    return [least(first, limit if truncate == HALVES else sequence_length - 3 - kept), kept]


def kept_at_end(kept: Any, tail: float) -> Any:
    """Returns how many of the kept tokens of a truncated segment are its last ones; see `frame`.

    Takes and returns an int or an int tensor, so that all backends round alike.
    """
    return kept * round(1000 * tail) // 1000


def second_limit(
    first: Any, sequence_length: int, truncate: str, most: Callable[..., Any] = max
) -> Any:
    """Returns the most tokens that the second segment keeps beside a first; see `kept_lengths`."""
    if truncate == HALVES:
        return _checked(sequence_length // 2 - 2, 2, sequence_length)
    room = sequence_length - 3
    return most(room - first, _checked(room // 2, 2, sequence_length))


def _checked(limit: int, segments: int, sequence_length: int) -> int:
    """Returns the tokens that a segment may always keep; ValueError if there are none."""
    if limit < 1:
        raise ValueError(
            f"sequence_length={sequence_length} leaves no room for {segments} texts beside the "
            "special tokens."
        )
    return limit


def frame_choices(
    segments: Sequence[tf.RaggedTensor],
    tokenizer: SpecialIds,
    sequence_length: int,
    truncate: str = ROUND_ROBIN,
    tail: float = 0.0,
) -> tuple[dict[str, tf.RaggedTensor], tf.Tensor]:
    """Frames the choices of a question as branches after a shared prefix.

    The shared prefix is `[start] context question`, and each branch is `[delimiter] choice
    [extract]`. In the paper, the prefix with one branch is a sequence; here the prefix appears
    once, followed by all branches. A choice is truncated as the second of two segments, of which
    the first is the context with the question. If the prefix with its longest branch is still
    longer than `sequence_length`, the context is truncated, and the question only when no context
    is left.

    Segments are int32: `[batch, None]` of contexts and, if there are any, of questions, which may
    be empty; and `[batch, None, None]` of choices. All else is as for `frame`.

    Returns `(sequence, truncated)`: a dict of int32 `[batch, None]`: `token_ids`, `positions`, and
    `branches`, which is 0 in the prefix and 1, 2, ... in the branches; and bool `[batch]`, whether
    any text was truncated.
    """
    context, *questions, choices = segments
    question = questions[0] if questions else context[:, :0]
    examples, choice_texts, example = context.nrows(), choices.values, choices.value_rowids()
    prefix = tf.gather(context.row_lengths() + question.row_lengths(), example)
    limit = second_limit(prefix, sequence_length, truncate, tf.maximum)
    kept_choice = tf.minimum(choice_texts.row_lengths(), limit)
    # All choices share the prefix, so the longest of them limits its length.
    longest = tf.math.unsorted_segment_max(kept_choice, example, examples)
    room = sequence_length - 3 - tf.maximum(longest, 0)
    kept_question = tf.minimum(question.row_lengths(), room)
    kept_context = tf.minimum(context.row_lengths(), room - kept_question)
    removed_from_choices = tf.math.unsorted_segment_sum(
        choice_texts.row_lengths() - kept_choice, example, examples
    )
    truncated = (
        (kept_context < context.row_lengths())
        | (kept_question < question.row_lengths())
        | (removed_from_choices > 0)
    )

    pool, starts, special = _pool([context, question, choice_texts], tokenizer)
    start, delimiter, extract = special
    zero, branch_zero = tf.zeros_like(kept_context), tf.zeros_like(kept_choice)
    of_context, of_question, of_choices = (
        kept_slices(first, text.row_lengths(), kept, tail)
        for first, text, kept in zip(
            starts,
            (context, question, choice_texts),
            (kept_context, kept_question, kept_choice),
        )
    )
    prefixes = _columns([(start + zero, 1 + zero), *of_context, *of_question])
    branches = _columns(
        [
            (delimiter + branch_zero, 1 + branch_zero),
            *of_choices,
            (extract + branch_zero, 1 + branch_zero),
            # As many slices as a prefix has.
            *[(branch_zero, branch_zero)] * (len(of_context) - 1),
        ]
    )
    # The order in which each example's prefix is followed by its branches.
    order = tf.argsort(tf.concat([tf.range(examples), example], axis=0), stable=True)

    def ordered(of_prefixes: tf.Tensor, of_branches: tf.Tensor) -> tf.Tensor:
        return tf.gather(tf.concat([of_prefixes, of_branches], axis=0), order)

    slice_starts, kept = (ordered(*columns) for columns in zip(prefixes, branches))
    prefix_lengths = tf.reduce_sum(prefixes[1], axis=1)
    first_positions = ordered(zero, tf.gather(prefix_lengths, example))
    positions = first_positions[:, tf.newaxis] + tf.cumsum(kept, axis=1, exclusive=True)
    branch = 1 + tf.range(tf.size(example, tf.int64)) - tf.gather(choices.row_starts(), example)
    ends = tf.cumsum(tf.reduce_sum(kept, axis=1))
    part = tf.searchsorted(ends, tf.range(tf.reduce_sum(kept)), side="right")
    flat = {
        "token_ids": tf.gather(pool, _ranges(slice_starts, kept)),
        "positions": tf.cast(_ranges(positions, kept), tf.int32),
        "branches": tf.cast(tf.gather(ordered(zero, branch), part), tf.int32),
    }
    branches_lengths = tf.math.unsorted_segment_sum(
        tf.reduce_sum(branches[1], axis=1), example, examples
    )
    sequence = {
        name: tf.RaggedTensor.from_row_lengths(
            values, prefix_lengths + branches_lengths, validate=False
        )
        for name, values in flat.items()
    }
    return sequence, truncated


# Functions of ragged tensors would take hundreds of ops to frame texts, and each op costs time even
# if its tensors are small. So sequences are assembled from slices of one flat tensor.


def _pool(
    texts: Sequence[tf.RaggedTensor], tokenizer: SpecialIds
) -> tuple[tf.Tensor, list[tf.Tensor], tuple[tf.Tensor, tf.Tensor, tf.Tensor]]:
    """Joins all tokens of ragged texts, and then the special tokens, to one flat tensor.

    Returns:
        `(tokens, starts, specials)`: int32 `[tokens]`; for each of the texts, int64 `[rows]`, the
        indices of its rows' first tokens; and the indices of `[start]`, `[delimiter]`, `[extract]`.
    """
    specials = [tokenizer.start_token_id, tokenizer.delimiter_token_id, tokenizer.extract_token_id]
    tokens = tf.concat([*(text.values for text in texts), specials], axis=0)
    starts, length = [], tf.zeros((), tf.int64)
    for text in texts:
        starts.append(length + text.row_starts())
        length += tf.size(text.values, tf.int64)
    return tokens, starts, (length, length + 1, length + 2)


def kept_slices(
    start: tf.Tensor, length: tf.Tensor, kept: tf.Tensor, tail: float
) -> list[tuple[tf.Tensor, tf.Tensor]]:
    """Returns the slices that a text keeps, in which a whole text has all of its tokens.

    `start`, `length` and `kept`, int64 `[rows]`, are the index of the text's first token in the
    pool, its number of tokens, and how many of them it keeps.
    """
    if not tail:
        return [(start, kept)]
    end = kept_at_end(kept, tail)
    return [(start, kept - end), (start + length - end, end)]


def _columns(slices: Sequence[tuple[tf.Tensor, tf.Tensor]]) -> list[tf.Tensor]:
    """Stacks slices, each a (start, length) `[rows]`, to starts and lengths `[rows, slices]`."""
    return [tf.stack(column, axis=1) for column in zip(*slices)]


def _ranges(starts: tf.Tensor, lengths: tf.Tensor) -> tf.Tensor:
    """Returns the indices in all slices, one slice after the other: int64 `[sum of lengths]`."""
    starts = tf.reshape(starts, [-1])
    return tf.ragged.range(starts, starts + tf.reshape(lengths, [-1])).values
