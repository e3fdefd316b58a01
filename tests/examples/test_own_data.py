"""The notebook for data of one's own runs to its end, and its page has the same code."""

import ast
import pathlib
import re
import shutil

import nbformat
import pytest
from nbclient import NotebookClient
from pytest_examples import find_examples

ROOT = pathlib.Path(__file__).parents[2]
NOTEBOOK = ROOT / "examples" / "own_data.ipynb"


@pytest.fixture
def notebook():
    return nbformat.read(NOTEBOOK, as_version=4)


@pytest.mark.slow
def test_the_notebook_runs(notebook, tmp_path, monkeypatch):
    shutil.copytree(ROOT / "examples" / "data", tmp_path / "data")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    place = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=600, kernel_name="python3", resources=place).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    printed = "".join(output.text for output in outputs if output.output_type == "stream")
    assert float(re.search(r"accuracy +(\d\.\d+)", printed)[1]) >= 0.8
    assert any("image/png" in output.get("data", {}) for output in outputs)  # the matrix
    answer = ast.literal_eval(outputs[-1].data["text/plain"])
    assert answer["label"] == max(answer["scores"], key=answer["scores"].get) == "positive"
    assert {path.name for path in (tmp_path / "own_data").iterdir()} == {
        *("logs", "preset", "sentences", "sentences.tflite")
    }


def test_the_notebook_is_kept_without_outputs(notebook):
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell for cell in cells if cell.outputs or cell.execution_count] == []


def test_the_page_has_the_notebook_s_code(notebook):
    cells = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    page = [example.source.strip() for example in find_examples(ROOT / "docs" / "own_data.md")]
    assert page == cells
