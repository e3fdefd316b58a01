"""The paper's input transformations (section 3.3): tokenized segments to framed, padded ids."""

from gpt1_keras.lazy import tensorflow as tf

SMALLEST_BUCKET = 16


def frame(segments, tokenizer, sequence_length):
    """Frames segments: `[start] first [delimiter] second ... [extract]`.

    One segment is classification's transformation, two (premise, hypothesis) are entailment's.
    A text too long is cut on its right: one segment to `sequence_length` - 2 tokens, each of
    several to `sequence_length // 2 - 2`, as in the released code.

    Args:
        segments: list of ragged int32 `[batch, None]`, the token ids of one or two segments.
        tokenizer: `GPT1Tokenizer`, for the special ids.
        sequence_length: int, the most tokens a framed text may have.

    Raises:
        ValueError: a sequence_length that leaves no room for text.

    Returns:
        `(ids, truncated)`: ragged int32 `[batch, None]`, and bool `[batch]`, whether a segment
        was cut.
    """
    limit = segment_limit(len(segments), sequence_length)
    lengths = [segment.row_lengths() for segment in segments]
    pool, begins, (start, delimiter, extract) = _pool(segments, tokenizer)
    none = tf.zeros_like(lengths[0])
    pieces = [(start + none, 1 + none)]
    for begin, length in zip(begins, lengths):
        pieces += [(begin, tf.minimum(length, limit)), (delimiter + none, 1 + none)]
    pieces[-1] = extract + none, 1 + none
    begins, kept = _columns(pieces)
    ids = tf.RaggedTensor.from_row_lengths(
        tf.gather(pool, _ranges(begins, kept)), tf.reduce_sum(kept, axis=1), validate=False
    )
    truncated = tf.reduce_any(tf.stack([length > limit for length in lengths]), axis=0)
    return ids, truncated


def segment_limit(segments, sequence_length):
    """The most tokens that each of so many segments keeps; see `frame` for them and the error."""
    limit = sequence_length - 2 if segments == 1 else sequence_length // 2 - 2
    if limit < 1:
        raise ValueError(
            f"sequence_length={sequence_length} leaves no room for {segments} texts beside the "
            "special tokens."
        )
    return limit


def frame_choices(context, question, choices, tokenizer, sequence_length):
    """Frames answers to a question, all behind the same `[start] context question`.

    Each answer goes on from there as `[delimiter] answer [extract]`; a sequence of the paper's is
    the shared beginning and one such branch. The beginning stands only once, with the branches
    behind it. Where a sequence would be too long, the context is cut on its right; an answer only
    to `sequence_length // 2 - 2` tokens, and a question to what is left.

    Args:
        context, question: ragged int32 `[batch, None]`, token ids; a question may be empty.
        choices: ragged int32 `[batch, None, None]`, the answers' token ids.
        tokenizer: `GPT1Tokenizer`, for the special ids.
        sequence_length: int, the most tokens of a beginning with a branch.

    Returns:
        `(tree, truncated)`: a dict of ragged int32 `[batch, None]` of `token_ids`, `positions`, and
        `branches`, 0 in the beginning and 1, 2, ... in the branches; and bool `[batch]`, whether a
        text was cut.

    Raises:
        ValueError: a sequence_length that leaves no room for text.
    """
    limit = segment_limit(2, sequence_length)
    examples, answers, example = context.nrows(), choices.values, choices.value_rowids()
    kept_answer = tf.minimum(answers.row_lengths(), limit)
    # The beginning is the same for all answers, so the longest of them says how long it may be.
    longest = tf.math.unsorted_segment_max(kept_answer, example, examples)
    room = sequence_length - 3 - tf.maximum(longest, 0)
    kept_question = tf.minimum(question.row_lengths(), room)
    kept_context = tf.minimum(context.row_lengths(), room - kept_question)
    cut_answers = tf.math.unsorted_segment_sum(
        answers.row_lengths() - kept_answer, example, examples
    )
    truncated = (
        (kept_context < context.row_lengths())
        | (kept_question < question.row_lengths())
        | (cut_answers > 0)
    )

    pool, begins, (start, delimiter, extract) = _pool([context, question, answers], tokenizer)
    none, no_branch = tf.zeros_like(kept_context), tf.zeros_like(kept_answer)
    beginnings = _columns(
        [(start + none, 1 + none), (begins[0], kept_context), (begins[1], kept_question)]
    )
    branches = _columns(
        [
            (delimiter + no_branch, 1 + no_branch),
            (begins[2], kept_answer),
            (extract + no_branch, 1 + no_branch),
        ]
    )
    # Each example's beginning, and behind it its branches.
    order = tf.argsort(tf.concat([tf.range(examples), example], axis=0), stable=True)

    def ordered(of_beginnings, of_branches):
        return tf.gather(tf.concat([of_beginnings, of_branches], axis=0), order)

    begins, kept = (ordered(*columns) for columns in zip(beginnings, branches))
    beginning_lengths = tf.reduce_sum(beginnings[1], axis=1)
    first_positions = ordered(none, tf.gather(beginning_lengths, example))
    positions = first_positions[:, tf.newaxis] + tf.cumsum(kept, axis=1, exclusive=True)
    number = 1 + tf.range(tf.size(example, tf.int64)) - tf.gather(choices.row_starts(), example)
    ends = tf.cumsum(tf.reduce_sum(kept, axis=1))
    part = tf.searchsorted(ends, tf.range(tf.reduce_sum(kept)), side="right")
    flat = {
        "token_ids": tf.gather(pool, _ranges(begins, kept)),
        "positions": tf.cast(_ranges(positions, kept), tf.int32),
        "branches": tf.cast(tf.gather(ordered(none, number), part), tf.int32),
    }
    in_branches = tf.math.unsorted_segment_sum(
        tf.reduce_sum(branches[1], axis=1), example, examples
    )
    tree = {
        name: tf.RaggedTensor.from_row_lengths(
            values, beginning_lengths + in_branches, validate=False
        )
        for name, values in flat.items()
    }
    return tree, truncated


