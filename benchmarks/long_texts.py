"""Texts that are longer than the model's context, read in each of the ways that there are.

    python -m benchmarks.long_texts

Passages of 400 to 1,500 words from novels of ten authors; the label is the author. Those to learn
from are of other novels than those to answer. (Names of characters give an author away only where
novels share them, as those of Sherlock Holmes do.) Each choice of `gpt1 finetune --long-texts`
trains a model by the preset's recipe, for each seed; the model that was trained on cut texts also
answers in windows, and logistic regression on tf-idf of single words and pairs stands beside.
Seconds are those of all cores, median over seeds. The shipped presets were pre-trained on these
novels, without authors' names.
"""

import functools
import pathlib
import random
import statistics
import sys
import time

from benchmarks.harness.program import Program, table
from gpt1_keras.cli import exit_status, note
from training.runs.finetune_options import LONG_TEXTS

AUTHORS = (
    *("Charles_Dickens", "H_G_Wells", "Edgar_Rice_Burroughs", "Jack_London"),
    *("Arthur_Conan_Doyle", "Fyodor_Dostoyevsky", "Thomas_Hardy", "Rudyard_Kipling"),
    *("James_Fenimore_Cooper", "Anthony_Trollope"),
)
_WORDS = (400, 1500)
_CUT, _WINDOWS = "cut", "windows"


def main():
    program = Program("long_texts", __doc__, "--novels")
    program.add("--preset", default="gpt1_tiny_books", help="default: %(default)s")
    what = "of each author, to learn from and to answer (default: %(default)s)"
    program.add("--passages", type=int, default=30, help=what)
    program.add("--batch-size", type=int, default=4, help="default: %(default)s")
    program.add("--seeds", type=int, default=3, help="default: %(default)s")
    program.add("--choices", nargs="+", choices=LONG_TEXTS, default=[*LONG_TEXTS])
    options = program.parse()
    train, test = _data(options.novels, options.passages)
    found = {"tf-idf + logistic regression": [_tfidf(train, test)]}
    for seed in range(options.seeds):
        for choice in options.choices:
            for name, figures in _fine_tune(options, choice, seed, train, test).items():
                found.setdefault(name, []).append(figures)
                note(f"seed {seed}, {name}: {figures}")
    rows = [[name, *_cells(figures)] for name, figures in found.items()]
    header = ["long texts", "right, %", "s of training", "s of answers"]
    program.report(f"{options.preset}, {len(test[0])} passages.", table(header, rows))


def _data(folder, count):
    """Returns passages and their authors, to learn from and to answer."""
    chance, sets = random.Random(0), ([], [])
    for author in AUTHORS:
        novels = sorted(folder.glob(f"{author}__*.txt"))
        chance.shuffle(novels)
        half = len(novels) // 2
        for rows, part in zip(sets, (novels[half:], novels[:half])):
            rows += [(passage, author) for passage in _passages(part, count, chance)]
    for rows in sets:
        chance.shuffle(rows)
    return [tuple(map(list, zip(*rows))) for rows in sets]


def _passages(novels, count, chance):
    """Returns passages of novels, in turns."""
    words_of, passages = [pathlib.Path(novel).read_text("utf-8").split() for novel in novels], []
    while len(passages) < count:
        words, length = words_of[len(passages) % len(words_of)], chance.randint(*_WORDS)
        if len(words) >= 2 * length:
            start = chance.randrange(len(words) - length)
            passages.append(" ".join(words[start : start + length]))
    return passages


def _tfidf(train, test):
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    words = TfidfVectorizer(sublinear_tf=True, ngram_range=(1, 2))
    model = make_pipeline(words, LogisticRegression(C=100.0, max_iter=1000))
    return _timed(functools.partial(model.fit, *train), lambda texts: model.predict(texts), test)


def _fine_tune(options, choice, seed, train, test):
    """Returns figures by name: of one choice, and of cut texts answered in windows."""
    import keras

    import gpt1_keras
    from gpt1_keras.presets import load_tokenizer

    keras.utils.set_random_seed(seed)
    backbone = gpt1_keras.GPT1Backbone.from_preset(options.preset)
    make = functools.partial(
        gpt1_keras.GPT1TextClassifierPreprocessor,
        load_tokenizer(options.preset),
        backbone.max_sequence_length,
    )
    build = functools.partial(gpt1_keras.GPT1TextClassifier, backbone, class_names=sorted(AUTHORS))
    model = build(preprocessor=make(**LONG_TEXTS[choice]))
    model.compile(accumulation_steps=min(model.windows, options.batch_size))
    size = {"batch_size": options.batch_size, "verbose": 0}

    def answer(texts, model=model):
        indices = model.predict(texts, **size).argmax(-1)
        return [model.class_names[index] for index in indices]

    found = {choice: _timed(lambda: model.fit(*train, epochs="auto", **size), answer, test)}
    if choice == _CUT:
        other = build(preprocessor=make(**LONG_TEXTS[_WINDOWS]))
        other.head.set_weights(model.head.get_weights())
        name = f"{_CUT}, answered in {_WINDOWS}"
        found[name] = _timed(None, functools.partial(answer, model=other), test)
    return found


def _timed(train, answer, test):
    """Returns the share of right answers, and the CPU seconds of training and of answers."""
    texts, authors = test
    times = [time.process_time()]
    if train:
        train()
    times.append(time.process_time())
    are_right = [found == author for found, author in zip(answer(texts), authors, strict=True)]
    times.append(time.process_time())
    return statistics.mean(are_right), times[1] - times[0], times[2] - times[1]


def _cells(figures):
    """Formats the median and the range of the shares, and the medians of the seconds."""
    shares, *seconds = ([*column] for column in zip(*figures))
    percent = [f"{100 * each:.1f}" for each in (statistics.median(shares), *sorted(shares))]
    spread = f" ({percent[1]}–{percent[-1]})" if len(shares) > 1 else ""
    return [percent[0] + spread, *(f"{statistics.median(each):.0f}" for each in seconds)]


if __name__ == "__main__":
    sys.exit(exit_status(main))
