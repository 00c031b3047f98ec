"""The notebook: in step with its source, and it runs."""

import ast
import importlib.metadata
import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import jupytext
import nbformat
import pytest
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient

import fedjax_sel

REPOSITORY = Path(fedjax_sel.__file__).parents[1]
NOTEBOOK = REPOSITORY / "notebooks" / "01_quickstart.ipynb"
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


@pytest.mark.slow
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


def execute(profile, folder, monkeypatch, python=sys.executable, package=REPOSITORY):
    """Runs a small version in a kernel that sees nothing of the user's Jupyter.

    The kernel is this interpreter's and has the package that the other tests test, unless others are given.
    """
    notebook = read()
    for cell in notebook.cells:
        cell.source = cell.source.replace('PROFILE = "fc1"', f'PROFILE = "{profile}"')
    kernel = folder / "kernels" / "here"
    kernel.mkdir(parents=True)
    spec = {"argv": [str(python), "-m", "ipykernel_launcher", "-f", "{connection_file}"], "display_name": "here"}
    (kernel / "kernel.json").write_text(json.dumps({**spec, "language": "python"}))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(folder / "runtime"))
    environment = {
        **os.environ,
        "PYTHONPATH": "" if package is None else str(package),
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


# The install cell.


def install_cell():
    (cell,) = (cell.source for cell in read().cells if "FEDJAX_SEL_SOURCE =" in cell.source)
    return cell


@pytest.fixture
def run_install_cell(tmp_path, monkeypatch):
    """Runs the cell in a folder where the package is not, with a pip that only listens: what is it to install?"""
    (tmp_path / "content").mkdir()
    monkeypatch.chdir(tmp_path / "content")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.delenv("FEDJAX_SEL_SOURCE", raising=False)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)

    def run(error=""):
        sources = []

        def pip(command, **_):
            assert command[:4] == [sys.executable, "-m", "pip", "install"]
            kept = Path(command[command.index("-c") + 1]).read_text().splitlines()
            assert kept == [f"{name}=={importlib.metadata.version(name)}" for name in ("jax", "jaxlib", "numpy")]
            sources.append(command[-1])
            return subprocess.CompletedProcess(command, int(bool(error)), "", error)

        with monkeypatch.context() as patch:
            patch.setattr(subprocess, "run", pip)
            exec(compile(install_cell(), "cell", "exec"), {})
        (source,) = sources
        return source

    return run


def test_the_install_cell_takes_what_the_variable_says(run_install_cell, monkeypatch):
    monkeypatch.setenv("FEDJAX_SEL_SOURCE", "git+https://example.org/fedjax_sel")
    assert run_install_cell() == "git+https://example.org/fedjax_sel"


@pytest.mark.parametrize("where", ["content", "."])
def test_the_install_cell_takes_the_clone_that_it_lies_in(run_install_cell, tmp_path, where):
    (tmp_path / where / "fedjax_sel").mkdir()
    (tmp_path / where / "fedjax_sel" / "version.py").touch()
    (tmp_path / "content" / "fedjax_sel-0.1.0-py3-none-any.whl").touch()
    assert Path(run_install_cell()) == (tmp_path / where).resolve()


@pytest.mark.parametrize("name", ["fedjax_sel-0.2.0-py3-none-any.whl", "fedjax_sel-main.zip"])
def test_the_install_cell_takes_the_newest_archive_beside_it(run_install_cell, tmp_path, name):
    for age, file in enumerate((name, "fedjax_sel-0.1.0-py3-none-any.whl", "other.zip")):
        (tmp_path / "content" / file).touch()
        os.utime(tmp_path / "content" / file, (1e9 - age, 1e9 - age))
    assert Path(run_install_cell()) == (tmp_path / "content" / name).resolve()


def test_without_a_package_the_install_cell_says_where_to_put_it(run_install_cell, tmp_path):
    with pytest.raises(SystemExit, match=r"not on PyPI: put its wheel into .*/content, or set FEDJAX_SEL_SOURCE"):
        run_install_cell()


def test_what_pip_says_is_shown(run_install_cell, monkeypatch):
    monkeypatch.setenv("FEDJAX_SEL_SOURCE", "nowhere")
    with pytest.raises(SystemExit, match=r"pip install -q -c .* nowhere\nResolutionImpossible"):
        run_install_cell(error="ResolutionImpossible")


def test_the_versions_that_the_notebook_names_are_those_that_are_tested():
    (said,) = (cell.source for cell in read().cells if cell.source.startswith("## Install"))
    pins = (REPOSITORY / "tools" / "pins" / "colab.txt").read_text()
    named = dict(re.findall(r"(JAX|Flax|NumPy) (\d[\d.]*\d)", said))
    assert named == {name: re.search(rf"^{name.lower()}==(.*)$", pins, re.M)[1] for name in ("JAX", "Flax", "NumPy")}
    assert re.search(r"Python (3\.\d+)", said)[1] == re.search(r"Python (3\.\d+)", pins)[1]


@pytest.mark.slow  # downloads JAX and all else
def test_with_colabs_versions_the_notebook_installs_and_runs(tmp_path, monkeypatch):
    """A wheel beside the notebook, in an environment with what Colab's image has; none of it is replaced."""
    found = subprocess.run(
        [sys.executable, "tools/test_versions.py", "--list", "--sets", "colab"],
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
    )
    python = re.search(r"^colab-[\d.]+: (.*)$", found.stdout, re.M)
    if python is None:
        pytest.skip(found.stdout.strip())
    for name in ("XLA_FLAGS", "FEDJAX_SEL_XLA_FLAGS", "FEDJAX_SEL_SOURCE", "PYTHONPATH", "JAX_COMPILATION_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    pins = REPOSITORY / "tools" / "pins" / "colab.txt"
    image = tmp_path / "image" / "bin" / "python"
    subprocess.run([python[1], "-m", "venv", tmp_path / "image"], check=True)
    subprocess.run([image, "-m", "pip", "install", "-q", "-r", pins], check=True)
    before = freeze(image)
    content = tmp_path / "content"
    content.mkdir()
    subprocess.run(
        [image, "-m", "pip", "wheel", "-q", "--no-deps", "-w", content, REPOSITORY], check=True, cwd=tmp_path
    )
    notebook = execute("fc1", content, monkeypatch, image, None)
    (versions,) = (o.data["text/plain"] for c in notebook.cells for o in c.get("outputs", []) if "'jax'" in str(o))
    assert ast.literal_eval(versions) == {
        "fedjax_sel": fedjax_sel.__version__, "jax": "0.7.2", "flax": "0.11.2", "numpy": "2.1.3",
    }  # fmt: skip
    after = freeze(image)
    assert {name: after.get(name) for name in before} == before
    assert set(after) - set(before) <= {"fedjax_sel", "fedjax-sel", "importlib_resources"}


def freeze(python):
    """Package -> version."""
    done = subprocess.run([python, "-m", "pip", "list", "--format", "json"], capture_output=True, text=True, check=True)
    return {package["name"]: package["version"] for package in json.loads(done.stdout)}


def costs(text):
    """The printed table: strategy -> row -> number."""
    heading, *lines = (line for line in text.splitlines() if line.strip())
    names = [name.strip() for name in heading[20:].split("  ") if name.strip()]
    table = {name: {} for name in names}
    for line in lines:
        for name, cell in zip(names, line[20:].split(), strict=True):
            table[name][line[:20].strip()] = float(cell.rstrip("%"))
    return table
