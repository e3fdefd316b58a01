"""Bytes to ids in LiteRT: the same as GPT1Tokenizer, which equals Hugging Face's."""

import unicodedata

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds
from tokenizers.normalizers import BertNormalizer

import gpt1_keras
from gpt1_keras.tokenization.lookup import CODE_POINTS
from serving.tflite import convert
from serving.tflite.byte_tokenizer import ByteTokenizer, code_points

MAX_BYTES = 320
INVALID = [
    b"\x80",
    b"\xbf\xbf",
    b"\xc3",
    b"\xe2\x82",
    b"\xf0\x9f\x98",
    b"\xed\xa0\x80",
    b"\xc0\xaf",
]
INVALID += [b"\xe0\x80\xaf", b"\xf4\x90\x80\x80", b"\xf8\x88\x80\x80\x80", b"\xff\xfe", b"\xe2\xc3"]
TRICKY = [
    "",
    "a",
    "The staff were KIND!!! And the film, well ... it's \u00fcber-d\u00e9j\u00e0 vu\u2014no?",
    "\u0130stanbul \ufb01lm \u00bd \u1e69\u0323 e\u0301 \u1ec7 \uac00\uac01\ud7a3",
    "\u4e2d\u6587\u3042\u30ab\u30ab\u3099",
    "tabs\tand\nlines\r\nand\u00a0spaces\u2003here\u200bnot\u00adhere\0or\ufffdhere",
    "\U0001f600\U0001d4d0\U0010ffff \u0e33\u0f73 \u1f82 \u0958",
    "a" * MAX_BYTES,
    "banana" * 53,
    " ".join("ab" * 100),
    "x" * (MAX_BYTES - 1) + "\u00e9",
]


@pytest.fixture(scope="module")
def original(make_task, original_tokenizer, tmp_path_factory):
    """A classifier of single texts with the original vocabulary, and its file."""
    length = MAX_BYTES + 2  # cuts no text
    task = gpt1_keras.GPT1TextClassifier
    model = make_task(task, original_tokenizer, length, num_classes=2)
    path = tmp_path_factory.mktemp("original") / "model.tflite"
    return model, convert(model, path, MAX_BYTES, length)


@pytest.fixture(scope="module")
def run_original(original, interpret):
    """Its tokenizer as a function of one text, without the special tokens."""
    tokenize = interpret(original[1], "tokenize")

    def run(array):
        result = tokenize(text=array)
        return result["token_ids"][0, 1 : result["num_tokens"][0] - 1].tolist()

    return run


def as_bytes(text):
    return text.encode() if isinstance(text, str) else text


def assert_same_ids(run, tokenizer, texts, as_input, max_bytes=MAX_BYTES):
    texts = [text for text in map(as_bytes, texts) if len(text) <= max_bytes]
    for text, expected in zip(texts, tokenizer(texts).to_list(), strict=True):
        got = run(as_input(text, max_bytes))
        assert got == expected, f"{ascii(text)}: got {got}, expected {expected}"


