"""Framing, truncating and padding, against KerasHub's and a transcription of the paper's rules."""

import random

import keras_hub
import pytest
import tensorflow as tf

from gpt1_keras.tokenization import list_backend, tensor_backend
from gpt1_keras.tokenization.input_transformations import HALVES, frame, frame_choices
from gpt1_keras.tokenization.padding import bucket_lengths, pad


def framed(segments, tokenizer, sequence_length):
    """One example as in the released code: `[start] first [delimiter] second ... [extract]`, and
    whether truncated.
    """
    limit = sequence_length - 2 if len(segments) == 1 else sequence_length // 2 - 2
    ids = [tokenizer.start_token_id]
    for number, segment in enumerate(segments):
        if number:
            ids.append(tokenizer.delimiter_token_id)
        ids.extend(segment[:limit])
    return [*ids, tokenizer.extract_token_id], any(len(segment) > limit for segment in segments)


def random_batches(seed, segments, batch, longest):
    """For each segment, a batch of lists of ids, whose lengths are 0 to `longest`."""
    chance = random.Random(seed)
    return [
        [[chance.randrange(70) for _ in range(chance.randint(0, longest))] for _ in range(batch)]
        for _ in range(segments)
    ]


def ragged(rows):
    return tf.ragged.constant(rows, tf.int32, ragged_rank=1)


def as_lists(rows):
    return rows if isinstance(rows, list) else rows.to_list()


