"""The README's picture shows figures of docs/results.md."""

import pathlib
import re
import runpy

DOCS = pathlib.Path(__file__).parents[2] / "docs"


def test_the_picture_s_figures():
    page = (DOCS / "results.md").read_text()
    picture = (DOCS / "results.svg").read_text()
    script = runpy.run_path(str(DOCS / "plot_results.py"))
    perplexities = [figure for figure, _ in script["PERPLEXITY"].values()]
    curves = script["ACCURACY"]
    written = [*perplexities, *(each for name in script["OFFSETS"] for each in curves[name])]
    for figure in {*written, *sum(curves.values(), ())}:
        assert re.search(rf"\b{re.escape(str(figure))}\b", page)
        assert figure not in written or f">{figure}<" in picture
