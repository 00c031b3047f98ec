"""Sweeps: a grid of settings, each strategy's best one, and the warning at an edge of the grid."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import fedjax_sel
from fedjax_sel.cli import compare
from fedjax_sel.reporting import sweeps
from fedjax_sel.reporting.comparison import Spread

SMALL = ["--num-clients", "12", "--num-selected", "3", "--rounds", "2", "--chunk", "2"]


def test_a_grid_has_every_combination():
    grid = sweeps.make_grid({"alpha": ["0.1", "1"], "local-epochs": ["1", "2"]})
    assert list(grid) == ["alpha=0.1,local-epochs=1", "alpha=0.1,local-epochs=2", "alpha=1,local-epochs=1",
                          "alpha=1,local-epochs=2"]  # fmt: skip
    assert grid["alpha=1,local-epochs=1"] == {"alpha": "1", "local-epochs": "1"}
    assert sweeps.make_grid({"alpha": 0.1, "optimizer": "fedavg"}) == {
        "alpha=0.1,optimizer=fedavg": {"alpha": 0.1, "optimizer": "fedavg"}
    }


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    setting = fedjax_sel.preset("quickstart").replace(num_clients=12, num_selected=3, rounds=2, chunk=2, seeds=2)
    rates = {"learning_rate": [1e-6, 0.1, 0.3]}
    return fedjax_sel.sweep(["random", "full"], setting, rates, out=tmp_path_factory.mktemp("swept"))


@pytest.mark.slow
def test_the_best_setting_is_that_of_the_largest_mean(swept):
    grid = sweeps.make_grid({"learning_rate": ["1e-06", "0.1", "0.3"]})
    means = {(row.algo, row.setting): row.last_rounds.mean for row in swept.rows}
    assert len(means) == 6 and {setting for _, setting in means} == {*grid}
    for algo, row in sweeps.best(swept.rows, grid).items():
        assert row.last_rounds.mean == max(mean for (name, _), mean in means.items() if name == algo)
        at_edge = row.setting != "learning_rate=0.1"
        line = next(line for line in sweeps.summary(swept.rows, grid) if line.startswith(f"{algo}: "))
        assert ("value tried: try values beyond it" in line) == at_edge
    worse = sweeps.best([row._replace(higher_is_better=False) for row in swept.rows], grid)
    assert worse["full"].last_rounds.mean == min(mean for (name, _), mean in means.items() if name == "full")
    text = (swept.out / "comparison.md").read_text()
    assert "## Sweep" in text and "learning_rate=0.3" in text and (swept.out / "sweep.png").exists()
    folder = swept.out / "learning_rate=0.1" / "random"
    assert fedjax_sel.load(folder).config.training.learning_rate == 0.1
    np.testing.assert_array_equal(fedjax_sel.load(folder).cohorts, swept.result("random", "learning_rate=0.1").cohorts)


def test_a_setting_with_a_diverged_seed_is_not_the_best():
    grid = sweeps.make_grid({"learning_rate": [0.1, 10]})
    diverged, usual = Spread(np.nan, np.nan, np.nan, 1, 2), Spread(0.2, 0.1, 0.1, 2, 2)
    spreads = {"learning_rate=10": diverged, "learning_rate=0.1": usual}
    rows: Any = [
        SimpleNamespace(algo="random", setting=setting, last_rounds=spread, higher_is_better=False)
        for setting, spread in spreads.items()
    ]
    assert sweeps.best(rows, grid)["random"].setting == "learning_rate=0.1"
    assert sweeps.best(rows[:1], grid) == {}


def test_names_have_no_edge():
    grid = sweeps.make_grid({"partition": ["iid", "shards"]})
    row = type("Row", (), {"setting": "partition=iid"})
    assert sweeps.edges(row, grid) == []  # pyright: ignore


@pytest.mark.parametrize(
    "given,words",
    [
        (["learning-rat", "1", "2"], "did you mean 'learning_rate'"),
        (["learning-rate", "0.1"], "--sweep learning-rate: 0.1; give two or more different values"),
        (["learning-rate", "0.1", "0.1"], "give two or more different values"),
        (["seeds", "1", "2"], "sweep: unknown 'seeds'"),
        (["target-accuracy", "0.1", "0.2"], "sweep: unknown 'target_accuracy'"),
        (
            ["learning-rate", "0.1", "0.2", "--learning-rate", "1"],
            "--learning-rate and --sweep learning-rate: give one",
        ),
        (["learning-rate", "0.1", "fast"], "learning-rate"),
        (["learning-rate", "0.1", "0.2", "--sweep", "learning_rate", "1", "2"], "--sweep learning_rate: given twice"),
        (["alpha", "0.1", "1"], "sweep: alpha has no effect without --partition dirichlet"),
        (["learning-rate", "0.1", "0.2", "--optimizers", "fedavg", "scaffold"], "--sweep and --optimizers"),
    ],
)
def test_what_cannot_be_swept(given, words, tmp_path):
    with pytest.raises(fedjax_sel.UserError, match=words):
        compare.main(["--algos", "random", "--out", str(tmp_path / "out"), *SMALL, "--sweep", *given])
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "values,words",
    [
        ({"alpha": [0.1, 1]}, "sweep: alpha has no effect without --partition dirichlet"),
        ({"algo": ["random", "full"]}, "sweep: unknown 'algo'"),
    ],
)
def test_what_python_cannot_sweep(values, words, tmp_path):
    with pytest.raises(fedjax_sel.UserError, match=words):
        fedjax_sel.sweep("random", "quickstart", values, out=tmp_path / "out")


@pytest.mark.slow
def test_a_folder_below_home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    setting = fedjax_sel.preset("quickstart").replace(num_clients=12, num_selected=3, rounds=1)
    found = fedjax_sel.sweep("random", setting, {"learning_rate": [0.01, 0.1]}, out="~/swept")
    assert (
        found.out == tmp_path / "swept" and "fedjax_sel.sweep(['random']" in (found.out / "comparison.md").read_text()
    )
    assert fedjax_sel.load("~/swept/learning_rate=0.1/random").finished


@pytest.mark.slow
def test_values_of_other_types(tmp_path):
    setting = fedjax_sel.preset("quickstart").replace(num_clients=12, num_selected=3, rounds=1, optimizer="fedprox")
    values = {"optimizer_args": [{"mu": 0.1}, {"mu": 1.0}], "full_batch": [False, True]}
    found = fedjax_sel.sweep("random", setting, values, out=tmp_path)
    assert {row.setting for row in found.rows} == {*sweeps.make_grid(values)} and len(found.rows) == 4
    arguments = ["--algos", "random", "--out", str(tmp_path / "2"), "--dry-run", *SMALL]
    assert compare.main([*arguments, "--sweep", "full-batch", "true", "false"]) == 0


@pytest.mark.slow
def test_the_command(tmp_path, capsys):
    given = ["--algos", "random", "--out", str(tmp_path), *SMALL, "--sweep", "learning-rate", "0.01", "0.1"]
    assert compare.main([*given, "--sweep", "local-epochs", "1", "2"]) == 0
    assert "random: best with learning-rate=" in capsys.readouterr().out
    assert (tmp_path / "learning-rate=0.1,local-epochs=2" / "random" / "result.json").exists()