@pytest.mark.parametrize("sequence_length", [8, 9, 24, 25, 512])
@pytest.mark.parametrize("segments", [1, 2])
def test_frame(tiny_tokenizer, segments, sequence_length):
    batches = random_batches(sequence_length, segments, 40, sequence_length // segments * 5 // 4)
    segments = [ragged(rows) for rows in batches]
    ids, truncated = frame(segments, tiny_tokenizer, sequence_length, HALVES)

    expected = [framed(rows, tiny_tokenizer, sequence_length) for rows in zip(*batches)]
    assert ids.to_list() == [ids for ids, _ in expected]
    assert truncated.numpy().tolist() == [cut for _, cut in expected]
    assert ids.dtype == tf.int32
    assert 0 < sum(truncated.numpy()) < 40  # both happened
    assert max(map(len, ids.to_list())) <= sequence_length


def packed(segments, tokenizer, sequence_length):
    """Pairs as KerasHub packs them, without padding; lists of ids."""
    packer = keras_hub.layers.MultiSegmentPacker(
        sequence_length,
        start_value=tokenizer.start_token_id,
        sep_value=tokenizer.delimiter_token_id,
        end_value=tokenizer.extract_token_id,
        pad_value=-1,
    )
    ids, _ = packer(tuple(ragged(rows) for rows in segments))
    return [[id for id in row if id != -1] for row in ids.numpy().tolist()]


@pytest.mark.parametrize("sequence_length", [5, 6, 9, 24, 25, 64])
def test_pairs_are_truncated_as_by_keras_hub(tiny_tokenizer, sequence_length):
    """Pairs of any lengths keep all tokens if they fit, else as many of each as there."""
    segments = random_batches(sequence_length, 2, 300, sequence_length)
    expected = packed(segments, tiny_tokenizer, sequence_length)
    fits = [len(first) + len(second) + 3 <= sequence_length for first, second in zip(*segments)]
    assert 0 < sum(fits) < 300
    ids, truncated = frame([ragged(rows) for rows in segments], tiny_tokenizer, sequence_length)
    assert ids.to_list() == expected
    assert truncated.numpy().tolist() == [not each for each in fits]
    ids, truncated = list_backend.frame(segments, tiny_tokenizer, sequence_length)
    assert ids == expected
    assert truncated.tolist() == [not each for each in fits]


@pytest.mark.parametrize("sequence_length", [5, 9, 24])
def test_a_choice_is_truncated_as_the_second_of_a_pair(tiny_tokenizer, sequence_length):
    """Its first is the context with the question, of which the context is truncated first."""
    context, question, choice = random_batches(sequence_length, 3, 200, sequence_length)
    segments = [ragged(context), ragged(question), tf.expand_dims(ragged(choice), 1)]
    sequence, truncated = frame_choices(segments, tiny_tokenizer, sequence_length)
    prefixes = [first + second for first, second in zip(context, question)]
    expected = packed([prefixes, choice], tiny_tokenizer, sequence_length)
    found = sequence["token_ids"].to_list()
    assert list(map(len, found)) == list(map(len, expected))
    for ids, packed_ids, texts in zip(found, expected, zip(context, question, choice)):
        delimiter = packed_ids.index(tiny_tokenizer.delimiter_token_id)
        kept_question = texts[1][: delimiter - 1]
        kept_context = texts[0][: delimiter - 1 - len(kept_question)]
        assert ids == [packed_ids[0], *kept_context, *kept_question, *packed_ids[delimiter:]]
    is_cut = [
        sum(map(len, texts)) + 3 > sequence_length for texts in zip(context, question, choice)
    ]
    assert truncated.numpy().tolist() == is_cut


def test_truncation_starts_after_the_limit(tiny_tokenizer):
    _, truncated = frame([ragged([[5] * 6, [5] * 7])], tiny_tokenizer, 8)
    assert truncated.numpy().tolist() == [False, True]
    lengths = [(254, 254), (255, 0), (0, 255), (254, 256)]
    segments = [ragged([[5] * pair[i] for pair in lengths]) for i in range(2)]
    ids, truncated = frame(segments, tiny_tokenizer, 512)
    assert truncated.numpy().tolist() == [False, False, False, True]
    assert ids.row_lengths().numpy().tolist() == [511, 258, 258, 512]
    ids, truncated = frame(segments, tiny_tokenizer, 512, HALVES)
    assert truncated.numpy().tolist() == [False, True, True, True]
    assert ids.row_lengths().numpy().tolist() == [511, 257, 257, 511]


@pytest.mark.parametrize(
    ("lengths", "tail", "expected"),
    [
        ([6], 0.5, [[0, 1, 2, 3, 4, 5]]),  # whole
        ([10], 0.0, [[0, 1, 2, 3, 4, 5]]),
        ([10], 0.5, [[0, 1, 2, 7, 8, 9]]),
        ([10], 0.75, [[0, 1, 6, 7, 8, 9]]),
        ([10], 0.999, [[0, 5, 6, 7, 8, 9]]),
        ([10, 2], 0.4, [[0, 1, 9], [0, 1]]),
        ([10, 10], 0.5, [[0, 1, 9], [0, 9]]),
        ([0, 10], 0.5, [[], [0, 1, 2, 8, 9]]),
    ],
)
@pytest.mark.parametrize("backend", [list_backend, tensor_backend])
def test_head_and_tail(tiny_tokenizer, backend, lengths, tail, expected):
    start, delimiter = tiny_tokenizer.start_token_id, tiny_tokenizer.delimiter_token_id
    extract = tiny_tokenizer.extract_token_id
    segments = [[list(range(length))] for length in lengths]
    if backend is tensor_backend:
        segments = [ragged(rows) for rows in segments]
    ids, truncated = backend.frame(segments, tiny_tokenizer, 8, tail=tail)
    framed = [start, *expected[0]]
    for each in expected[1:]:
        framed += [delimiter, *each]
    assert as_lists(ids) == [[*framed, extract]]
    assert bool(truncated[0]) == (sum(lengths) + len(lengths) + 1 > 8)


@pytest.mark.parametrize("backend", [list_backend, tensor_backend])
def test_head_and_tail_of_choices(tiny_tokenizer, backend):
    """Context, question and choices; positions and branches follow the tokens that are kept."""
    start, delimiter = tiny_tokenizer.start_token_id, tiny_tokenizer.delimiter_token_id
    extract = tiny_tokenizer.extract_token_id
    segments = [[list(range(9))], [list(range(2))], [[list(range(20)), [7]]]]
    if backend is tensor_backend:
        segments = [*map(ragged, segments[:2]), tf.ragged.constant(segments[2], tf.int32)]
    sequence, truncated = backend.frame_choices(segments, tiny_tokenizer, 15, tail=0.5)
    rows = {name: as_lists(each)[0] for name, each in sequence.items()}
    prefix = [start, 0, 1, 7, 8, 0, 1]
    assert rows["token_ids"] == [
        *prefix, delimiter, 0, 1, 2, 17, 18, 19, extract, delimiter, 7, extract
    ]  # fmt: skip
    assert rows["positions"] == [*range(15), 7, 8, 9]
    assert rows["branches"] == [0] * 7 + [1] * 8 + [2] * 3
    assert bool(truncated[0])


@pytest.mark.parametrize(
    ("length", "count", "truncate"), [(2, 1, "round_robin"), (4, 2, "round_robin"), (5, 2, HALVES)]
)
def test_no_room(tiny_tokenizer, length, count, truncate):
    with pytest.raises(ValueError, match=f"sequence_length={length} .* {count} "):
        frame([ragged([[5]])] * count, tiny_tokenizer, length, truncate)


@pytest.mark.parametrize("segments", [1, 2])
def test_frame_takes_an_empty_batch(tiny_tokenizer, segments):
    ids, truncated = frame([ragged([])] * segments, tiny_tokenizer, 16)
    assert ids.to_list() == []
    assert truncated.shape == [0]


@pytest.mark.parametrize(
    ("sequence_length", "expected"),
    [
        (1, [1]),
        (10, [10]),
        (16, [16]),
        (17, [16, 17]),
        (64, [16, 24, 32, 48, 64]),
        (100, [16, 24, 32, 48, 64, 96, 100]),
        (512, [16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512]),
    ],
)
def test_bucket_lengths(sequence_length, expected):
    assert bucket_lengths(sequence_length) == expected


@pytest.mark.parametrize("longest", [0, 2, 15, 16, 17, 24, 25, 63, 64])
def test_pad(tiny_tokenizer, longest):
    rows = [[7] * longest, [], [8] * min(longest, 3)]
    padded = pad(ragged(rows), tiny_tokenizer, 64)

    bucket = min(length for length in [16, 24, 32, 48, 64] if length >= longest)
    filled = [row + [tiny_tokenizer.pad_token_id] * (bucket - len(row)) for row in rows]
    assert padded["token_ids"].numpy().tolist() == filled
    masks = [[1] * len(row) + [0] * (bucket - len(row)) for row in rows]
    assert padded["padding_mask"].numpy().tolist() == masks
    assert {tensor.dtype for tensor in padded.values()} == {tf.int32}


def test_pad_takes_an_empty_batch(tiny_tokenizer):
    padded = pad(ragged([]), tiny_tokenizer, 64)
    assert padded["token_ids"].shape == padded["padding_mask"].shape == [0, 16]
