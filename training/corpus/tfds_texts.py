"""The texts of a TensorFlow Datasets data set as documents, in slices of similar size."""

import dataclasses
import io
import re
from collections.abc import Iterator

import numpy as np
import tensorflow_datasets as tfds

from training.corpus.corpus_options import count_to_hold_back, share_to_hold_back
from training.datasets.data_options import DEFAULT_DATA, DataOptions
from training.datasets.tfds import prepared_builder

_BATCH_SIZE = 64  # examples read at once; reading one at a time takes longer than tokenizing it


_FIELDS = {"pg19": "book_text", "wiki40b": "text"}  # which of several strings is the text
# Regular expressions of what marks a line end within a text. An article's title, headings and
# paragraphs are marked (Guo et al., 2020).
_MARKERS = {"wiki40b": rb"_START_ARTICLE_|_START_SECTION_|_START_PARAGRAPH_|_NEWLINE_"}


@dataclasses.dataclass(frozen=True)
class TfdsDocuments:
    """Consecutive examples of a split, each a document: an iterable of iterables of lines."""

    folder: str  # of one version of the prepared data set
    split: str
    start: int
    stop: int
    field: str
    marker: bytes | None

    def __iter__(self) -> Iterator[io.BytesIO]:
        batches = tfds.builder_from_directory(self.folder).as_dataset(
            split=tfds.core.ReadInstruction(self.split, self.start, self.stop, unit="abs"),
            batch_size=_BATCH_SIZE,
            # One file after another; no file is kept in memory.
            read_config=tfds.ReadConfig(interleave_cycle_length=1, try_autocache=False),
        )
        for texts in batches.map(lambda batch: batch[self.field]).as_numpy_iterator():
            for text in texts:
                yield io.BytesIO(re.sub(self.marker, b"\n", text) if self.marker else text)

    def __str__(self) -> str:
        return f"{self.folder}, {self.split}[{self.start}:{self.stop}]"


def find_groups(
    name: str,
    group_bytes: int,
    data: DataOptions = DEFAULT_DATA,
    field: str | None = None,
    validation_share: float | None = 0.0,
) -> dict[str, list[TfdsDocuments]]:
    """Cuts every split of a data set into slices.

    Args:
        name: such as `"wiki40b/en"`.
        field: the feature that holds the text; by default the known one of lm1b, pg19 and wiki40b,
            otherwise the only string feature.
        validation_share: share of train, its last examples, that becomes validation; see
            `training.corpus.corpus_options`.

    Returns:
        dict from split to slices; empty splits are left out.
    """
    builder = prepared_builder(name, data)
    field, marker = _find_field(name, builder, field), _MARKERS.get(builder.name)
    splits = {split: info for split, info in builder.info.splits.items() if info.num_examples}
    if not splits:
        raise ValueError(f"The data set {name} in {builder.data_dir} holds no example.")

    def cut(split: str, start: int, stop: int) -> list[TfdsDocuments]:
        info = splits[split]
        # Where the size is unknown, make as many slices as the data set has files.
        count = -(-int(info.num_bytes) // group_bytes) or info.num_shards
        count = min(-(-count * (stop - start) // info.num_examples), stop - start)
        bounds = [start + i * (stop - start) // count for i in range(count + 1)]
        return [
            TfdsDocuments(str(builder.data_dir), split, first, last, field, marker)
            for first, last in zip(bounds, bounds[1:])
        ]

    groups = {split: cut(split, 0, info.num_examples) for split, info in splits.items()}
    share = share_to_hold_back(splits, validation_share, name)
    total = splits["train"].num_examples if share else 0
    held = count_to_hold_back(total, share)
    if held:
        print(f"Held back for validation: the last {held:,} of {total:,} examples of train.")
        groups["train"] = cut("train", 0, total - held)
        groups["validation"] = cut("train", total - held, total)
    return groups


def _find_field(name: str, builder: tfds.core.DatasetBuilder, field: str | None) -> str:
    """Finds the feature that holds the texts: the given one, the known one, or the only string."""
    strings = [
        key
        for key, feature in builder.info.features.items()
        if feature.shape == () and np.dtype(feature.np_dtype) == object
    ]
    field = field or _FIELDS.get(builder.name)
    if field is None and len(strings) != 1:
        raise ValueError(
            f"{name} has the string features {strings}; choose the one that holds the text with "
            "--field."
        )
    field = field or strings[0]
    if field not in strings:
        raise ValueError(f"{name} has no string feature {field!r}; it has {strings}.")
    return field
