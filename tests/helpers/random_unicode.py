"""Random Unicode and bytes, and Hugging Face's tokenizer to compare with."""

import numpy as np
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

CODE_POINTS = np.delete(np.arange(0x110000), np.s_[0xD800:0xE000])  # without the surrogates

# Blocks that the normalization treats in different ways; random strings mix a few of them.
BLOCKS = {
    "everything": (0, 0x10FFFF),
    "ASCII": (0x20, 0x7E),
    "lower-case letters": (0x61, 0x7A),
    "capital letters": (0x41, 0x5A),
    "controls": (0x00, 0x1F),
    "space": (0x20, 0x20),
    "Latin-1": (0x80, 0xFF),
    "Latin with accents": (0x100, 0x24F),
    "more Latin with accents": (0x1E00, 0x1EFF),
    "combining marks": (0x300, 0x36F),
    "Greek and Cyrillic": (0x370, 0x52F),
    "Greek with accents": (0x1F00, 0x1FFF),
    "Hebrew and Arabic": (0x590, 0x6FF),
    "scripts of India": (0x900, 0xDFF),
    "Thai to Tibetan": (0xE00, 0xFFF),
    "Hangul letters": (0x1100, 0x11FF),
    "Hangul syllables": (0xAC00, 0xD7AF),
    "Balinese": (0x1B00, 0x1B7F),
    "spaces and punctuation": (0x2000, 0x206F),
    "letter-like, numbers, arrows": (0x2100, 0x22FF),
    "CJK punctuation and kana": (0x3000, 0x30FF),
    "CJK": (0x4E00, 0x9FFF),
    "more CJK": (0x20000, 0x2FA1F),
    "compatibility forms": (0xF900, 0xFFFF),
    "private use": (0xE000, 0xF8FF),
    "Deseret": (0x10400, 0x1044F),
    "musical symbols": (0x1D100, 0x1D1FF),
    "mathematical letters": (0x1D400, 0x1D7FF),
    "emoji": (0x1F300, 0x1FAFF),
    "unassigned": (0x40000, 0x4FFFF),
    "tags and selectors": (0xE0000, 0xE01FF),
}

# Bytes that are not UTF-8.
INVALID = [
    b"\x80",
    b"\xbf\xbf",
    b"\xc3",  # the first byte of two
    b"\xe2\x82",  # two of three
    b"\xe2",
    b"\xf0\x9f\x98",  # three of four
    b"\xf0\x9f",
    b"\xf0",
    b"\xed\xa0\x80",  # a surrogate
    b"\xed\xbf\xbf",
    b"\xed\xa0\xbd\xed\xb8\x80",  # a pair of them
    b"\xc0\x80",  # overlong forms of NUL, "/", DEL, of U+07FF and of U+FFFF
    b"\xc0\xaf",
    b"\xc1\xbf",
    b"\xe0\x80\xaf",
    b"\xe0\x9f\xbf",
    b"\xf0\x8f\xbf\xbf",
    b"\xf4\x90\x80\x80",  # beyond U+10FFFF
    b"\xf8\x88\x80\x80\x80",
    b"\xfc\x84\x80\x80\x80\x80",
    b"\xfe",
    b"\xff",
    b"\xfe\xff",
]


def make_reference(vocabulary=None, merges=None):
    """Makes Hugging Face's tokenizer for GPT-1."""
    model = models.BPE(
        vocabulary, merges, unk_token="<unk>", end_of_word_suffix="</w>", fuse_unk=False
    )
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return tokenizer


def as_string(text):
    return text.decode("utf-8", errors="replace") if isinstance(text, bytes) else text


def to_text(code_points):
    return np.asarray(code_points, "<u4").tobytes().decode("utf-32-le")


def random_texts(random, lengths, allowed=CODE_POINTS):
    """Makes random strings, each of code points of up to three blocks."""
    bounds = np.searchsorted(allowed, [(low, high + 1) for low, high in BLOCKS.values()])
    bounds = bounds[bounds[:, 0] < bounds[:, 1]]
    blocks = random.integers(0, len(bounds), (len(lengths), 3))
    text = np.repeat(np.arange(len(lengths)), lengths)
    low, high = bounds[blocks[text, random.integers(0, 3, len(text))]].T
    string = to_text(allowed[random.integers(low, high)])
    ends = np.cumsum(lengths).tolist()
    return [string[start:end] for start, end in zip([0, *ends], ends)]


def random_bytes(random, size):
    """Makes random byte strings: valid UTF-8 with invalid parts, or any bytes."""
    parts = INVALID + [text.encode() for text in random_texts(random, [1, 2, 3] * 10)]
    parts += [b"a", b"film", b" ", b"\xc3\xa9", b"\xe2\x82\xac", b"\xf0\x9f\x98\x80", b"\0"]
    texts = []
    for length in random.integers(0, 20, size // 2):
        texts.append(b"".join(parts[index] for index in random.integers(0, len(parts), length)))
        texts.append(random.bytes(length))
    return texts
