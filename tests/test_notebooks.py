"""The notebooks: in step with their texts, stored with what they show, and they run."""

import ast
import importlib.metadata
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import psutil
import pytest
from nbclient.exceptions import DeadKernelError

import fedjax_sel
from tests import scripts

REPOSITORY = Path(fedjax_sel.__file__).parents[1]
NAMES = (
    "01_quickstart", "02_compare_strategies", "03_your_own_strategy", "04_inside_fedcor_and_fl_dp3s",
    "05_your_own_model_and_data",
)  # fmt: skip
QUICKSTART = NAMES[0]
ROUNDS, SEEDS = 4, 2
NUM_CLIENTS, NUM_SELECTED, PROFILE_SIZE = 50, 10, 64


def _tool():
    return scripts.load("tools/notebooks.py")


tool = _tool()


def read(name=QUICKSTART):
    return nbformat.read(tool.FOLDER / f"{name}.ipynb", as_version=4)


def sources(notebook):
    return [(cell.cell_type, cell.source) for cell in notebook.cells]


def outputs_of(notebook):
    return [output for cell in notebook.cells for output in cell.get("outputs", [])]


# What is stored.


def test_these_are_all_notebooks():
    assert [text.stem for text in tool.texts()] == list(NAMES)
    assert sorted(path.stem for path in tool.FOLDER.glob("*.ipynb")) == list(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_is_what_its_text_says(name):
    made = tool.read(tool.FOLDER / f"{name}.py")
    assert sources(read(name)) == sources(made), f"run: tools/notebooks.py {name}"


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_is_stored_with_what_it_shows(name):
    notebook = read(name)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1)), f"run: tools/notebooks.py {name}"
    assert any("image/png" in output.get("data", {}) for output in outputs_of(notebook))
    assert all(output.output_type != "error" for output in outputs_of(notebook))
    assert tool.complaints(notebook) == []
    assert (tool.FOLDER / f"{name}.ipynb").stat().st_size < 500_000


def test_red_text_weight_and_folders_of_a_machine_are_complained_of():
    cell = nbformat.v4.new_code_cell("1")
    cell.outputs = [nbformat.v4.new_output("stream", name="stderr", text="WARNING: no GPU")]
    cell.outputs += [nbformat.v4.new_output("stream", name="stdout", text=f"{REPOSITORY}/runs" + 500_000 * "x")]
    told = tool.complaints(nbformat.v4.new_notebook(cells=[cell]))
    assert len(told) == 3 and "WARNING: no GPU" in told[0] and "more than 500000" in told[1] and "folder" in told[2]


def test_a_cell_that_did_not_change_keeps_its_outputs(tmp_path):
    name = NAMES[2]
    stored = tmp_path / f"{name}.ipynb"
    changed = read(name)
    place = next(place for place, cell in enumerate(changed.cells) if cell.get("outputs"))
    changed.cells[place].source += "  # another one"
    nbformat.write(changed, stored)
    made = tool.with_stored_outputs(tool.read(tool.FOLDER / f"{name}.py"), stored)
    assert made.cells[place].outputs == []
    assert [cell.get("outputs") for cell in made.cells[place + 1 :]] == [
        cell.get("outputs") for cell in read(name).cells[place + 1 :]
    ]


@pytest.mark.parametrize("name", NAMES)
def test_notebooks_have_badges_as_soon_as_the_project_has_an_address(name):
    badge = tool.badge(name)
    first = read(name).cells[0].source
    assert ("colab-badge" in first) == (badge is not None)
    assert badge is None or badge in first


def test_a_badge_names_the_repository(tmp_path, monkeypatch):
    real = (tool.ROOT / "pyproject.toml").read_text()

    def at(address):
        (tmp_path / "pyproject.toml").write_text(re.sub(r'(?m)^address = ".*"$', f'address = "{address}"', real))

    at("https://github.com/lab/fedjax-sel.git")
    monkeypatch.setattr(tool, "ROOT", tmp_path)
    assert tool.badge("02_x").endswith("research.google.com/github/lab/fedjax-sel/blob/main/notebooks/02_x.ipynb)")
    for elsewhere in ("", "https://example.org/fedjax-sel"):
        at(elsewhere)
        assert tool.badge("02_x") is None


# What they do.


