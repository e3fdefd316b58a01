"""The paper's zero-shot probes as data: what each asks a language model (section 5)."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Probe:
    """A data set as a probe.

    Attributes:
        tfds_name: of the data set in TensorFlow Datasets.
        split: to score.
        reader: key of `training.paper.zero_shot.READERS`.
        chance: the score of guessing.
        previous_best: the score of the best single model before the paper.
        metric: key of `training.evaluation.metrics.METRICS`.
        threshold_split: where the threshold for examples of one choice is selected.
    """

    tfds_name: str
    split: str
    reader: str
    chance: float
    previous_best: float
    metric: str = "accuracy"
    threshold_split: str | None = None


# `previous_best` is from the paper's tables 3 and 4; for DPRD, from Peng, Khashabi & Roth (2015).
PROBES = {
    "cola": Probe(
        "glue/cola", "validation", "cola", 0.0, 0.35, "matthews", threshold_split="train"
    ),
    "sst2": Probe("glue/sst2", "validation", "sst2", 0.5, 0.932),
    "race_middle": Probe("race/middle", "dev", "race", 0.25, 0.602),
    "race_high": Probe("race/high", "dev", "race", 0.25, 0.503),
    "dprd": Probe("definite_pronoun_resolution", "test", "dprd", 0.5, 0.7641),
}


def find_probe(name: str) -> Probe:
    """Returns the probe of that name. Raises ValueError, naming the known ones."""
    if name not in PROBES:
        raise ValueError(f"Unknown probe {name!r}; expected one of {list(PROBES)}.")
    return PROBES[name]
