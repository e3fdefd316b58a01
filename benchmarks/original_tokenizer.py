"""Speed of the original normalisation beside the Python pipeline, in one run on one core.

    python -m benchmarks.original_tokenizer --vocabulary FILE --merges FILE --data-dir DIR

DIR holds books/ and tfds/. Ours is a reloaded SavedModel from strings to ids. The pipeline is ftfy,
text_standardize, spaCy 2.0's rules and byte-pair encoding, and remembers the words that it has
seen. If spaCy is installed, a second pipeline uses its tokenizer instead of the rules. All take
turns on the same texts. The fastest round of each text counts, because other processes disturb the
rest; figures are medians over the texts.
"""

import argparse
import itertools
import os
import pathlib
import shlex
import statistics
import sys
import tempfile
import time

import ftfy
import tensorflow as tf

import gpt1_keras
from benchmarks.common.setting import describe, table
from benchmarks.original_agreement import Reference, book_paragraphs, data_set_texts
from benchmarks.peers.python_pipeline import text_standardize

_SENTENCES, _ARTICLES, _PARAGRAPHS, _BATCH = 300, 100, 8192, 1024
_ARTICLE_BYTES = 600  # a RACE passage is longer, its questions and answers are shorter


def main():
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.original_tokenizer",
        description="Speed of the original normalisation beside the Python pipeline.",
    )
    parser.add_argument("--vocabulary", required=True, help="encoder_bpe_40000.json")
    parser.add_argument("--merges", required=True, help="vocab_40000.bpe")
    parser.add_argument("--data-dir", required=True, help="folder with books/ and tfds/")
    parser.add_argument("--rounds", type=int, default=15, help="rounds (default: 15)")
    options = parser.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

    tfds_dir = os.path.join(options.data_dir, "tfds")
    articles = (
        text
        for text in data_set_texts("race/middle", tfds_dir)
        if len(text.encode()) > _ARTICLE_BYTES
    )
    paragraphs = book_paragraphs(os.path.join(options.data_dir, "books", "valid"))
    paragraphs = list(itertools.islice(paragraphs, _PARAGRAPHS))
    batches = {
        "SST-2 sentence": _singly(data_set_texts("glue/sst2", tfds_dir), _SENTENCES),
        "RACE article": _singly(articles, _ARTICLES),
        "books, 1,024 paragraphs": [
            paragraphs[start : start + _BATCH] for start in range(0, len(paragraphs), _BATCH)
        ],
    }
    with tempfile.TemporaryDirectory() as folder:
        encoders = {"ours": _saved_model(options, folder)}
    encoders["pipeline"] = _one_by_one(Reference(options.vocabulary, options.merges))
    if words := _spacy_words():
        theirs = Reference(options.vocabulary, options.merges, words)
        encoders["with spaCy"] = _one_by_one(theirs)
    rows = []
    for name, texts in batches.items():
        least = {encoder: [float("inf")] * len(texts) for encoder in encoders}
        for _ in range(options.rounds):
            for i, batch in enumerate(texts):
                for encoder, encode in encoders.items():
                    least[encoder][i] = min(least[encoder][i], _time(encode, batch))
        size = statistics.median(sum(len(text.encode()) for text in batch) for batch in texts)
        medians = [1e3 * statistics.median(seconds) for seconds in least.values()]
        rows.append([name, f"{size / 1e3:.1f}", *(f"{median:.2f}" for median in medians)])
    command = shlex.join(["python", "-m", "benchmarks.original_tokenizer", *sys.argv[1:]])
    header = ["texts", "kB", *(f"{name}, ms" for name in encoders)]
    print(f"{describe()}. `{command}`\n\n{table(header, rows)}")


def _singly(texts, count):
    """Batches of one text."""
    return [[text] for text in itertools.islice(texts, count)]


def _saved_model(options, folder):
    """From a list of texts to ids, by a SavedModel that is written and loaded again."""
    tokenizer = gpt1_keras.GPT1Tokenizer(
        options.vocabulary, options.merges, normalization="original"
    )
    module = tf.Module()
    module.tokenizer = tokenizer

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "text")])
    def tokenize(text):
        return {"ids": tokenizer(text).values}

    path = str(pathlib.Path(folder) / "1")
    tf.saved_model.save(module, path, signatures={"serving_default": tokenize})
    signature = tf.saved_model.load(path).signatures["serving_default"]
    return lambda texts: signature(text=tf.constant(texts))


def _one_by_one(encode):
    """From a list of texts to ids, by a function of one text."""
    return lambda texts: [encode(text) for text in texts]


def _spacy_words():
    """From text to words by the spaCy that is installed, or None."""
    try:
        import spacy
    except ImportError:
        return None
    tokenizer = spacy.blank("en").tokenizer
    return lambda text: [
        token.text.lower() for token in tokenizer(text_standardize(ftfy.fix_text(text)))
    ]


def _time(encode, batch):
    started = time.perf_counter()
    encode(batch)
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
