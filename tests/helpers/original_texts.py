"""Texts that the `original` normalization changes; compares ids with a peer's."""

import itertools
import random

import ftfy

_BATCH = 1024


def fuzz_texts(count, seed=0):
    """Makes random strings that the rules act on, without mojibake.

    Pieces are letters, exceptions and parts of them, punctuation, units, addresses, references to
    characters, letters with marks, other scripts, symbols and white space.
    """
    choose = random.Random(seed)
    made = 0
    while made < count:
        text = "".join(choose.choices(_PIECES, _WEIGHTS, k=choose.randint(1, 24)))
        if ftfy.fix_encoding(text) == text:
            made += 1
            yield text


_GROUPS = [  # weight, pieces
    (6, "a b the Film word U S A I x1 1 10 42 2018 km m T kg ft K mg 5 9 0 May Mr Dr".split()),
    (6, "don't it's I'm cannot gonna 'em 's 'S n't Mr. U.S. e.g. a.m. o'clock N.Y. ma'am".split()),
    (6, list(" " * 12) + ["\n", "\t", "  ", " \n\n ", "\r\n", "\xa0", "\u3000", "\u2028", "\x0c"]),
    (5, list(".,:;!?'\"`()[]{}<>=&#%@$^*+-/|~_\\") + ["...", "..", "''", "``", "--", "://"]),
    (2, "www.foo.com a.b.co x@y.org 10.0.0.1 1.2.3.4 http://x.io/a?b=c 192.168.0.1 .com".split()),
    (2, "&amp; &lt; &eacute; &#233; &#xE9; &#0; &NTILDE; &amp;amp; &nosuch; &#9999999;".split()),
    (2, "“ ” ‘ ’ „ … – — ― ´ « » £ € ¥ ° § ¿ ¡ · • ™ © ½ ² µ".split()),
    (2, "é ö ñ É Ö ß œ Æ ﬁ ﬂ Ａ １ e\u0301 o\u0308 A\u030a n\u0303 İ Σ ς я Я б ω Ω".split()),
    (1, "漢 字 한 ไ م ש ॐ ☺ ♥ 😀 → ⚔ ಠ".split() + ["\u200b", "\u200d", "\ufeff", "\ufffd"]),
]
_PIECES = [piece for _, pieces in _GROUPS for piece in pieces]
_WEIGHTS = [weight / len(pieces) for weight, pieces in _GROUPS for _ in pieces]


def mojibake_texts(count, seed=0):
    """Makes words that were read in wrong encodings, up to twice: by line, or word by word.

    As it happens to such text, some have lost a byte to a blank or to U+FFFD.
    """
    choose = random.Random(seed)

    def misread(text):
        for encoding in choose.choices(_ENCODINGS, k=choose.randrange(3)):
            text = text.encode().decode(encoding)
        return text

    for number in range(count):
        words = choose.choices(_MISREAD, k=choose.randint(1, 8))
        text = misread(" ".join(words)) if number % 2 else " ".join(map(misread, words))
        if choose.random() < 0.2:
            text = text.replace("\xa0", " ")
        if choose.random() < 0.1:
            text = text.replace("\x9d", "\ufffd")
        yield text


_MISREAD = (
    "the cat . said x1 Mr. don’t “quoted” café déjà à la naïve Zürich €5 — … ½ ñandú æther œuvre "
    "Привет мир ω α ☺ 😀 漢字 été Éa às Ã"
).split()
_ENCODINGS = ["latin-1", "iso-8859-2", "macroman", "cp437"] + [
    f"sloppy-windows-{number}" for number in (1250, 1251, 1252, 1253, 1254, 1257)
]


def compare(tokenizer, reference, texts):
    """Compares the ids of texts.

    Returns:
        `(documents, different)`: how many there were, and those whose ids differ, a list of str.
    """
    different, documents = [], 0
    texts = iter(texts)
    while batch := list(itertools.islice(texts, _BATCH)):
        documents += len(batch)
        for text, ids in zip(batch, tokenizer(batch).to_list()):
            if ids != reference(text):
                different.append(text)
    return documents, different
