"""The documents of a pre-training corpus, in units of work: one unit becomes one shard."""

import dataclasses
from collections.abc import Iterable

from training.corpus import text_files, tfds_texts

TFDS_PREFIX = "tfds:"


@dataclasses.dataclass(frozen=True)
class Unit:
    """The documents of a shard.

    Attributes:
        split: str.
        number, count: ints; the shard's number in the split, and of how many.
        documents: `TextFiles` or `TfdsDocuments`: an iterable of documents, each an iterable of lines,
            which are bytes.
    """

    split: str
    number: int
    count: int
    documents: Iterable[Iterable[bytes]]

    @property
    def file(self):
        """The name of the shard's file."""
        return f"{self.split}-{self.number:05}-of-{self.count:05}.npy"

    def __str__(self):
        return f"{self.file} ({self.documents})"


def find_units(
    source, shard_bytes, validation_share=0.0, data_dir=None, download=False, field=None
):
    """Finds documents, and groups consecutive ones into units of about equal size.

    Args:
        source: path of a text file or of a folder of them, or `tfds:NAME`.
        shard_bytes: int, the size of a unit at most, about; no document is divided.
        validation_share: float, the share of a folder's documents that goes into validation; see
            `training.corpus.text_files`.
        data_dir, download, field: for `tfds:NAME`; see `training.corpus.tfds_texts`.

    Returns:
        list of `Unit`, split after split.

    Raises:
        FileNotFoundError: the source is not there.
        ValueError: a number is out of its range, there are no documents, or an option does not
            fit the source.
    """
    if shard_bytes < 1:
        raise ValueError(f"A shard's size must be at least 1 byte. Received: {shard_bytes}.")
    if source.startswith(TFDS_PREFIX):
        if validation_share:
            raise ValueError(f"{source} has splits of its own; a validation share is for a folder.")
        name = source.removeprefix(TFDS_PREFIX)
        splits = tfds_texts.find_groups(name, shard_bytes, data_dir, download, field)
    else:
        if field is not None:
            raise ValueError(f"A field is for {TFDS_PREFIX}NAME, not for the folder {source}.")
        splits = text_files.find_groups(source, shard_bytes, validation_share)
    return [
        Unit(split, number, len(groups), group)
        for split, groups in splits.items()
        for number, group in enumerate(groups)
    ]
