"""No difference from Hugging Face's `tokenizers`: real texts, random Unicode, random bytes."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds
from tokenizers import normalizers

import gpt1_keras
from gpt1_keras.tokenization.normalization import bert
from tests.helpers import make_bert_table
from tests.helpers.random_unicode import (
    CODE_POINTS,
    INVALID,
    as_string,
    make_reference,
    random_bytes,
    random_texts,
    to_text,
)

BATCH = 4096
DATASETS = ["glue/sst2", "glue/mrpc", "definite_pronoun_resolution"]


@pytest.fixture(scope="module")
def normalized():
    """The normalized form of every code point: an array of strings."""
    normalizer = normalizers.BertNormalizer(lowercase=True)
    made = [normalizer.normalize_str(chr(code)).strip(" ") for code in CODE_POINTS]
    return np.array(made, object)


@pytest.fixture(scope="module")
def character_tokenizers(normalized):
    """Ours and Hugging Face's tokenizer with every normalized character as a token.

    Only those of the planes 4 to 13 are unknown, because Unicode assigns nothing there.
    """
    alphabet = sorted(set("".join(normalized[(CODE_POINTS < 0x40000) | (CODE_POINTS >= 0xE0000)])))
    tokens = ["<unk>", *alphabet, *(f"{character}</w>" for character in alphabet)]
    vocabulary = {token: id for id, token in enumerate(tokens)}
    return gpt1_keras.GPT1Tokenizer(vocabulary, []), make_reference(vocabulary, [])


@pytest.fixture(scope="module")
def unmoved(normalized):
    """The code points without the kept marks that Unicode's canonical order may move."""
    decompose = normalizers.NFD().normalize_str
    return CODE_POINTS[[decompose(f"{made}\u0334") == f"{made}\u0334" for made in normalized]]


def assert_same_ids(tokenizer, reference, texts, size=BATCH):
    """Compares the ids of texts, which are strings, or bytes that may be invalid UTF-8."""
    for start in range(0, len(texts), size):
        batch = texts[start : start + size]
        got = tokenizer(batch).to_list()
        encodings = reference.encode_batch_fast([as_string(text) for text in batch])
        expected = [encoding.ids for encoding in encodings]
        if got == expected:
            continue
        different = [n for n, (ids, other) in enumerate(zip(got, expected)) if ids != other]
        first = different[0]
        raise AssertionError(
            f"{len(different)} of {len(batch)} texts differ from text {start} on. The first is "
            f"{ascii(batch[first])[:1000]}: got {got[first][:200]}, "
            f"expected {expected[first][:200]}."
        )


def joined_code_points(code_points, between):
    return [
        between.join(to_text(code_points[start : start + 64]))
        for start in range(0, len(code_points), 64)
    ]


def tfds_texts(name, data_dir):
    """All texts of all splits."""
    splits, info = tfds.load(name, data_dir=data_dir, download=False, with_info=True)
    texts = []
    for split in splits.values():
        for batch in tfds.as_numpy(split.batch(BATCH)):
            for values in tf.nest.flatten(batch):
                if values.dtype == object:
                    texts += [text.decode("utf-8") for text in values.ravel()]
    assert len(texts) >= info.splits.total_num_examples
    return texts


def book_lines(books_dir, size):
    """The first lines of the books, `size` code points in all."""
    lines, left = [], size
    for path in sorted((books_dir / "train").iterdir()):
        for line in path.read_text("utf-8").split("\n"):
            if left <= 0:
                return lines
            lines.append(line)
            left -= len(line) + 1
    raise AssertionError(f"The books are shorter than {size} code points.")


@pytest.mark.slow
@pytest.mark.parametrize("name", DATASETS)
def test_data_sets(original_tokenizer, reference, tfds_dir, name):
    assert_same_ids(original_tokenizer, reference, tfds_texts(name, tfds_dir))


@pytest.mark.slow
def test_ten_megabytes_of_books(original_tokenizer, reference, books_dir):
    assert_same_ids(original_tokenizer, reference, book_lines(books_dir, 10_000_000))


@pytest.mark.slow
def test_every_word_of_books_in_a_short_batch(original_tokenizer, reference, books_dir):
    """Where words of two tokens are looked up; in a long one, nearly all are merged."""
    lines = book_lines(books_dir, 10_000_000)
    words = sorted({word for line in lines for word in line.split()})
    assert len(words) > 80_000
    assert_same_ids(original_tokenizer, reference, words, 12)