def execute(name, folder, changes=(), rounds=ROUNDS, python=sys.executable, package=REPOSITORY):
    """Run a small version; `changes` are pairs (text, what stands there instead)."""
    notebook = read(name)
    for before, after in changes:
        assert any(before in cell.source for cell in notebook.cells)
        for cell in notebook.cells:
            cell.source = cell.source.replace(before, after)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = []
    settings = {
        "FEDJAX_SEL_NOTEBOOK_ROUNDS": rounds,
        "FEDJAX_SEL_NOTEBOOK_SEEDS": SEEDS,
        "FEDJAX_SEL_NOTEBOOK_GAMES": 16,
    }
    made = tool.execute(notebook, folder, {key: str(value) for key, value in settings.items()}, python, package)
    assert [output.text for output in outputs_of(made) if output.get("name") == "stderr"] == []
    return made


FEWER_DRAWS = [("DRAWS = 4000", "DRAWS = 200")]


def pictures(notebook):
    return sum(1 for output in outputs_of(notebook) if {"image/png", "image/gif"} & set(output.get("data", {})))


def printed(notebook):
    return "".join(output.text for output in outputs_of(notebook) if output.get("name") == "stdout")


def shown(notebook):
    return [output.data["text/plain"] for output in outputs_of(notebook) if "text/plain" in output.get("data", {})]


@pytest.mark.slow
def test_one_run_in_a_notebook(tmp_path):
    """The smallest: the first notebook with one strategy. The others are slow."""
    notebook = execute(QUICKSTART, tmp_path, [('("random", "fl_dp3s")', '("random",)')])
    assert pictures(notebook) == 2
    (line,) = (text for text in shown(notebook) if text.startswith("random: "))  # one output, and its last state
    assert re.fullmatch(
        r"random: devices: \d+ x \w+\nrandom: round 4/4  accuracy 0\.\d{3}  loss \d\.\d{3}  [\d.]+ s", line
    )
    assert not [one for one in psutil.Process().children(recursive=True) if "ipykernel" in " ".join(one.cmdline())]


@pytest.mark.slow
@pytest.mark.parametrize("profile", ["fc1", "fc1-relu"])
def test_quickstart_runs(profile, tmp_path):
    notebook = execute(QUICKSTART, tmp_path, [('PROFILE = "fc1"', f'PROFILE = "{profile}"')])
    tables = [costs(output.text) for output in outputs_of(notebook) if output.get("name") == "stdout"]
    times = 1 if profile == "fc1" else 2  # the exercise draws and counts again
    assert pictures(notebook) == 1 + times
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


TABLE = "text/markdown"
DIES = """KEEP_IN_DRIVE = False


class Dies:  # as a runtime does: nobody is asked
    def chunk(self, rounds, first):
        if rounds.config.selection.algo == "pow_d" and first == 0:
            os.kill(os.getpid(), 9)


SETTING = SETTING.replace(checkpoint_every=10)
"""


@pytest.mark.slow
def test_a_comparison_whose_runtime_dies_goes_on(tmp_path):
    """02: what was finished is read, what was begun goes on, and in the end nothing is run."""
    name, rounds = NAMES[1], 20
    dies = [("KEEP_IN_DRIVE = False\n", DIES), ("progress=True)", "callbacks=[Dies()], progress=True)")]
    with pytest.raises(DeadKernelError):
        execute(name, tmp_path, dies, rounds)
    kept = tmp_path / "runs" / name / "random" / "metrics.csv"
    written = kept.stat().st_mtime_ns
    first = execute(name, tmp_path, rounds=rounds)
    said = "\n".join(shown(first))
    assert f"random: all {rounds} rounds are finished; result read from runs/{name}/random" in said
    assert "pow_d: resuming after round 10" in said and "fedcor: round 20/20" in said
    assert kept.stat().st_mtime_ns == written
    second = execute(name, tmp_path, rounds=rounds)
    assert sum("all 20 rounds are finished" in text for text in shown(second)) == 5
    assert not any("round 20/20" in text for text in shown(second))
    once, again = ([o.data[TABLE] for o in outputs_of(n) if TABLE in o.get("data", {})] for n in (first, second))
    assert len(once) == 4 and once == again
    longer = "\n".join(shown(execute(name, tmp_path, rounds=rounds + 2)))
    assert longer.count("resuming after round 20") == 5


@pytest.mark.slow
def test_compare_strategies_runs(tmp_path):
    notebook = execute(NAMES[1], tmp_path)
    assert pictures(notebook) == 2
    tables = [
        output.data["text/markdown"] for output in outputs_of(notebook) if "text/markdown" in output.get("data", {})
    ]
    assert len(tables) == 4 and all(len(table.splitlines()) in (6, 7) for table in tables)
    assert "| divfl | gradient of all" in tables[0]
    assert f"at least 8 seeds; there are {SEEDS}" in printed(notebook)
    assert tables[2].count("too few seeds") == 4