# Ragged tensors' own functions would do, but in hundreds of ops, and an op costs time however small
# its tensors are. So texts are put together from pieces of one flat tensor.


def _pool(texts, tokenizer):
    """All tokens of ragged texts one behind the other, and the special ones behind them.

    Returns:
        `(tokens, begins, specials)`: int32; int64 `[rows]` for each of the texts, where its rows
        begin; and the places of `[start]`, `[delimiter]` and `[extract]`.
    """
    specials = [tokenizer.start_token_id, tokenizer.delimiter_token_id, tokenizer.extract_token_id]
    tokens = tf.concat([*(text.values for text in texts), specials], axis=0)
    begins, size = [], tf.zeros((), tf.int64)
    for text in texts:
        begins.append(size + text.row_starts())
        size += tf.size(text.values, tf.int64)
    return tokens, begins, (size, size + 1, size + 2)


def _columns(pieces):
    """Begins and lengths `[rows, pieces]` from a list of (begin, length) `[rows]`."""
    return [tf.stack(column, axis=1) for column in zip(*pieces)]


def _ranges(begins, lengths):
    """All numbers of all pieces, one piece behind the other, int64 `[sum of lengths]`."""
    begins = tf.reshape(begins, [-1])
    return tf.ragged.range(begins, begins + tf.reshape(lengths, [-1])).values


def bucket_lengths(sequence_length):
    """The lengths that texts are padded to: 16, 24, 32, 48, 64, ... and `sequence_length`.

    Steps of 1.5 and 1.33 bound padding to a third of a text, and graphs to a dozen shapes.
    """
    lengths = []
    length = SMALLEST_BUCKET
    while length < sequence_length:
        lengths += [length, length + length // 2]
        length *= 2
    return [length for length in lengths if length < sequence_length] + [sequence_length]


def pad(ids, tokenizer, sequence_length):
    """Pads framed ids on the right, to the smallest bucket that holds the longest.

    Args:
        ids: ragged int32 `[batch, None]`, no row longer than `sequence_length`.
        tokenizer: `GPT1Tokenizer`, for the padding id.
        sequence_length: int, the longest bucket.

    Returns:
        dict of int32 `[batch, bucket]`: `token_ids`, and `padding_mask`, 1 where a token is.
    """
    length = _bucket(ids, bucket_lengths(sequence_length))
    return {
        "token_ids": ids.to_tensor(tokenizer.pad_token_id, shape=tf.stack([-1, length])),
        "padding_mask": tf.sequence_mask(ids.row_lengths(), length, tf.int32),
    }


def pad_choices(tree, tokenizer, sequence_length):
    """Pads what `frame_choices` gives, to the smallest bucket that holds the longest.

    Returns:
        dict of int32 `[batch, bucket]`: `token_ids`, `positions` and `branches`, -1 where no token
        is; and of int32 `[batch, most choices]`: `extract_indices`, where each branch ends, or -1
        for a choice that is not there.
    """
    # Many answers behind one beginning may be longer than any one sequence.
    lengths = bucket_lengths(sequence_length)
    lengths += [sequence_length * 2**i for i in range(1, 8)]
    length = _bucket(tree["token_ids"], lengths)
    fill = {"token_ids": tokenizer.pad_token_id, "positions": 0, "branches": -1}
    padded = {
        name: ragged.to_tensor(fill[name], shape=tf.stack([-1, length]))
        for name, ragged in tree.items()
    }
    ends = tf.where(padded["token_ids"] == tokenizer.extract_token_id)
    padded["extract_indices"] = tf.RaggedTensor.from_value_rowids(
        tf.cast(ends[:, 1], tf.int32), ends[:, 0], nrows=tree["token_ids"].nrows(), validate=False
    ).to_tensor(-1)
    return padded


def _bucket(ids, lengths):
    """The smallest length that holds all rows."""
    lengths = tf.constant(lengths, tf.int64)
    longest = tf.reduce_max(tf.concat([ids.row_lengths(), [0]], axis=0))
    return tf.reduce_min(tf.boolean_mask(lengths, lengths >= longest))
