"""Texts of data sets: real ones, and small ones in the layout of the large ones."""

import contextlib
import os
import re

import pytest
import tensorflow as tf
import tensorflow_datasets as tfds

from training.corpus.build import make_corpus
from training.corpus.corpus_format import Corpus
from training.corpus.corpus_options import CorpusOptions
from training.corpus.tfds_texts import find_groups
from training.datasets.data_options import DataOptions


def build_data_set(folder, name, splits, features, config=None, version="1.0.0"):
    """A data set on disk, as TensorFlow Datasets prepares it."""
    tfds.dataset_builders.store_as_tfds_dataset(
        name=name,
        version=version,
        features=tfds.features.FeaturesDict(features),
        split_datasets={
            split: tf.data.Dataset.from_tensor_slices(columns) for split, columns in splits.items()
        },
        config=tfds.core.BuilderConfig(name=config) if config else None,
        data_dir=str(folder),
        disable_shuffling=True,
    )


def test_wiki40b_markers_become_line_ends(
    tiny_tokenizer, tokenizer_dir, whole_documents, read_tokens, tmp_path
):
    article = (
        "\n_START_ARTICLE_\nA film\n_START_SECTION_\nStaff\n_START_PARAGRAPH_\nkind_NEWLINE_dull"
    )
    texts = [article, "", "a lovely film"]
    build_data_set(
        tmp_path / "tfds",
        "wiki40b",
        {"train": {"wikidata_id": ["1", "2", "3"], "text": texts, "version_id": ["1", "1", "1"]}},
        {key: tfds.features.Text() for key in ("wikidata_id", "text", "version_id")},
        config="en",
        version="1.3.0",
    )
    options = CorpusOptions("tfds:wiki40b/en", tokenizer=tokenizer_dir, validation_share=0.0)
    index = make_corpus(options, tmp_path / "corpus", data=DataOptions(str(tmp_path / "tfds")))
    expected = ["A film Staff kind dull", "", "a lovely film"]
    assert read_tokens(tmp_path / "corpus") == whole_documents(tiny_tokenizer, expected)
    assert index["splits"]["train"]["empty_documents"] == 1


@pytest.mark.parametrize(
    ("name", "version", "fields"),
    [("pg19", "0.1.1", ["book_text", "book_title", "book_link"]), ("lm1b", "1.1.0", ["text"])],
)
def test_known_data_sets_find_their_text(
    name, version, fields, tiny_tokenizer, tokenizer_dir, whole_documents, read_tokens, tmp_path
):
    texts = {"train": ["a good film", "a bad film\nkind staff"], "test": ["dull"]}
    build_data_set(
        tmp_path / "tfds",
        name,
        {split: dict.fromkeys(fields, rows) for split, rows in texts.items()},
        {key: tfds.features.Text() for key in fields},
        version=version,
    )
    options = CorpusOptions(f"tfds:{name}", tokenizer=tokenizer_dir, validation_share=0.0)
    make_corpus(options, tmp_path / "corpus", data=DataOptions(str(tmp_path / "tfds")))
    for split, rows in texts.items():
        assert read_tokens(tmp_path / "corpus", split) == whole_documents(tiny_tokenizer, rows)


@pytest.mark.slow
def test_a_genuine_data_set_in_slices(
    tfds_dir, original_tokenizer, original_files, whole_documents, read_tokens, tmp_path
):
    """RTE has two strings an example; its slices together are all of a split."""
    tokenizer = os.path.dirname(original_files[0])
    options = CorpusOptions("tfds:glue/rte", tokenizer=tokenizer, field="sentence1", shard_mb=0.3)
    index = make_corpus(options, tmp_path / "corpus", data=DataOptions(tfds_dir))
    assert {name: split["documents"] for name, split in index["splits"].items()} == {
        "train": 2490,
        "validation": 277,
        "test": 3000,
    }
    corpus = Corpus(tmp_path / "corpus")
    assert len(corpus.split("train").shards) == 4
    rows = tfds.load(
        "glue/rte",
        split="train",
        data_dir=tfds_dir,
        download=False,
        read_config=tfds.ReadConfig(interleave_cycle_length=1),
    )
    texts = [row["sentence1"] for row in rows.as_numpy_iterator()]
    assert read_tokens(corpus.folder) == whole_documents(original_tokenizer, texts)


def test_the_only_string_is_the_text(tfds_dir):
    (group,) = find_groups("glue/sst2", 10**9, DataOptions(tfds_dir))["validation"]
    assert group.field == "sentence"
    assert next(iter(group)).read().startswith(b"a valueless kiddie paean")


@pytest.mark.parametrize(
    ("dataset", "field", "message"),
    [
        ("snli", None, "has the string features ['premise', 'hypothesis']; choose the one that"),
        ("glue/sst2", "text", "has no string feature 'text'; it has ['sentence']."),
        ("glue/sst2", "label", "has no string feature 'label'; it has ['sentence']."),
    ],
)
def test_a_text_that_is_not_found_names_what_there_is(dataset, field, message, tfds_dir):
    with pytest.raises(ValueError, match=re.escape(f"{dataset} {message}")):
        find_groups(dataset, 10**6, DataOptions(tfds_dir), field=field)


def test_the_last_examples_are_held_back(tfds_dir):
    """If the data set has no split validation."""
    name, data = "definite_pronoun_resolution", DataOptions(tfds_dir)
    whole = find_groups(name, 10**5, data, "sentence")
    assert {split: groups[-1].stop for split, groups in whole.items()} == {
        "train": 1322,
        "test": 564,
    }
    groups = find_groups(name, 10**5, data, "sentence", None)
    bounds = {split: [(each.start, each.stop) for each in groups[split]] for split in groups}
    assert bounds["test"] == [(each.start, each.stop) for each in whole["test"]]
    assert bounds["validation"] == [(1322 - 66, 1322)]
    assert bounds["train"][-1][1] == 1322 - 66 and len(bounds["train"]) == len(whole["train"]) > 1
    assert groups["validation"][0].split == "train"


@pytest.mark.parametrize(("share", "is_refused"), [(None, False), (0.0, False), (0.1, True)])
def test_a_share_where_there_is_a_validation_split(share, is_refused, tfds_dir):
    message = re.escape("glue/sst2 has the splits ['test', 'train', 'validation']; a validation")
    with pytest.raises(ValueError, match=message) if is_refused else contextlib.nullcontext():
        assert len(find_groups("glue/sst2", 10**9, DataOptions(tfds_dir), None, share)) == 3
