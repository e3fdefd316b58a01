"""A share of labelled examples, held back to validate on."""

from collections.abc import Iterable, Sequence

import numpy as np

_MOST_BINS = 10  # of scores
_EXAMPLES_PER_BIN = 20


def held_back(
    texts: Iterable[Sequence[object]], labels: np.ndarray, share: float, seed: int
) -> np.ndarray:
    """Chooses which examples are held back: about the same share of each label.

    At least one example of each label is held back and one is left, if there are two with different
    texts; otherwise all are left. Scores are taken by quantiles. Examples whose texts differ
    in case and white space alone stay together.

    Args:
        labels: array `[examples]`: indices of classes or choices, or float scores.
        share: above 0 and below 1.

    Returns:
        bool array `[examples]`.
    """
    if np.issubdtype(labels.dtype, np.floating):
        bins = min(_MOST_BINS, max(1, len(labels) // _EXAMPLES_PER_BIN))
        labels = np.digitize(labels, np.quantile(labels, np.linspace(0, 1, bins + 1)[1:-1]))
    numbers: dict[tuple[str, ...], int] = {}  # of groups of the same texts
    plain = (tuple(" ".join(str(text).casefold().split()) for text in each) for each in texts)
    groups = np.array([numbers.setdefault(each, len(numbers)) for each in plain])
    first = np.unique(groups, return_index=True)[1]  # the example that stands for its group
    sizes = np.bincount(groups)
    order = np.random.default_rng(seed).permutation(len(first))
    is_held = np.zeros(len(first), bool)
    for label in np.unique(labels[first]):
        members = order[labels[first[order]] == label]
        middles = np.cumsum(sizes[members]) - sizes[members] / 2
        count = int(np.sum(middles < share * sizes[members].sum()))
        is_held[members[: min(max(count, 1), len(members) - 1)]] = True
    return is_held[groups]
