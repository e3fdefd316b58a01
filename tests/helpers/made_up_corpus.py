"""Writes a corpus of made-up tokens, as `training.corpus` writes one."""

import hashlib
import json
import pathlib

import numpy as np


def write_corpus(folder, vocabulary_size=9, changes=None, **splits):
    """Writes a corpus of a list of shards for each split, and returns its folder.

    `changes` go into the index.
    """
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    found = {}
    for split, shards in splits.items():
        entries = []
        for i, shard in enumerate(shards):
            path = folder / f"{split}-{i:05}-of-{len(shards):05}.npy"
            np.save(path, np.asarray(shard, np.uint16))
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            entries.append({"file": path.name, "tokens": len(shard), "sha256": digest})
        found[split] = {"shards": entries}
    tokenizer = {"fingerprint": "f", "normalization": "bert", "vocabulary_size": vocabulary_size}
    index = {"format": 1, "dtype": "uint16", "tokenizer": tokenizer, "splits": found}
    (folder / "index.json").write_text(json.dumps(index | (changes or {})))
    return folder
