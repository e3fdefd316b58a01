"""The options that determine a corpus, and the share of it that is held back for validation."""

import dataclasses
from collections.abc import Collection

from gpt1_keras.cli import check_at_least_one, option
from gpt1_keras.tokenization.normalization import check_normalization

DEFAULT_SHARE = 0.05  # of train, where the input has no split for validation
_TOKENIZER = "the tokenizer (one of the two)"  # a group in --help


@dataclasses.dataclass(frozen=True)
class CorpusOptions:
    """The options that determine a corpus."""

    input: str = option(
        "a text file in UTF-8; a folder of .txt files, each a document, also as .txt.gz, where "
        "subfolders called train, valid (or validation, val, dev) and test are splits; or "
        "tfds:NAME, such as tfds:pg19, tfds:lm1b, tfds:wiki40b/en, a data set of TensorFlow "
        "Datasets with its own splits"
    )
    tokenizer: str | None = option(
        "folder of a tokenizer, a preset or vocabulary files", None, group=_TOKENIZER
    )
    num_merges: int | None = option("learn this many merges from train", None, group=_TOKENIZER)
    normalization: str | None = option(
        "how text becomes words: bert, or original, as the published weights were trained "
        "(default: that of --tokenizer; bert for a new one)",
        None,
    )
    validation_share: float | None = option(
        "share of train that is held back as the split validation, if the input has none: whole "
        f"documents, or the last lines of a single one; 0 for none (default: {DEFAULT_SHARE})",
        None,
    )
    field: str | None = option(
        "with tfds:NAME: the feature that holds the text (default: the known or only one)", None
    )
    shard_mb: float = option("approximate MB of text in a shard", 32.0)

    def __post_init__(self) -> None:
        if (self.tokenizer is None) == (self.num_merges is None):
            raise ValueError("Give either --tokenizer, or --num-merges to learn one.")
        check_at_least_one(self, "num_merges")
        if self.normalization is not None:
            check_normalization(self.normalization)


def share_to_hold_back(splits: Collection[str], asked: float | None, source: object) -> float:
    """Returns the share of the split train that becomes the split validation.

    Args:
        asked: the share that the user asked for; None for the default, where it is needed.
    """
    if asked is not None and not 0 <= asked < 1:
        raise ValueError(f"The validation share must be in [0, 1). Received: {asked}.")
    if "train" in splits and "validation" not in splits:
        return DEFAULT_SHARE if asked is None else asked
    if asked:
        raise ValueError(
            f"{source} has the splits {sorted(splits)}; a validation share is for an input with "
            "train and without validation."
        )
    return 0.0


def count_to_hold_back(total: int, share: float) -> int:
    """Returns how many of the examples or lines of train are held back; 0 leaves all of them."""
    return min(max(1, round(share * total)), total - 1) if share and total else 0
