"""What the project's pictures have in common."""

import pathlib

import matplotlib
from matplotlib.figure import Figure

from gpt1_keras.files import atomic_path

FORMATS = (".svg", ".png")
# Of Okabe and Ito's colours, which people who see colours differently tell apart too.
BLUE, ORANGE, GREEN, RED, PURPLE, SKY = (
    "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9"
)  # fmt: skip
COLORS = (BLUE, ORANGE, GREEN, RED, PURPLE, SKY)


def check_format(path):
    """Raises ValueError unless a picture's path ends in a format that can be written."""
    if pathlib.Path(path).suffix not in FORMATS:
        raise ValueError(f"The output must end in one of {list(FORMATS)}. Received: {path}.")


def new_axes(width=8, height=5, rows=1, columns=1):
    """A figure, and its axes: one, or an array of them."""
    figure = Figure(figsize=(width, height), layout="constrained", facecolor="white")
    axes = figure.subplots(rows, columns)
    for each in figure.axes:
        each.grid(color="0.9")
        each.set_axisbelow(True)
        each.spines[["top", "right"]].set_visible(False)
    return figure, axes


def save(figure, path):
    """Writes a figure. One version of matplotlib writes the same figure the same, byte for byte.

    Raises:
        ValueError: the path ends in another format.
    """
    check_format(path)
    # Without the salt and with the date, each file would differ.
    with matplotlib.rc_context({"svg.hashsalt": "gpt1_keras"}), atomic_path(path) as temporary:
        metadata = {"Date": None} if pathlib.Path(path).suffix == ".svg" else None
        figure.savefig(temporary, dpi=150, metadata=metadata)