def fuzz(random, size):
    """Random strings of letters and of code points near each other, and of bytes."""
    blocks = [0x20, 0xC0, 0x300, 0x370, 0x900, 0x1E00, 0x2000, 0x4E00, 0xAC00, 0xFB00, 0x1D400]
    pieces = np.array([*INVALID, b" ", b"film", "\u00e9".encode(), b"\0a"], object)
    texts = []
    for _ in range(size // 2):
        length = random.integers(0, 25)
        letters, others = (
            random.integers(ord("a"), ord("z") + 1, length),
            random.integers(0, 96, length),
        )
        codes = np.where(random.random(length) < 0.5, letters, random.choice(blocks) + others)
        texts.append("".join(map(chr, codes)).encode())
        mixed = b"".join(random.choice(pieces, 8))
        texts.append(mixed if random.random() < 0.7 else random.bytes(length))
    return texts


@pytest.mark.slow
def test_tricky_texts(run_original, original_tokenizer, as_input):
    invalid = [
        around for bad in INVALID for around in (bad, b"a" + bad, bad + b"a", b"fi" + bad + b"lm")
    ]
    assert_same_ids(run_original, original_tokenizer, TRICKY + invalid, as_input)


def test_texts_of_any_length(run_original, original_tokenizer, as_input):
    """Those beside the sizes of which there is a graph, too."""
    text = ("A lovely film; d\u00e9j\u00e0 vu? " * 12).encode()
    texts = [text[:size] for size in np.random.default_rng(0).permutation(MAX_BYTES + 1)]
    assert_same_ids(run_original, original_tokenizer, texts, as_input)


def real_texts(tfds_dir, name, fields):
    """The first validation examples that fit, a list for each field."""
    rows = tfds.load(name, data_dir=tfds_dir, split="validation[:120]", download=False)
    rows = [[row[field].numpy() for field in fields] for row in rows]
    rows = [row for row in rows if max(map(len, row)) < MAX_BYTES]
    assert len(rows) >= 60
    return list(zip(*rows))


def test_ids_and_scores_of_sst2(original, tfds_dir, assert_answers, interpret):
    texts = real_texts(tfds_dir, "glue/sst2", ["sentence"])
    assert_answers(*original, texts, interpret, MAX_BYTES)


@pytest.mark.slow
def test_ids_and_scores_of_rte(
    make_task, original_tokenizer, tfds_dir, assert_answers, interpret, tmp_path
):
    """Pairs, of which some are cut; with LoRA, and a softmax of its own, not applied twice."""
    model = make_task(
        gpt1_keras.GPT1TextClassifier,
        original_tokenizer,
        length=96,
        fields=("premise", "hypothesis"),
        num_classes=2,
        activation="softmax",
    )
    model.backbone.enable_lora(2)
    lora = model.backbone.blocks[0].attention.qkv.lora_kernel_b
    lora.assign(np.full(lora.shape, 0.1))
    path = convert(model, tmp_path / "model.tflite", MAX_BYTES, 96)
    texts = real_texts(tfds_dir, "glue/rte", ["sentence1", "sentence2"])
    assert_answers(model, path, texts, interpret, MAX_BYTES)


@pytest.mark.parametrize(
    ("seed", "count"), [(0, 1000), pytest.param(1, 20_000, marks=pytest.mark.slow)]
)
def test_random_texts(run_original, original_tokenizer, as_input, seed, count):
    texts = fuzz(np.random.default_rng(seed), count)
    assert_same_ids(run_original, original_tokenizer, texts, as_input)


def test_signed_bytes(run_original, as_input):
    """Kotlin's and Java's bytes have a sign."""
    array = as_input("d\u00e9j\u00e0 vu \U0001f600 na\u00efve", MAX_BYTES)
    assert run_original(array.astype(np.int8).astype(np.int32)) == run_original(array)


def test_merges_in_any_order(as_input):
    """A merge may rank before those that give its sides, which no trainer writes."""
    letters = ["<unk>", "a", "b", "a</w>", "b</w>"]
    merges = ["ab ab", "a a", "a b", "b a", "ab a", "aa aa", "aa b", "aba b</w>", "a b</w>"]
    products = [merge.replace(" ", "") for merge in merges]
    vocabulary = {token: id for id, token in enumerate(dict.fromkeys(letters + products))}
    tokenizer = gpt1_keras.GPT1Tokenizer(vocabulary, merges)
    assert not tokenizer.vocabulary.merges_are_ordered
    random = np.random.default_rng(0)
    texts = ["".join(random.choice(["a", "b", "aab", " "], 12)) for _ in range(200)]
    tokenize = tf.function(ByteTokenizer(tokenizer, [40]), autograph=False)

    def run(array):
        ids, _, [length] = tokenize([tf.constant(array)])
        return ids[:length].numpy().tolist()

    assert_same_ids(run, tokenizer, texts, as_input, 40)


@pytest.mark.slow
def test_every_code_point():
    """Each that Unicode assigns, between others and beside the next. No letter is unknown."""
    chars = [c for c in map(chr, range(CODE_POINTS)) if unicodedata.category(c)[0] != "C"]
    normalize = BertNormalizer(lowercase=True).normalize_str
    letters = sorted(set(normalize("".join(chars))) - {" "})
    tokens = ["<unk>", *letters, *(f"{letter}</w>" for letter in letters)]
    tokenizer = gpt1_keras.GPT1Tokenizer({token: id for id, token in enumerate(tokens)}, [])
    parts = [
        between.join(chars[first : first + 256]).encode()
        for between in ("a", "")
        for first in range(0, len(chars), 256)
    ]
    text = np.frombuffer(b" ".join(parts), np.uint8).astype(np.int32)
    ids, _, [length] = ByteTokenizer(tokenizer, [len(text)])([text])
    np.testing.assert_array_equal(ids[:length], tokenizer(parts).values)


def test_texts_do_not_touch(original_tokenizer, as_input):
    """The bytes of one never complete a character or a word of the one before."""
    texts = [b"a lovely fi", b"lm \xc3", b"\xa9t\xe2", b"", b"\x82\xac ok", b"film" * 4]
    tokenize = ByteTokenizer(original_tokenizer, [16] * len(texts))
    ids, starts, lengths = tokenize([as_input(text, 16) for text in texts])
    got = [ids[start : start + length].numpy().tolist() for start, length in zip(starts, lengths)]
    assert got == original_tokenizer(texts).to_list()


@pytest.mark.parametrize("text", [*INVALID, "a\u00e9\u4e2d\U0001f600".encode(), bytes(range(256))])
def test_code_points_are_pythons(text):
    found = code_points(tf.constant(np.frombuffer(text, np.uint8).astype(np.int32))).numpy()
    found = [code for code in found if code and not 0xD800 <= code < 0xE000]
    expected = [ord(c) for c in text.decode(errors="replace") if c not in "\0\ufffd"]
    assert found == expected


def test_a_vocabulary_without_merges(tiny_tokenizer, as_input):
    tokens = {"<unk>": 0, "a": 1, "a</w>": 2}
    tokenizer = gpt1_keras.GPT1Tokenizer(tokens, [])
    ids, _, [length] = ByteTokenizer(tokenizer, [1])([as_input("a", 1)])
    assert ids[:length].numpy().tolist() == [2]


@pytest.mark.parametrize("max_bytes", [0, 2**31])
def test_lengths_that_cannot_be(tiny_tokenizer, max_bytes):
    with pytest.raises(ValueError, match="max_bytes"):
        ByteTokenizer(tiny_tokenizer, [max_bytes])
