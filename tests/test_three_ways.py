"""The same tables from a command, a script and a notebook, for a run and a comparison."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import fedjax_sel
from fedjax_sel import UserError
from fedjax_sel.cli import command_line, compare, train
from fedjax_sel.reporting import compared

pandas = pytest.importorskip("pandas")

REPOSITORY = Path(fedjax_sel.__file__).parents[1]
QUICK = {"rounds": 3, "chunk": 1, "num_clients": 10, "num_selected": 2, "seeds": 2, "target_accuracy": 0.05}
FLAGS = [text for name, value in QUICK.items() for text in ("--" + name.replace("_", "-"), str(value))]
ALGOS = ["random", "fl_dp3s[profile=fc1-relu]"]


def same(found, file):
    """A table of an object and the file that a command wrote."""
    expected = pandas.read_csv(file).astype(found.dtypes.to_dict())
    pandas.testing.assert_frame_equal(found, expected, check_exact=True)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """What the command for one run writes."""
    place = tmp_path_factory.mktemp("commanded")
    assert command_line.guarded(train.main, [*FLAGS, "--algo", "random", "--out", str(place / "run")]) == 0
    return place


@pytest.fixture(scope="module")
def commanded(trained):
    """What both commands write."""
    place = trained
    arguments = [*FLAGS, "--algos", *ALGOS, "--out", str(place / "compared")]
    assert command_line.guarded(compare.main, arguments) == 0
    assert command_line.guarded(compare.main, arguments) == 0  # of finished runs: from then on nothing changes
    return place


@pytest.mark.slow
def test_a_run(trained):
    config = fedjax_sel.preset("quickstart").replace(**QUICK, algo="random")
    read = fedjax_sel.run(config, out=str(trained / "run")).to_pandas()
    same(read, trained / "run" / "metrics.csv")
    same(fedjax_sel.load(str(trained / "run")).to_pandas(), trained / "run" / "metrics.csv")
    again = fedjax_sel.run(config).to_pandas()
    assert list(again) == list(read)
    timeless = [name for name in read if not name.endswith("_seconds")]
    pandas.testing.assert_frame_equal(again[timeless], read[timeless], check_exact=True)
    assert (
        again["round_seconds"].isna().sum() == 2 and (again["round_seconds"].dropna() > 0).all()
    )  # the first compiles


@pytest.mark.slow
def test_a_comparison(commanded):
    out = commanded / "compared"
    config = fedjax_sel.preset("quickstart").replace(**QUICK)
    found = fedjax_sel.run_comparison(ALGOS, {"quickstart": config}, out=out)
    assert found.finished and not found.stopped and isinstance(found, fedjax_sel.ComparisonResult)
    assert set(found.tables) == {file.stem for file in out.glob("*.csv")} == {"comparison", "comparison_pairs"}
    for name, table in found.tables.items():
        same(table, out / f"{name}.csv")
    same(found.to_pandas(), out / "comparison.csv")
    assert list(found.to_pandas()["algo"]) == ALGOS and found.tables["comparison_pairs"]["baseline"].eq("random").all()
    assert found.result("random").num_rounds == 3
    with pytest.raises(UserError, match="no finished run of 'afl'; finished runs: random in quickstart, fl_dp3s"):
        found.result("afl")
    assert "run_comparison" in (out / "comparison.md").read_text()


@pytest.mark.slow
def test_a_comparison_from_the_start_has_the_numbers_of_the_command(commanded, tmp_path):
    config = fedjax_sel.preset("quickstart").replace(**QUICK)
    found = fedjax_sel.run_comparison(ALGOS, {"quickstart": config}, out=tmp_path / "own").to_pandas()
    expected = pandas.read_csv(commanded / "compared" / "comparison.csv")
    timeless = [name for name in expected if not name.endswith(("_seconds", "per_second", "_per_round"))]
    pandas.testing.assert_frame_equal(found[timeless], expected[timeless])
    assert sorted(path.name for path in (tmp_path / "own").iterdir()) == sorted(
        path.name for path in (commanded / "compared").iterdir()
    )


def test_several_settings_and_optimizers(tmp_path, monkeypatch):
    """Folders as the command has them: DIR/OPTIMIZER/ALGO, and above these a folder per setting."""
    given = []

    def run(jobs, *_, **__):
        given.extend(jobs)
        return compared.ComparisonResult(tmp_path, len(jobs))

    monkeypatch.setattr(compared, "run", run)
    optimizers = ["fedavg", "fedprox[mu=1]"]
    fedjax_sel.run_comparison(["afl"], "gpfl/fmnist-dir", out=tmp_path, optimizers=optimizers)
    by_command = []
    monkeypatch.setattr(compare, "_compare", lambda jobs, *_: by_command.extend(jobs) or 0)
    compare.main([
        "--algos", "afl", "--preset", "gpfl/fmnist-dir", "--optimizers", *optimizers, "--out", str(tmp_path),
    ])  # fmt: skip
    ours, theirs = (
        [(job.setting, job.algo, job.optimizer, job.config) for job in jobs] for jobs in (given, by_command)
    )
    assert ours == theirs and len(ours) == 2
    given.clear()
    fedjax_sel.run_comparison(["afl"], ["fedcor/fmnist-1spc", "gpfl/fmnist-dir"], out=tmp_path, optimizers=optimizers)
    assert [job.config.run.out for job in given if job.optimizer == "fedavg"] == [
        str(tmp_path / setting / "fedavg" / "afl") for setting in ("fedcor-fmnist-1spc", "gpfl-fmnist-dir")
    ]


@pytest.mark.parametrize(
    "call,words",
    [
        (lambda out: fedjax_sel.run_comparison(["fl_dps"], out=out), "did you mean 'fl_dp3s'"),
        (lambda out: fedjax_sel.run_comparison(["random", "random"], out=out), "give it once"),
        (lambda out: fedjax_sel.run_comparison([], out=out), "algos: the list is empty"),
        (lambda out: fedjax_sel.run_comparison("random", {}, out=out), "settings: the list is empty"),
        (
            lambda out: fedjax_sel.run_comparison("random", {"a": "quickstart"}, out=out),
            "'a': 'quickstart' is not a configuration",
        ),
        (
            lambda out: fedjax_sel.run_comparison([print], out=out),
            "--algos: a value of type builtin_function_or_method",
        ),
        (lambda out: fedjax_sel.run_comparison(["random"], "quickstrat", out=out), "did you mean 'quickstart'"),
        (
            lambda out: fedjax_sel.run_comparison(5, out=out),
            "^algos: 5 is not a list; give names, or obj",
        ),
        (lambda out: fedjax_sel.run_comparison([5], out=out), "^--algos: a value of type int is no strategy; give "),
        (lambda out: fedjax_sel.run_comparison("random", None, out=out), "^settings: None is not a list; "),
        (
            lambda out: fedjax_sel.run_comparison("random", [fedjax_sel.Config()], out=out),
            "^settings: a value of type Config is not the name of a preset; give configurations and experiments",
        ),
        (
            lambda out: fedjax_sel.run_comparison("random", out=out, optimizers="fedproks"),
            "--optimizer: unknown 'fedproks'; did you mean 'fedprox'",
        ),
    ],
)
def test_what_cannot_be_is_one_sentence(tmp_path, call, words):
    with pytest.raises(UserError, match=words) as caught:
        call(tmp_path / "out")
    assert "\n" not in str(caught.value) and not (tmp_path / "out").exists()


@pytest.mark.slow
def test_who_looks_for_the_command_in_python_is_told_the_function():
    code = "import fedjax_sel\ntry: fedjax_sel.compare\nexcept AttributeError as error: print(error)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=REPOSITORY)
    assert "; the function is fedjax_sel.run_comparison" in done.stdout


SCRIPT = """
import sys
import fedjax_sel
place, quick, algos = {arguments!r}
config = fedjax_sel.preset("quickstart").replace(**quick)
tables = dict(
    run=fedjax_sel.run(config.replace(algo="random"), out=place + "/run").to_pandas(),
    **fedjax_sel.run_comparison(algos, {{"quickstart": config}}, out=place + "/compared").tables,
)
for name, table in tables.items():
    table.to_pickle({to!r} + "/" + name)
