"""The documents of a pre-training corpus, in units of work: one unit becomes one shard."""

import dataclasses
from collections.abc import Iterable
from typing import Any

from training.corpus import text_files, tfds_texts
from training.datasets.data_options import DEFAULT_DATA, DataOptions

TFDS_PREFIX = "tfds:"


@dataclasses.dataclass(frozen=True)
class Unit:
    """The documents of a shard.

    Attributes:
        index: index of the shard in the split.
        count: number of shards of the split.
        documents: `TextFiles` or `TfdsDocuments`: an iterable of documents, each an iterable of
            lines, which are bytes.
    """

    split: str
    index: int
    count: int
    documents: Iterable[Iterable[bytes]]

    @property
    def file(self) -> str:
        """The name of the shard's file."""
        return f"{self.split}-{self.index:05}-of-{self.count:05}.npy"

    def __str__(self) -> str:
        return f"{self.file} ({self.documents})"


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
