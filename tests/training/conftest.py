"""What the tests of the corpus share: a few documents, and their expected tokens."""

import pathlib

import numpy as np
import pytest
import tensorflow_datasets as tfds

from training.corpus.build import make_corpus
from training.corpus.corpus_format import Corpus
from training.corpus.corpus_options import CorpusOptions
from training.runs.pretrain_options import CheckpointSchedule, PretrainOptions
from training.runs.pretraining import pretrain

STORIES = {
    "train/b/second.txt": "A bad film.\r\nAnd a dull one,\n\n\nthe staff were kind",
    "train/a.txt": "A good film, and a lovely one\n" * 40,
    "train/empty.txt": "",
    "train/z blank.txt": " \n\t\n",
    "train/c.txt": "kind\x0bstaff \x85 a\u2028film\r" * 9,
    "train/notes.md": "not a document",
    "valid/one.txt": "the staff were dull",
}


@pytest.fixture(scope="session")
def write_texts():
    """Writes a dict from path to text into a folder, and returns the folder as a str."""

    def write(folder, texts):
        for name, text in texts.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text.encode())
        return str(folder)

    return write


@pytest.fixture
def stories(tmp_path, write_texts):
    """A folder of two splits."""
    return write_texts(tmp_path / "stories", STORIES)


@pytest.fixture
def story_texts():
    """The documents of `stories` by split, in order."""
    names = ["a.txt", "b/second.txt", "c.txt", "empty.txt", "z blank.txt"]
    train = [STORIES[f"train/{name}"] for name in names]
    return {"train": train, "validation": [STORIES["valid/one.txt"]]}


@pytest.fixture(scope="session")
def tokenizer_dir(tiny_tokenizer, tmp_path_factory):
    """The folder of `tiny_tokenizer`."""
    folder = tmp_path_factory.mktemp("tokenizer")
    tiny_tokenizer.save_to_preset(str(folder))
    return str(folder)


@pytest.fixture(scope="session")
def whole_documents():
    """The tokens that documents must give: each encoded as one string, after a `<start>`."""

    def encode(tokenizer, texts):
        rows = tokenizer(list(texts)).to_list()
        return [token for row in rows if row for token in [tokenizer.start_token_id, *row]]

    return encode


@pytest.fixture(scope="session")
def read_tokens():
    """The tokens of a split of a corpus, shard after shard, as a list."""

    def read(folder, split="train"):
        return np.concatenate(Corpus(folder).split(split).shards).tolist()

    return read


@pytest.fixture(scope="session")
def read_files():
    """The content of every file of a folder, a dict by its path."""

    def read(folder):
        files = [path for path in pathlib.Path(folder).rglob("*") if path.is_file()]
        return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}

    return read


@pytest.fixture(scope="session")
def corpus(tmp_path_factory, write_texts, tokenizer_dir):
    """A corpus of 2,000 tokens and a validation split."""
    random = np.random.default_rng(0)
    words = "a good film and a bad one, the staff were kind, lovely, dull".split()

    def text(count):
        return " ".join(random.choice(words, count))

    folder = tmp_path_factory.mktemp("corpus")
    texts = {"train/a.txt": text(1500), "train/b.txt": text(500), "valid/c.txt": text(200)}
    options = CorpusOptions(write_texts(folder / "texts", texts), tokenizer=tokenizer_dir)
    make_corpus(options, folder / "corpus")
    return folder / "corpus"


@pytest.fixture(scope="session")
def pretrained(corpus, tmp_path_factory):
    """A finished pre-training on `corpus` with two snapshots: its folder and its result."""
    folder = tmp_path_factory.mktemp("pretrained")
    options = PretrainOptions(
        "gpt1_micro", steps=5, batch_size=4, sequence_length=128, warmup_steps=1
    )
    schedule = CheckpointSchedule(checkpoint_every=2, snapshot_every=2)
    return folder, pretrain(options, corpus, folder, checkpoint_schedule=schedule)


@pytest.fixture(scope="session")
def made_up_tfds(tmp_path_factory):
    """Writes made-up examples as a data set of TensorFlow Datasets.

    The builder is the real one, with its features and its file format; only where it would read
    what it downloads, it is given examples. Returns the `data_dir`.
    """
    data_dir = tmp_path_factory.mktemp("tfds")

    def prepare(name, splits):
        builder = tfds.builder(name, data_dir=data_dir)
        builder._split_generators = lambda *_: {
            split: iter(list(enumerate(examples))) for split, examples in splits.items()
        }
        builder.download_and_prepare()
        return str(data_dir)

    return prepare
