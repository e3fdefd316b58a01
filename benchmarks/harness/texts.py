"""Texts to measure with: books, data sets of TensorFlow Datasets, and random words."""

import pathlib
import random
import re


def book_paragraphs(folder):
    """Yields all paragraphs of the books in a folder and its subfolders."""
    for path in sorted(pathlib.Path(folder).rglob("*.txt")):
        for line in path.read_text(encoding="utf-8").split("\n"):
            if line.strip():
                yield line


def data_set_texts(name, data_dir):
    """Yields all texts of all splits of a data set of TensorFlow Datasets."""
    import numpy as np
    import tensorflow as tf
    import tensorflow_datasets as tfds

    for split in _builder(name, data_dir).as_dataset().values():
        for example in tfds.as_numpy(split):
            for values in map(np.asarray, tf.nest.flatten(example, expand_composites=True)):
                if values.dtype.kind in "OS":
                    yield from (text.decode("utf-8") for text in values.ravel())


def mixed_texts(data_dir):
    """Returns a shuffled list of 500 sentences of SST-2 and 500 passages of RACE-middle."""
    import tensorflow_datasets as tfds

    def first(name, split, field):
        examples = _builder(name, data_dir).as_dataset(split=split)
        return [each[field].decode() for each in tfds.as_numpy(examples.take(500))]

    texts = first("glue/sst2", "validation", "sentence") + first("race/middle", "dev", "article")
    random.Random(0).shuffle(texts)
    return texts


def _builder(name, data_dir):
    from training.datasets.data_options import DataOptions
    from training.datasets.tfds import prepared_builder

    return prepared_builder(name, DataOptions(str(data_dir)))


class WholeWords:
    """Random texts of words; each word is one token.

    Args:
        tokenizer: Hugging Face's tokenizer of the original vocabulary.
    """

    def __init__(self, tokenizer):
        whole = (each[: -len("</w>")] for each in sorted(tokenizer.get_vocab()) if "</w>" in each)
        words = [word for word in whole if re.fullmatch("[a-z]{2,}", word)]
        ids = tokenizer(words, add_special_tokens=False)["input_ids"]
        self._words = [word for word, each in zip(words, ids) if len(each) == 1]
        self._random = random.Random(0)

    def text(self, tokens):
        """Returns a text of `tokens` tokens."""
        return " ".join(self._random.choices(self._words, k=tokens))