@pytest.mark.slow
def test_your_own_strategy_runs(tmp_path):
    notebook = execute(NAMES[2], tmp_path)
    assert pictures(notebook) == 2
    said = printed(notebook)
    assert "balanced_labels: conforms" in said and "key used: `select` does not use its key" in said
    assert "'no_request' reads the fact 'label_histogram' without buying it" in said
    assert "numbers sent up beyond random's, in the first rounds: [500, 0, 0, 0]" in said
    assert re.search(r"^balanced_labels +\d", said, re.M)


def test_the_fields_of_states_that_a_notebook_reads_exist():
    text = (tool.FOLDER / f"{NAMES[3]}.py").read_text(encoding="utf-8")
    read = set(re.findall(r"(?:\b(?:state|after|before)|\.states\[[^\]]*\])\.(?!_)(\w+)", text))
    modules = [importlib.import_module(f"fedjax_sel.strategies.{name}") for name in ("fedcor", "fl_dp3s")]
    assert {"embeddings", "log_scale"} <= read <= {field for module in modules for field in module.State._fields}


@pytest.mark.slow
def test_inside_fedcor_and_fl_dp3s_runs(tmp_path):
    notebook = execute(NAMES[3], tmp_path, FEWER_DRAWS, rounds=12)
    kinds = [kind for output in outputs_of(notebook) for kind in output.get("data", {}) if kind.startswith("image/")]
    assert kinds.count("image/gif") == 2 and kinds.count("image/png") == 5
    said = printed(notebook)
    one, other = re.search(r"labels of the picks, in order: (.*)\nlabels of the run's cohort: +(.*)", said).groups()
    assert one == other
    checked, rounds = re.search(r"^(\d+) of (\d+) rounds$", said, re.M).groups()
    assert checked == rounds != "0"


@pytest.mark.slow
def test_your_own_model_and_data_runs(tmp_path):
    notebook = execute(NAMES[4], tmp_path)
    assert pictures(notebook) == 4
    said = printed(notebook)
    by_module, by_run = map(float, re.search(r"by the module itself ([\d.]+), by the run ([\d.]+)", said).groups())
    assert by_module == pytest.approx(by_run, abs=0.005)  # an image or two of 397 on the edge
    assert "measured: test_absolute_error, test_loss" in said


# The install cell.


def install_cell():
    (cell,) = (cell.source for cell in read().cells if tool.INSTALL in cell.source)
    return cell


@pytest.mark.parametrize("name", NAMES[1:])
def test_all_notebooks_have_the_same_install_cell(name):
    assert [cell.source for cell in read(name).cells if tool.INSTALL in cell.source] == [install_cell()]


@pytest.fixture
def run_install_cell(tmp_path, monkeypatch):
    """Runs the cell in a folder where the package is not, with a pip that only listens: what is it to install?"""
    (tmp_path / "content").mkdir()
    monkeypatch.chdir(tmp_path / "content")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.delenv("FEDJAX_SEL_SOURCE", raising=False)
    others = [one for one in importlib.metadata.distributions() if one.name != "fedjax-sel"]
    monkeypatch.setattr(importlib.metadata, "distributions", lambda: others)

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


@pytest.mark.parametrize("where", ["content", ".", "content/fedjax_sel"])
def test_the_install_cell_takes_the_clone_that_it_lies_in(run_install_cell, tmp_path, where):
    (tmp_path / where / "fedjax_sel").mkdir(parents=True)
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
def test_with_colabs_versions_the_notebooks_install_and_run(tmp_path, monkeypatch):
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
    for name in ("XLA_FLAGS", "FEDJAX_SEL_KNOWN_FLAGS", "FEDJAX_SEL_SOURCE", "PYTHONPATH", "JAX_COMPILATION_CACHE_DIR"):
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
    notebook = execute(QUICKSTART, content, python=image, package=None)
    (versions,) = (text for text in shown(notebook) if "'jax'" in text)
    for name, changes in [*((name, ()) for name in NAMES[1:3]), (NAMES[3], FEWER_DRAWS), (NAMES[4], ())]:
        assert pictures(execute(name, content, changes, rounds=12, python=image, package=None))
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
