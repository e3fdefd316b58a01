"""Builds a corpus: an index, shards of token ids, and the tokenizer that made them.

A corpus is written whole or not at all. Its tokens depend on the input and the options alone, not
on the number of processes or the machine. A shard holds one document after another, each after a
`<start>`.
"""

import dataclasses
import functools
import itertools
import os
import pathlib
import time
from collections.abc import Iterator, Sequence
from typing import Any

import gpt1_keras
from gpt1_keras.files import atomic_path, write_json
from gpt1_keras.presets.loading import describe_tokenizer, load_tokenizer
from training.corpus import text_files, tfds_texts
from training.corpus.corpus_format import FORMAT, INDEX_FILE, TOKENIZER_FOLDER, Corpus
from training.corpus.corpus_options import CorpusOptions
from training.corpus.shards import Unit, shard_dtype, write_shard
from training.corpus.workers import run_in_pipeline, run_in_processes
from training.datasets.data_options import DEFAULT_DATA, DataOptions

TFDS_PREFIX = "tfds:"
_COUNTS = ("tokens", "documents", "empty_documents", "bytes")


def make_corpus(
    options: CorpusOptions,
    output: str | os.PathLike[str],
    data: DataOptions = DEFAULT_DATA,
    processes: int = 1,
    runner: str | None = None,
    beam_flags: Sequence[str] = (),
) -> dict[str, Any]:
    """Makes a corpus.

    Args:
        output: path of the corpus's folder, which must be missing or empty.
        runner: name of an Apache Beam runner that does the work instead; all its workers must reach
            `output` and the input under the same paths.

    Returns:
        The content of `index.json`. It counts, for each split and shard, `tokens`, with a
        `<start>` for each document; `documents`; `empty_documents`, which are left out; and the
        `bytes` read.

    Raises:
        ValueError: the output exists already, or the input holds no text.
        training.corpus.shards.ShardError: a shard could not be written.
    """
    if processes < 1:
        raise ValueError(f"processes must be at least 1. Received: {processes}.")
    _check_output(output, options.input)
    units = find_units(
        options.input,
        int(options.shard_mb * 1e6),
        options.validation_share,
        data,
        options.field,
    )
    processes = min(processes, len(units))
    with atomic_path(output) as folder:
        os.mkdir(folder)
        tokenizer = _make_tokenizer(options, units)
        tokenizer.save_to_preset(os.path.join(folder, TOKENIZER_FOLDER))
        header = {
            "format": FORMAT,
            "dtype": shard_dtype(tokenizer.vocabulary_size()),
            "tokenizer": describe_tokenizer(tokenizer),
            "options": dataclasses.asdict(options),
        }
        write = functools.partial(write_shard, folder=folder)
        started = time.monotonic()
        if runner is None:
            shards = run_in_processes(write, units, processes)
        else:
            shards = run_in_pipeline(write, units, folder, runner, processes, beam_flags)
        _write_index(shards, folder, header)
        seconds = time.monotonic() - started
        index = Corpus(folder).index
        for name, split in index["splits"].items():
            if not split["tokens"]:
                raise ValueError(f"The split {name!r} of {options.input} holds no token.")
    _report(index, seconds)
    return index


def find_units(
    source: str,
    shard_bytes: int,
    validation_share: float | None = 0.0,
    data: DataOptions = DEFAULT_DATA,
    field: str | None = None,
) -> list[Unit]:
    """Finds documents, and groups consecutive ones into units of similar length.

    Args:
        shard_bytes: approximate maximum of bytes in a unit; no document is divided.
        validation_share: share of train that becomes the split validation; None for the default,
            if the source has no such split.
        field: of `tfds:NAME`, the feature that holds the text; see `training.corpus.tfds_texts`.
    """
    if shard_bytes < 1:
        raise ValueError(f"A shard's size must be at least 1 byte. Received: {shard_bytes}.")
    splits: Any
    if source.startswith(TFDS_PREFIX):
        name = source.removeprefix(TFDS_PREFIX)
        splits = tfds_texts.find_groups(name, shard_bytes, data, field, validation_share)
    else:
        if field is not None:
            raise ValueError(f"A field is for {TFDS_PREFIX}NAME, not for the folder {source}.")
        splits = text_files.find_groups(source, shard_bytes, validation_share)
    return [
        Unit(split, index, len(groups), group)
        for split, groups in splits.items()
        for index, group in enumerate(groups)
    ]


def _check_output(output_path: str | os.PathLike[str], source_path: str) -> None:
    """Keeps a corpus from overwriting anything, and from becoming its own input."""
    output, source = pathlib.Path(output_path).resolve(), pathlib.Path(source_path).resolve()
    if (output / INDEX_FILE).exists():
        raise ValueError(f"{output} already holds a corpus. Choose another --output.")
    if output.exists() and not (output.is_dir() and not any(output.iterdir())):
        raise ValueError(f"{output} exists, and is not an empty folder.")
    if source in output.parents:
        raise ValueError(f"The output {output} must not lie within the input {source}.")


def _make_tokenizer(options: CorpusOptions, units: list[Unit]) -> gpt1_keras.GPT1Tokenizer:
    if options.tokenizer is not None:
        return load_tokenizer(options.tokenizer, options.normalization)
    training = [unit for unit in units if unit.split == "train"]
    if not training:
        raise ValueError(f"{options.input} has no split 'train' to learn a tokenizer from.")
    assert options.num_merges is not None  # `CorpusOptions` has checked that
    print(f"Learning {options.num_merges:,} merges", flush=True)
    started = time.monotonic()
    tokenizer = gpt1_keras.GPT1Tokenizer.learn(
        _lines(training), options.num_merges, normalization=options.normalization or "bert"
    )
    print(f"Learned them in {time.monotonic() - started:.1f} s", flush=True)
    return tokenizer


def _lines(units: list[Unit]) -> Iterator[str]:
    for unit in units:
        for line in itertools.chain.from_iterable(unit.documents):
            yield line.decode("utf-8", "replace")


def _write_index(shards: list[dict[str, Any]], folder: str, header: dict[str, Any]) -> None:
    splits: dict[str, list[dict[str, Any]]] = {}
    for shard in sorted(shards, key=lambda shard: shard["file"]):
        shard = dict(shard)
        splits.setdefault(shard.pop("split"), []).append(shard)
    index = {
        **header,
        "splits": {
            name: {**{key: sum(shard[key] for shard in split) for key in _COUNTS}, "shards": split}
            for name, split in splits.items()
        },
    }
    write_json(os.path.join(folder, INDEX_FILE), index)


def _report(index: dict[str, Any], seconds: float) -> None:
    for name, split in index["splits"].items():
        print(
            f"{name}: {split['tokens']:,} tokens, {split['documents']:,} of them <start>; "
            f"{len(split['shards'])} shard(s); {split['empty_documents']} empty documents left out"
        )
    megabytes = sum(split["bytes"] for split in index["splits"].values()) / 1e6
    print(f"Tokenized {megabytes:.1f} MB in {seconds:.1f} s ({megabytes / seconds:.2f} MB/s)")
