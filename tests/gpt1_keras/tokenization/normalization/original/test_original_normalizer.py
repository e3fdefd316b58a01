"""The `original` normalization in the graph, against the Python pipeline."""

import unicodedata

import pytest

from benchmarks.original_agreement import mojibake_texts

TEXTS = [
    "",
    " \n\t ",
    "I don't know; Mr. Brown's U.S.A. trip cost $5.50 (in May. 2018)...",
    "C'mon, it's 10am!! \"Let's go\", she said -- 'twas late...",
    "a\n\nb \r\n c\u2028d\x85e\x0cf\xa0g\u3000h\u200bi",
    "naïve CAFÉ – “don’t” … ´ ﬁne ＡＢＣ １２ \ufeff",
    "www.foo.com. x@y.org, http://x.io/a?b=c 1.2.3.4 10.0.0.1 172.16.0.1 172.15.0.1 u@10.0.0.1",
    "a:b:c a=b<c>d one.Two.Three 2^3^4 x...y z..",
    "☺hi☺there☺ 5km² 10°C. 858m. US$5 5US$ ''If ``so'' :::: '''",
    "&eacute; &EACUTE; &amp;amp;amp; &#233; &#xE9; &#128; &#0; &#x110000; &#99999999999; &nosuch;",
    "&amp; here\n<b>&amp;</b>\n&amp; there",
    "\x1b[31mred\x1b[0m\x00 a\x01b\x7f",
    "CÃ¦sar donâ€™t Ã  la Ã©tÃ© ÃƒÂ©",
    "Madame de Rênal's rÃ´le; Ð¿Ñ€Ð¸Ð²ÐµÑ‚, â€œquotedâ€\ufffd",
    "e\u0301 A\u030a o\u0302\u0323 \u1100\u1161\u11a8 \uac00\u11a8 क\u093c a\u0301\u0301",
    "ΟΔΟΣ ΣΑΣ Σ İI ISTANBUL ÌÍĨĮ ẞ ǅ",
    "\ufffd x\ufffdy 漢字 😀😀 ॐ",
]


def test_telling_texts(split, pipeline):
    for text, words in zip(TEXTS, split(TEXTS), strict=True):
        assert words == pipeline(text)


def test_a_line_end_is_a_word(split):
    assert split(["\n one \n\n\t two\r\n\r\nthree \n"]) == [["one", "\n", "two", "\n", "three"]]


@pytest.mark.parametrize("between", ["a", " ", ".", "A1"])
def test_every_code_point(split, pipeline, between):
    """All that Unicode 14 assigns below the CJK characters, and what ftfy replaces above them."""
    codes = [*range(0x3400), *range(0xF900, 0x10000), *range(0x1D400, 0x1D800)]
    codes = [code for code in codes if unicodedata.category(chr(code)) not in ("Cn", "Cs")]
    codes.remove(0x2C2F)  # newer than the Unicode of the library that TensorFlow lower-cases with
    for start in range(0, len(codes), 4096):
        texts = [f"{between}{chr(code)}{between}" for code in codes[start : start + 4096]]
        for text, words in zip(texts, split(texts), strict=True):
            assert words == pipeline(text), ascii(text)


def test_letters_with_marks(split, pipeline):
    """Decomposed letters of Latin, Greek and Cyrillic, and Hangul syllables."""
    letters = [chr(code) for code in [*range(0xC0, 0x500), *range(0x1E00, 0x1F00), 0xAC00, 0xD7A3]]
    texts = [unicodedata.normalize("NFD", f"x{letter}y") for letter in letters]
    assert split(texts) == [pipeline(text) for text in texts]


def test_mojibake(split, pipeline):
    texts = list(mojibake_texts(600, seed=1))
    assert split(texts) == [pipeline(text) for text in texts]


@pytest.mark.parametrize(
    "invalid",
    [b"\x80", b"\xc3", b"\xe2\x82", b"\xf0\x9f\x98", b"\xed\xa0\x80", b"\xc0\x80", b"\xff\xfe"],
    ids=bytes.hex,
)
def test_invalid_bytes_are_replacement_characters(split, pipeline, invalid):
    texts = [invalid, b"a" + invalid, invalid + b"b", b"fi" + invalid + b"lm", b"it's " + invalid]
    expected = [pipeline(text.decode("utf-8", "replace")) for text in texts]
    assert split(texts) == expected