"""


@pytest.mark.slow
@pytest.mark.parametrize("way", ["script", "notebook"])
def test_from_a_script_and_a_notebook(commanded, tmp_path, monkeypatch, way):
    code = SCRIPT.format(arguments=(str(commanded), QUICK, ALGOS), to=str(tmp_path))
    if way == "script":
        (tmp_path / "script.py").write_text(code)
        environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
        subprocess.run([sys.executable, tmp_path / "script.py"], check=True, cwd=tmp_path, env=environment)
    else:
        in_a_notebook(code, tmp_path, monkeypatch)
    files = {"run": commanded / "run" / "metrics.csv"}
    files |= {file.stem: file for file in (commanded / "compared").glob("*.csv")}
    for name, file in files.items():
        same(pandas.read_pickle(tmp_path / name), file)


def in_a_notebook(code, place, monkeypatch):
    """Runs code as the cell of a notebook, in a kernel that sees nothing of the user's Jupyter."""
    import nbformat
    from jupyter_client.kernelspec import KernelSpecManager
    from jupyter_client.manager import AsyncKernelManager
    from nbclient import NotebookClient

    kernel = place / "kernels" / "here"
    kernel.mkdir(parents=True)
    spec = {"argv": [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"], "display_name": "here"}
    (kernel / "kernel.json").write_text(json.dumps({**spec, "language": "python"}))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(place / "runtime"))
    manager = AsyncKernelManager(
        kernel_name="here", kernel_spec_manager=KernelSpecManager(kernel_dirs=[str(place / "kernels")])
    )
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)])
    client = NotebookClient(notebook, km=manager, timeout=300, resources={"metadata": {"path": str(place)}})
    client.execute(env={**os.environ, "PYTHONPATH": str(REPOSITORY), "IPYTHONDIR": str(place / "ipython")})
