"""How far the original normalisation in the graph agrees with the Python pipeline.

    python -m benchmarks.original_agreement --vocabulary FILE --merges FILE --data-dir DIR

DIR holds books/ (text files, a paragraph a line) and tfds/ (prepared data sets). Both sides see
all documents; ids are compared, and every document that differs is shown with the reason.
"""

import argparse
import itertools
import pathlib
import random
import time

import ftfy
import numpy as np
import tensorflow as tf
import tensorflow_datasets as tfds
from tokenizers import Tokenizer, models

import gpt1_keras
from benchmarks.peers.python_pipeline import PythonPipeline
from gpt1_keras.tokenization.vocabulary import END_OF_WORD, UNKNOWN

_BATCH = 1024
_DATA_SETS = ("glue/sst2", "glue/cola", "glue/rte", "race/middle", "snli")


class Reference:
    """The Python pipeline followed by Hugging Face's byte-pair encoding: text to ids.

    Args:
        vocabulary, merges: paths of the original files.
        words: function from text to words; the `PythonPipeline` by default.
    """

    def __init__(self, vocabulary, merges, words=None):
        self._words = words or PythonPipeline()
        self._encoder = Tokenizer(
            models.BPE.from_file(
                vocabulary, merges, unk_token=UNKNOWN, end_of_word_suffix=END_OF_WORD
            )
        )
        self._ids = {}

    def __call__(self, text):
        """The ids of a text, a list of int."""
        ids = []
        for word in self._words(text):
            if word not in self._ids:
                self._ids[word] = self._encoder.encode([word], is_pretokenized=True).ids
            ids += self._ids[word]
        return ids


def book_paragraphs(folder):
    """All paragraphs of the books in a folder and its subfolders."""
    for path in sorted(pathlib.Path(folder).rglob("*.txt")):
        for line in path.read_text(encoding="utf-8").split("\n"):
            if line.strip():
                yield line


def data_set_texts(name, data_dir):
    """All texts of all splits of a data set of TensorFlow Datasets."""
    splits = tfds.load(name, data_dir=data_dir, download=False)
    for split in splits.values():
        for example in tfds.as_numpy(split):
            for values in map(np.asarray, tf.nest.flatten(example, expand_composites=True)):
                if values.dtype.kind in "OS":
                    yield from (text.decode("utf-8") for text in values.ravel())


def fuzz_texts(count, seed=0):
    """Random strings of what the rules act on, without mojibake.

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
    """Words that were read in wrong encodings, up to twice: the whole line, or each by itself.

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


def reason(text):
    """Why a document may differ."""
    return "mojibake" if ftfy.fix_encoding(text) != text else "other"


def main():
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.original_agreement",
        description="How far the original normalisation agrees with the Python pipeline.",
    )
    parser.add_argument("--vocabulary", required=True, help="encoder_bpe_40000.json")
    parser.add_argument("--merges", required=True, help="vocab_40000.bpe")
    parser.add_argument("--data-dir", required=True, help="folder with books/ and tfds/")
    parser.add_argument("--fuzz", type=int, default=20000, help="random strings (default: 20000)")
    parser.add_argument("--mojibake", type=int, default=6000, help="and misread (default: 6000)")
    options = parser.parse_args()
    data_dir = pathlib.Path(options.data_dir)
    tokenizer = gpt1_keras.GPT1Tokenizer(
        options.vocabulary, options.merges, normalization="original"
    )
    reference = Reference(options.vocabulary, options.merges)
    sources = {"books": book_paragraphs(data_dir / "books")}
    sources |= {name: data_set_texts(name, data_dir / "tfds") for name in _DATA_SETS}
    sources["random strings"] = fuzz_texts(options.fuzz)
    sources["random mojibake"] = mojibake_texts(options.mojibake)
    for name, texts in sources.items():
        started = time.monotonic()
        documents, different = compare(tokenizer, reference, texts)
        share = 100 * (1 - len(different) / documents)
        seconds = time.monotonic() - started
        print(
            f"{name}: {documents:,} documents, {share:.3f} % with equal ids ({seconds:.0f} s)",
            flush=True,
        )
        for text in different:
            print(f"  {reason(text)}: {text[:200]!r}", flush=True)


if __name__ == "__main__":
    main()
