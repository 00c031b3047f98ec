"""The notebook: in step with its source, and it runs."""

import json
import os
import sys
from pathlib import Path

import jupytext
import nbformat
import pytest
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient

import fedjax_sel

NOTEBOOK = Path(__file__).parents[1] / "notebooks" / "01_quickstart.ipynb"
ROUNDS, SEEDS = 4, 2
NUM_CLIENTS, NUM_SELECTED, PROFILE_SIZE = 50, 10, 64


def read():
    return nbformat.read(NOTEBOOK, as_version=4)


def test_notebook_is_what_jupytext_makes_of_its_source():
    made = jupytext.read(NOTEBOOK.with_suffix(".py"))
    advice = "run: jupytext --to ipynb --update notebooks/01_quickstart.py"
    assert [(c.cell_type, c.source) for c in read().cells] == [(c.cell_type, c.source) for c in made.cells], advice


def test_notebook_is_stored_without_outputs():
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in read().cells)


@pytest.mark.parametrize("profile", ["fc1", pytest.param("fc1-relu", marks=pytest.mark.slow)])
def test_notebook_runs(profile, tmp_path, monkeypatch):
    notebook = execute(profile, tmp_path, monkeypatch)
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    pictures = [output for output in outputs if "image/png" in output.get("data", {})]
    tables = [costs(output.text) for output in outputs if output.get("name") == "stdout"]
    times = 1 if profile == "fc1" else 2  # the exercise draws and counts again
    assert len(pictures) == 1 + times
    assert len(tables) == times
    for table in tables:
        assert table["random"]["models down"] == ROUNDS * NUM_SELECTED
        assert table["random"]["start, MB down"] == table["random"]["start, MB up"] == 0
        fl_dp3s = table["fl_dp3s"]
        assert fl_dp3s["models down"] == ROUNDS * NUM_SELECTED + NUM_CLIENTS - NUM_SELECTED
        assert fl_dp3s["models up"] == ROUNDS * NUM_SELECTED
        assert fl_dp3s["start, MB up"] == round(NUM_CLIENTS * PROFILE_SIZE * 4 / 1e6, 3)
        shared = (fl_dp3s["start, MB down"] + fl_dp3s["start, MB up"]) / (fl_dp3s["MB down"] + fl_dp3s["MB up"])
        assert fl_dp3s["start's share"] == pytest.approx(100 * shared, abs=0.1)
    assert ("fl_dp3s fc1-relu" in tables[-1]) == (profile != "fc1")


def execute(profile, folder, monkeypatch):
    """Runs a small version, in a kernel of this interpreter that sees nothing of the user's Jupyter."""
    notebook = read()
    for cell in notebook.cells:
        cell.source = cell.source.replace('PROFILE = "fc1"', f'PROFILE = "{profile}"')
    kernel = folder / "kernels" / "here"
    kernel.mkdir(parents=True)
    spec = {"argv": [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"], "display_name": "here"}
    (kernel / "kernel.json").write_text(json.dumps({**spec, "language": "python"}))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(folder / "runtime"))
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(fedjax_sel.__file__).parents[1]),  # the package that the other tests test
        "IPYTHONDIR": str(folder / "ipython"),
        "TMPDIR": str(folder),
        "FEDJAX_SEL_NOTEBOOK_ROUNDS": str(ROUNDS),
        "FEDJAX_SEL_NOTEBOOK_SEEDS": str(SEEDS),
    }
    environment.pop("MPLBACKEND", None)  # a notebook has its own
    manager = AsyncKernelManager(
        kernel_name="here", kernel_spec_manager=KernelSpecManager(kernel_dirs=[str(folder / "kernels")])
    )
    client = NotebookClient(notebook, km=manager, timeout=300, resources={"metadata": {"path": str(folder)}})
    return client.execute(env=environment)


def costs(text):
    """The printed table: strategy -> row -> number."""
    heading, *lines = (line for line in text.splitlines() if line.strip())
    names = [name.strip() for name in heading[20:].split("  ") if name.strip()]
    table = {name: {} for name in names}
    for line in lines:
        for name, cell in zip(names, line[20:].split(), strict=True):
            table[name][line[:20].strip()] = float(cell.rstrip("%"))
    return table
