"""The common parts of the project's plots."""

import os
import pathlib
import re
import warnings

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gpt1_keras.files import atomic_path

FORMATS = (".svg", ".png")
# From Okabe and Ito's palette, which colour-blind people can tell apart too.
BLUE, ORANGE, GREEN, RED, PURPLE, SKY = (
    "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9"
)  # fmt: skip
COLORS = (BLUE, ORANGE, GREEN, RED, PURPLE, SKY)
_NOT_IN_XML = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def check_format(path: str | os.PathLike[str]) -> None:
    """Raises ValueError unless the path ends in a format that can be written."""
    if pathlib.Path(path).suffix not in FORMATS:
        raise ValueError(f"The output must end in one of {list(FORMATS)}. Received: {path}.")


def new_figure(
    width: float = 8, height: float = 5, columns: int = 1, rows: int = 1
) -> tuple[Figure, list[Axes]]:
    """Returns a figure of `width` by `height` inches, and its axes, row after row."""
    figure = Figure(figsize=(width, height), layout="constrained", facecolor="white")
    figure.subplots(rows, columns)
    for axes in figure.axes:
        axes.grid(color="0.9")
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
    return figure, figure.axes


def shown(name: str) -> str:
    """Returns a name of the user's as a plot takes it: a dollar sign would start a formula, and an
    .svg with a control character could not be opened.
    """
    return _NOT_IN_XML.sub("\N{REPLACEMENT CHARACTER}", name).replace("$", r"\$")


def save(figure: Figure, path: str | os.PathLike[str]) -> None:
    """Writes a figure; the same version of matplotlib writes the same bytes.

    Raises:
        ValueError: the path ends in another format.
    """
    check_format(path)
    # Text stays text, which makes files ten times smaller. A random salt or the date would make
    # each file differ.
    with (
        matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "gpt1_keras"}),
        atomic_path(path) as temporary,
        warnings.catch_warnings(),
    ):
        # Of names in scripts that matplotlib's font lacks: who shows an .svg has other fonts.
        warnings.filterwarnings("ignore", "Glyph .* missing from font", UserWarning)
        metadata = {"Date": None} if pathlib.Path(path).suffix == ".svg" else None
        figure.savefig(temporary, dpi=150, metadata=metadata)
