"""The corpus program: its tokens against plain loops, its arguments, and its errors."""

import functools
import gzip
import json
import os
import re
import sys

import numpy as np
import pytest
import tokenizers
import tqdm

import gpt1_keras
from gpt1_keras.presets.loading import load_tokenizer
from training.corpus.__main__ import main
from training.corpus.build import make_corpus
from training.corpus.corpus_format import Corpus
from training.corpus.corpus_options import CorpusOptions
from training.corpus.shards import ShardError


def hugging_face_tokenizer(vocabulary, merges):
    with open(merges) as file:
        pairs = [tuple(line.split()) for line in file.read().split("\n")[1:] if line]
    with open(vocabulary) as file:
        model = tokenizers.models.BPE(
            json.load(file), pairs, unk_token="<unk>", end_of_word_suffix="</w>"
        )
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    return tokenizer


@pytest.mark.slow
def test_books_are_what_hugging_face_s_tokenizer_makes_of_them(
    books_dir, original_files, original_tokenizer, read_tokens, tmp_path
):
    books = sorted((books_dir / "valid").iterdir(), key=lambda path: path.stat().st_size)[:4]
    for book in books:
        (tmp_path / "books").mkdir(exist_ok=True)
        (tmp_path / "books" / book.name).write_bytes(book.read_bytes())
    folder = os.path.dirname(original_files[0])
    options = CorpusOptions(
        str(tmp_path / "books"), tokenizer=folder, shard_mb=0.15, validation_share=0.0
    )
    index = make_corpus(options, tmp_path / "corpus")

    reference = hugging_face_tokenizer(*original_files)
    expected = []
    for book in sorted(books):
        ids = reference.encode(book.read_text(encoding="utf-8")).ids
        expected += [original_tokenizer.start_token_id, *ids]
    corpus = Corpus(tmp_path / "corpus")
    assert read_tokens(tmp_path / "corpus") == expected
    assert len(corpus.split("train").shards) > 1
    for shard in corpus.split("train").shards:  # no document is divided
        assert shard[0] == original_tokenizer.start_token_id and shard.dtype == np.uint16
    train = index["splits"]["train"]
    assert (train["tokens"], train["documents"], train["empty_documents"]) == (len(expected), 4, 0)
    assert train["bytes"] == sum(book.stat().st_size for book in books)
    assert corpus.vocabulary_size == 40481
    corpus.verify()


def test_documents_splits_and_counts(
    stories, story_texts, tiny_tokenizer, tokenizer_dir, whole_documents, read_tokens, tmp_path
):
    index = make_corpus(
        CorpusOptions(stories, tokenizer=tokenizer_dir, shard_mb=1e-4), tmp_path / "c"
    )
    for split, texts in story_texts.items():
        expected = whole_documents(tiny_tokenizer, texts)
        assert read_tokens(tmp_path / "c", split) == expected
    assert json.loads((tmp_path / "c" / "index.json").read_text()) == index
    train = index["splits"]["train"]
    assert (train["documents"], train["empty_documents"]) == (3, 2)
    assert train["bytes"] == sum(len(text.encode()) for text in story_texts["train"])
    for key in ("tokens", "documents", "empty_documents", "bytes"):
        assert train[key] == sum(shard[key] for shard in train["shards"])
    assert load_tokenizer(tmp_path / "c" / "tokenizer").get_vocabulary() == (
        tiny_tokenizer.get_vocabulary()
    )
    assert not list((tmp_path / "c").glob(".*"))


def test_files_of_other_encodings(
    tiny_tokenizer, tokenizer_dir, whole_documents, read_tokens, tmp_path
):
    """UTF-16 with its mark and .gz are read; what is no UTF-8 is refused with file and line."""
    texts, source = ["a good film\nkind", "a lovely one"], tmp_path / "texts"
    source.mkdir()
    (source / "a.txt").write_bytes(texts[0].encode("utf-16"))
    (source / "b.txt.gz").write_bytes(gzip.compress(texts[1].encode()))
    options = CorpusOptions(str(source), tokenizer=tokenizer_dir, validation_share=0.0)
    make_corpus(options, tmp_path / "corpus")
    assert read_tokens(tmp_path / "corpus") == whole_documents(tiny_tokenizer, texts)
    (source / "c.txt").write_bytes("one\nLe pr\u00e9sident".encode("latin-1"))
    for made_by in ({"tokenizer": tokenizer_dir}, {"num_merges": 5}):
        with pytest.raises((ShardError, ValueError), match="c.txt, line 2: .*UTF-8"):
            make_corpus(CorpusOptions(str(source), **made_by), tmp_path / "other")
        assert not (tmp_path / "other").exists()


@pytest.mark.slow
def test_one_file_and_a_learned_tokenizer(books_dir, whole_documents, read_tokens, tmp_path):
    book = sorted((books_dir / "valid").iterdir(), key=lambda path: path.stat().st_size)[0]
    index = make_corpus(
        CorpusOptions(str(book), num_merges=300, validation_share=0.0), tmp_path / "corpus"
    )
    corpus = Corpus(tmp_path / "corpus")
    tokenizer = load_tokenizer(corpus.tokenizer_folder)
    assert index["tokenizer"]["vocabulary_size"] == tokenizer.vocabulary_size() > 300
    assert read_tokens(corpus.folder) == whole_documents(tokenizer, [book.read_bytes()])

    learned = gpt1_keras.GPT1Tokenizer.learn([book.read_text(encoding="utf-8")], 300)
    assert learned.get_vocabulary() == tokenizer.get_vocabulary()