@pytest.mark.slow
def test_random_plain_text(original_tokenizer, reference):
    """Plain ASCII takes a path of its own; there are other texts in the same batch."""
    random = np.random.default_rng(6)
    plain = np.array([*range(0x20, 0x7F), *b"\t\n\r", *b" etaoin" * 9], np.uint8)
    texts = [random.choice(plain, size).tobytes() for size in random.integers(0, 41, 20_000)]
    texts[::7] = [text + b"\xc3\xa9" for text in texts[::7]]
    texts[::11] = [b"\x0b" + text + b"\x1c\xff." for text in texts[::11]]
    assert_same_ids(original_tokenizer, reference, texts)


@pytest.mark.slow
def test_random_unicode(original_tokenizer, reference):
    random = np.random.default_rng(0)
    texts = random_texts(random, random.integers(0, 41, 100_000))
    assert "" in texts
    assert_same_ids(original_tokenizer, reference, texts)


@pytest.mark.slow
@pytest.mark.parametrize("between", ["a", " ", ". "])
def test_every_code_point(character_tokenizers, between):
    """Each in the middle of a word, as a word, and before punctuation."""
    assert_same_ids(*character_tokenizers, joined_code_points(CODE_POINTS, between))


@pytest.mark.slow
def test_every_code_point_beside_the_next(character_tokenizers, unmoved):
    assert_same_ids(*character_tokenizers, joined_code_points(unmoved, ""))


@pytest.mark.slow
def test_every_character_of_random_unicode(character_tokenizers, unmoved):
    random = np.random.default_rng(1)
    texts = random_texts(random, random.integers(0, 41, 50_000), unmoved)
    assert_same_ids(*character_tokenizers, texts)


@pytest.mark.parametrize("kind", ["one letter", "one word", "random Unicode", "no spaces"])
def test_hundred_thousand_code_points(original_tokenizer, reference, books_dir, kind):
    random = np.random.default_rng(2)
    length = 100_000
    texts = {
        "one letter": lambda: "a" * length,
        "one word": lambda: to_text(random.integers(ord("a"), ord("z"), length, endpoint=True)),
        "random Unicode": lambda: random_texts(random, [length])[0],
        "no spaces": lambda: "".join(" ".join(book_lines(books_dir, 150_000)).split())[:length],
    }
    text = texts[kind]()
    assert len(text) == length
    assert_same_ids(original_tokenizer, reference, [text, "", text[1:], "a", text[: length // 2]])


@pytest.mark.slow
def test_random_bytes(original_tokenizer, reference):
    texts = random_bytes(np.random.default_rng(3), 50_000)
    assert sum(as_string(text).encode() != text for text in texts) > 20_000
    assert_same_ids(original_tokenizer, reference, texts)


def test_random_bytes_where_no_character_is_unknown(character_tokenizers):
    tokenizer, reference = character_tokenizers
    assert_same_ids(tokenizer, reference, random_bytes(np.random.default_rng(4), 10_000))


@pytest.mark.parametrize("invalid", INVALID, ids=bytes.hex)
def test_invalid_bytes_between_characters(original_tokenizer, reference, invalid):
    texts = [invalid, b"a" + invalid, invalid + b"a", b"fi" + invalid + b"lm", b"a " + invalid]
    texts += [invalid + invalid, invalid + b"\xc3\xa9", b"\xe2\x82\xac" + invalid + b"."]
    assert_same_ids(original_tokenizer, reference, texts)


@pytest.mark.slow
def test_shipped_table_is_what_tokenizers_does():
    expected = make_bert_table.build()
    shipped = bert.read_bert_table()
    assert shipped.isolated.tolist() == expected["isolated"].tolist()
    stays = expected["entries"] == 0
    stays[bert.HANGUL] = False  # which the table's file lacks
    replacements = np.where(stays, "itself", np.array(shipped.replacements)[shipped.entries])
    made = np.where(stays, "itself", expected["replacements"][expected["entries"]])
    hangul = [normalizers.NFD().normalize_str(chr(code)) for code in bert.HANGUL]
    made[bert.HANGUL] = hangul
    different = [f"U+{code:04X}" for code in np.flatnonzero(replacements != made)]
    assert not different, f"{len(different)} code points differ: {different[:10]}"
    assert ((shipped.entries == 0) == stays).all()
