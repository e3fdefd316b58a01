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

    def column(id):
        return tf.RaggedTensor.from_uniform_row_length(tf.fill([rows], id), 1)

    parts = [column(tokenizer.start_token_id)]
    for segment in segments:
        parts += [segment[:, :limit], column(tokenizer.delimiter_token_id)]
    parts[-1] = column(tokenizer.extract_token_id)
    return tf.concat(parts, axis=1), truncated


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
    lengths = tf.constant(bucket_lengths(sequence_length), tf.int64)
    longest = tf.reduce_max(tf.concat([ids.row_lengths(), [0]], axis=0))
    length = tf.reduce_min(tf.boolean_mask(lengths, lengths >= longest))
    return {
        "token_ids": ids.to_tensor(tokenizer.pad_token_id, shape=tf.stack([-1, length])),
        "padding_mask": tf.sequence_mask(ids.row_lengths(), length, tf.int32),
    }