def run_main(capsys, *arguments):
    status = main([str(argument) for argument in arguments])
    return status, capsys.readouterr()


def test_the_program_says_what_it_made(stories, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setattr(tqdm, "tqdm", functools.partial(tqdm.tqdm, mininterval=0))
    status, printed = run_main(
        capsys, "--input", stories, "--num-merges", 50, "--output", tmp_path / "corpus",
        "--processes", 1,
    )  # fmt: skip
    assert status == 0
    tokens = Corpus(tmp_path / "corpus").split("train").tokens
    assert f"train: {tokens:,} tokens, 3 of them <start>; 1 shard(s); 2 empty" in printed.out
    assert re.search(r"Tokenized 0.0 MB in [\d.]+ s", printed.out)
    assert "2/2" in printed.err  # the progress


@pytest.mark.slow
def test_the_original_normalization_keeps_line_ends(write_texts, read_tokens, tmp_path):
    write_texts(tmp_path / "stories", {"a.txt": "They don't.\n\nWe don't.\n", "b.txt": "We do."})
    options = CorpusOptions(
        str(tmp_path / "stories"), num_merges=20, normalization="original", validation_share=0.0
    )
    index = make_corpus(options, tmp_path / "corpus")
    assert index["tokenizer"]["normalization"] == "original"
    tokenizer = load_tokenizer(Corpus(tmp_path / "corpus").tokenizer_folder)
    text = tokenizer.detokenize(read_tokens(tmp_path / "corpus"))
    assert text == "<start> they do n't . \n we do n't . <start> we do ."


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "Give either --tokenizer, or --num-merges to learn one."),
        (["--num-merges", 5, "--tokenizer", "t"], "Give either --tokenizer, or --num-merges"),
        (["--num-merges", 0], "num_merges must be at least 1. Received: 0."),
        (["--num-merges", 5, "--normalization", "newest"],
         "normalization='newest' is unknown; expected one of ['bert', 'original']."),
        (["--num-merges", 5, "--processes", 0], "processes must be at least 1. Received: 0."),
        (["--num-merges", 5, "--shard-mb", 0], "A shard's size must be at least 1 byte. Received"),
        (["--num-merges", 5, "--validation-share", 1], "The validation share must be in [0, 1)."),
        (["--num-merges", 5, "--validation-share", 0.5], "{stories} has the splits ['train', 'va"),
        (["--num-merges", 5, "--field", "text"], "A field is for tfds:NAME, not for the folder"),
        (["--tokenizer", "nowhere"], "The vocabulary file 'nowhere/vocabulary.json' does not"),
        (["--num-merges", 5, "--input", "nowhere"], "The input nowhere does not exist."),
        (["--num-merges", 5, "--input", "{empty}"], "The folder {empty} holds no .txt or"),
        (["--num-merges", 5, "--output", "{stories}/new"], "The output {stories}/new must not lie"),
        (["--num-merges", 5, "--output", "{stories}"], "{stories} exists, and is not an empty"),
        (["--num-merges", 5, "--input", "tfds:nonesuch"], "TensorFlow Datasets has no data set"),
        (["--num-merges", 5, "--input", "tfds:pg19"], "The data set pg19 is not in {empty}/pg19/"),
    ],
)  # fmt: skip
def test_bad_arguments_are_one_clear_line(arguments, message, stories, tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    names = {"stories": stories, "empty": str(tmp_path / "empty")}
    given = [str(argument).format(**names) for argument in arguments]
    defaults = [
        "--input",
        stories,
        "--output",
        tmp_path / "out" / "c",
        "--data-dir",
        names["empty"],
    ]
    status, printed = run_main(capsys, *defaults, *given)
    assert status == 1
    left_out = f"warning: 1 file(s) of {stories} are left out, "  # its notes, which are no document
    [error] = [line for line in printed.err.splitlines() if not line.startswith(left_out)]
    assert error.startswith(f"error: {message.format(**names)}")
    assert not (tmp_path / "out" / "c").exists()


def test_a_split_without_a_token_is_refused(stories, write_texts, tokenizer_dir, tmp_path):
    write_texts(tmp_path / "stories", {"test/blank.txt": " "})
    with pytest.raises(ValueError, match="'test'.*no token"):
        make_corpus(CorpusOptions(stories, tokenizer=tokenizer_dir), tmp_path / "corpus")
    assert not (tmp_path / "corpus").exists()


def test_a_corpus_is_never_overwritten(stories, tokenizer_dir, read_files, tmp_path):
    options = CorpusOptions(stories, tokenizer=tokenizer_dir)
    make_corpus(options, tmp_path / "corpus")
    before = read_files(tmp_path / "corpus")
    with pytest.raises(ValueError, match="--output"):
        make_corpus(options, tmp_path / "corpus")
    assert read_files(tmp_path / "corpus") == before
