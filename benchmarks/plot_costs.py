"""Plots each peer's time of an answer by length, batch and clients, beside the limit.

`python -m benchmarks` calls it after `benchmarks.costs` and `benchmarks.serving`; it reads their
tables.
"""

from matplotlib.ticker import FixedLocator, LogFormatter, NullLocator, ScalarFormatter

from benchmarks.costs import BATCHES_LENGTH
from benchmarks.harness.matrix_product import LIMIT
from benchmarks.harness.page import tables_of
from training.evaluation.plots import COLORS, new_figure, save

_LINES = {"float32": "-", "bfloat16": "-.", "int8": ":"}


def plot_costs(machine, reports, path):
    """Writes the picture of one machine.

    Args:
        machine: its name, for the title.
        reports: what the programs printed, by program: `costs`, and `serving` if it has run.
    """
    rows, *_ = tables_of(reports["costs"])  # the warm answers
    panels = {
        "tokens of one text": _curves(rows, lambda texts, tokens: tokens if texts == 1 else None),
        f"texts of {BATCHES_LENGTH} tokens in a batch": _curves(
            rows, lambda texts, tokens: texts if tokens == BATCHES_LENGTH else None
        ),
    }
    if served := _served(reports.get("serving", "")):
        panels["clients, a text of SST-2 or RACE a request"] = served
    figure, all_axes = new_figure(4 * len(panels), 4.2, columns=len(panels))
    names = dict.fromkeys(name for curves in panels.values() for name in curves)
    engines = dict.fromkeys(_engine(name)[0] for name in names if name != LIMIT)
    colors = dict(zip(engines, COLORS, strict=False))
    handles = {}
    for axes, (label, curves) in zip(all_axes, panels.items(), strict=True):
        for name, points in curves.items():
            style = {"color": "0.3", "linestyle": "--"}
            if name != LIMIT:
                engine, precision = _engine(name)
                style = {"color": colors[engine], "linestyle": _LINES[precision], "marker": "o"}
            [handles[name]] = axes.plot(*zip(*points), markersize=4, **style)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xlabel(label)
        axes.xaxis.set_major_locator(FixedLocator([x for x, _ in points]))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(ScalarFormatter())
        axes.yaxis.set_major_formatter(ScalarFormatter())
        axes.yaxis.set_minor_formatter(LogFormatter(minor_thresholds=(1, 0.4)))  # 200, not 2e2
    all_axes[0].set_ylabel("ms a text (lower is better)")
    figure.suptitle(f"What an answer costs: the paper's size, {machine}", fontsize="medium")
    names = [name.replace(LIMIT, "limit: the products alone, float32") for name in handles]
    figure.legend(handles.values(), names, loc="outside lower center", ncols=4, edgecolor="none")
    save(figure, path)


def _curves(rows, x_of):
    """Returns the points of each name, from rows of `benchmarks.costs`."""
    curves = {}
    for labels, figures in rows:
        x = x_of(*map(int, labels))
        for name, figure in figures.items() if x is not None else ():
            if _is_plotted(name):
                curves.setdefault(name, []).append((x, float(figure)))
    return curves


def _served(report):
    """Returns points as `_curves` does: milliseconds per request of the classifiers' servers."""
    rows = next((rows for rows in tables_of(report) if any(LIMIT in each for each, _ in rows)), [])
    curves = {}
    for (clients, name), figures in rows:
        name = name.removesuffix(", FastAPI")
        if _is_plotted(name) and (rate := float(figures["requests/s"])):
            curves.setdefault(name, []).append((int(clients), 1e3 / rate))
    return curves


def _is_plotted(name):
    """Returns False for other commits, for REST and for exports that do not merge requests."""
    return name.count(", ") == 1


def _engine(name):
    """Splits a name: of "OpenVINO, int8 (NNCF)" it returns "OpenVINO" and "int8"."""
    engine, precision = name.split(", ")
    return engine, precision.split()[0]
