"""How much of a corpus is held back for validation, where the input has no such split."""

from collections.abc import Collection

DEFAULT_SHARE = 0.05


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
