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
    limit = sequence_length - 2 if len(segments) == 1 else sequence_length // 2 - 2
    if limit < 1:
        raise ValueError(
            f"sequence_length={sequence_length} leaves no room for {len(segments)} texts beside "
            "the special tokens."
        )
    truncated = tf.reduce_any(
        tf.stack([segment.row_lengths() > limit for segment in segments]), axis=0
    )
    rows = segments[0].nrows()
    parts = [_column(tokenizer.start_token_id, rows)]
    for segment in segments:
        parts += [segment[:, :limit], _column(tokenizer.delimiter_token_id, rows)]
    parts[-1] = _column(tokenizer.extract_token_id, rows)
    return tf.concat(parts, axis=1), truncated


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
    longest_answer = sequence_length // 2 - 2
    if longest_answer < 1:
        raise ValueError(
            f"sequence_length={sequence_length} leaves no room for texts beside the special tokens."
        )
    cut = choices[:, :, :longest_answer]
    # The beginning is the same for all answers, so the longest of them says how long it may be.
    room = sequence_length - 3 - tf.cast(tf.reduce_max(cut.row_lengths(axis=2), axis=1), tf.int64)
    room = tf.maximum(tf.minimum(room, sequence_length - 3), 0)
    kept_question = _first_tokens(question, room)
    kept_context = _first_tokens(context, room - kept_question.row_lengths())
    truncated = tf.reduce_any(
        tf.stack(
            [
                kept_context.row_lengths() < context.row_lengths(),
                kept_question.row_lengths() < question.row_lengths(),
                tf.reduce_any(cut.row_lengths(axis=2) < choices.row_lengths(axis=2), axis=1),
            ]
        ),
        axis=0,
    )

    start = _column(tokenizer.start_token_id, context.nrows())
    beginning = tf.concat([start, kept_context, kept_question], axis=1)
    answers = cut.values
    behind = tf.concat(
        [
            _column(tokenizer.delimiter_token_id, answers.nrows()),
            answers,
            _column(tokenizer.extract_token_id, answers.nrows()),
        ],
        axis=1,
    )
    # Number and first position of each branch, for each of its tokens.
    lengths = behind.row_lengths()
    numbers = tf.ragged.range(cut.row_lengths()).values + 1
    begins = tf.gather(beginning.row_lengths(), cut.value_rowids())
    per_example = tf.RaggedTensor.from_row_splits(
        behind.values, tf.gather(behind.row_splits, cut.row_splits)
    )
    branches = per_example.with_values(tf.repeat(tf.cast(numbers, tf.int32), lengths))
    positions = per_example.with_values(
        tf.cast(tf.ragged.range(begins, begins + lengths).values, tf.int32)
    )
    in_beginning = tf.cast(tf.ragged.range(beginning.row_lengths()), tf.int32)
    return {
        "token_ids": tf.concat([beginning, per_example], axis=1),
        "positions": tf.concat([in_beginning, positions], axis=1),
        "branches": tf.concat([tf.zeros_like(in_beginning), branches], axis=1),
    }, truncated


def _first_tokens(texts, lengths):
    """The first tokens of each text: as many as its length says."""
    kept = tf.ragged.range(texts.row_lengths()) < tf.cast(lengths, tf.int64)[:, tf.newaxis]
    return tf.ragged.boolean_mask(texts, kept)


def _column(id, rows):
    return tf.RaggedTensor.from_uniform_row_length(tf.fill([rows], id), 1)


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
    is_extract = tree["token_ids"] == tokenizer.extract_token_id
    places = tf.cast(tf.ragged.range(tree["token_ids"].row_lengths()), tf.int32)
    padded["extract_indices"] = tf.ragged.boolean_mask(places, is_extract).to_tensor(-1)
    return padded


def _bucket(ids, lengths):
    """The smallest length that holds all rows."""
    lengths = tf.constant(lengths, tf.int64)
    longest = tf.reduce_max(tf.concat([ids.row_lengths(), [0]], axis=0))
    return tf.reduce_min(tf.boolean_mask(lengths, lengths >= longest))
