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
    figures = [*perplexities, *sum(script["ACCURACY"].values(), ())]
    for figure in map(str, figures):
        assert re.search(rf"\b{re.escape(figure)}\b", page)
        assert f">{figure}<" in picture
