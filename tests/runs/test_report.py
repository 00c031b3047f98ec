"""Run folders side by side: those of one setting in one table, others apart."""

import dataclasses
import json
import re
from pathlib import Path

import numpy as np
import pytest

import fedjax_sel
from fedjax_sel import tasks
from fedjax_sel.cli import command_line, report
from fedjax_sel.models.core import Weights
from fedjax_sel.reporting.html import Run
from fedjax_sel.runs import folder, reading
from fedjax_sel.runs.run_files import Result
from fedjax_sel.simulation.ledger import Ledger

BASE = fedjax_sel.preset("quickstart").replace(rounds=2, algo="random", target_accuracy=0.5)
RUNS = {
    "random": {},
    "fl_dp3s": {"algo": "fl_dp3s", "chunk": 1, "keep": 5, "data_dir": "elsewhere"},
    "fast": {"learning_rate": 0.1, "target_accuracy": 0.4, "checkpoint_seconds": 9.0},
    "seldom": {"algo": "afl", "eval_every": 2},
    "typed": {"algo": "pow_d", "optimizer": "fedprox", "optimizer_args": "mu=0.1"},
    "python": {"algo": "afl", "optimizer": "fedprox", "optimizer_args": {"mu": 0.1}},
    "short": {"algo": "pow_d", "timing": "tiers", "max_seconds": 5.0},
    "long": {"algo": "afl", "timing": "tiers", "max_seconds": 9.0},
    "earlier": {"algo": "afl", "target_accuracy": None},
    "elsewhere": {"algo": "afl", "target_accuracy": None, "learning_rate": 0.1},
    "gpfl": {"algo": "gpfl"},  # the server keeps a part of the data without being told to
}


def found(config):
    shape = (1, config.run.rounds)
    measured = dict.fromkeys(tasks.names(tasks.classification()), np.full(shape, 0.45))
    return Result(
        config, "made up", config.run.seeds, cohorts=np.zeros((*shape, 1), np.int32), stopped_by=0,
        ledger=Ledger(*[np.ones(shape, np.int64)] * len(Ledger._fields)), elapsed_seconds=np.ones(2), measured=measured,
    )  # fmt: skip


@pytest.fixture
def reported(capsys, monkeypatch, tmp_path):
    """Reports folders by name: what is printed, and the pictures."""
    monkeypatch.setattr(reading, "load", lambda path: found(BASE.replace(out=str(path), **RUNS[path.name])))
    monkeypatch.setattr(folder, "made_from", lambda path: {"0": path.name if path.name == "gpfl" else "all"})

    def report_on(*names):
        code = command_line.guarded(report.main, [*names, "--out", str(tmp_path / "curves.png")])
        out, err = capsys.readouterr()
        assert code == 0, err
        return out, sorted(path.name for path in tmp_path.iterdir())

    return report_on


def test_a_run_without_rounds_and_one_set_aside_hide_no_other(capsys, tmp_path, monkeypatch):
    """As a comparison has them that has just begun its second strategy, or was told --resume never."""
    monkeypatch.setattr(reading, "load", lambda path: found(BASE.replace(out=str(path))))
    for name in ("random", "random.aside-1", "fl_dp3s"):
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "config.json").write_text(json.dumps(BASE.to_json()))
    (tmp_path / "runs" / "random" / "cohorts.npy").touch()

    def report_on(name):
        code = command_line.guarded(report.main, [str(tmp_path / name), "--out", str(tmp_path / "curves.png")])
        return code, *capsys.readouterr()

    code, out, err = report_on("runs")
    assert code == 0 and strategies_in(out) == ["random"]
    assert err == f"{tmp_path / 'runs' / 'fl_dp3s'} has no complete round yet; skipped\n"
    code, out, err = report_on("runs/fl_dp3s")
    assert code == 2 and "the run has no complete round yet; wait for one, or leave it out" in err


def strategies_in(text):
    return re.findall(r"^\| (\w+) \|", text, re.MULTILINE)


def test_the_table_of_timed_runs_has_their_seconds(reported, monkeypatch):
    def timed(path):
        result = found(BASE.replace(out=str(path), **RUNS[path.name]))
        return dataclasses.replace(result, measured=result.measured | {"seconds": np.full((1, BASE.run.rounds), 2.5)})

    assert "seconds" not in reported("random", "fl_dp3s")[0]
    monkeypatch.setattr(reading, "load", timed)
    out, _ = reported("random", "fl_dp3s")
    assert "| rounds to 50% test accuracy | seconds to 50% test accuracy |" in out
    assert "| simulated seconds |" in out and out.count(f"| {2.5 * BASE.run.rounds:.1f} |") == 2


def test_runs_of_one_setting_share_a_table_and_a_picture(reported):
    out, pictures = reported("random", "fl_dp3s")
    assert pictures == ["curves.png"]
    assert out.startswith("| | final test accuracy |") and "rounds to 50% test accuracy" in out and "##" not in out
    assert strategies_in(out) == ["random", "fl_dp3s"]
    out, _ = reported("earlier", "random")  # a target that a comparison added later
    assert strategies_in(out) == ["afl", "random"] and "rounds to 50% test accuracy" in out
    out, _ = reported("random", "elsewhere")  # another setting keeps its own
    assert out.count("rounds to 50% test accuracy") == 1 and out.count("##") == 2
    out, _ = reported("random", "earlier", "--target-accuracy", "0.25")
    assert "rounds to 25% test accuracy" in out and "50%" not in out


def test_runs_share_a_table_only_if_they_end_alike_however_they_were_typed(reported):
    assert strategies_in(reported("typed", "python")[0]) == ["pow_d", "afl"]
    assert len(reported("typed", "python")[1]) == 1
    out, _ = reported("short", "long")
    assert out.count("##") == 2 and "max_seconds 9" in out


@pytest.mark.slow
def test_who_is_looked_at_less_often_reaches_a_target_later_and_stands_apart(reported):
    out, pictures = reported("random", "seldom")
    assert len(pictures) == 2 and out.count("##") == 2 and "eval_every 2, not 1" in out


@pytest.mark.slow
def test_runs_of_other_settings_have_tables_targets_and_pictures_of_their_own(reported):
    out, pictures = reported("random", "fast", "fl_dp3s", "gpfl")
    assert pictures == ["curves-1.png", "curves-2.png", "curves-3.png"]
    first, second, third = re.split(r"^## ", out, flags=re.MULTILINE)[1:]
    assert all(part.startswith("digits (made up), shards, 1 per client;") for part in (first, second, third))
    assert [strategies_in(part) for part in (first, second, third)] == [["random", "fl_dp3s"], ["random"], ["gpfl"]]
    assert "Different setting" not in first and "rounds to 50%" in first and "rounds to 40%" not in first
    assert "Different setting: learning_rate 0.1, not 0.05; target_accuracy 0.4, not 0.5\n" in second
    assert "rounds to 40%" in second and "rounds to 50%" not in second
    assert "Different setting: data or partition (the SHA-256 differs)\n" in third
    for part, picture in zip((first, second, third), pictures):
        assert re.search(rf"^Curves in .*{picture}$", part, re.MULTILINE)


def test_measures_leave_out_a_run_that_names_code(capsys, monkeypatch):
    configs = {"mine": BASE.replace(algo="own.py:mine")}
    monkeypatch.setattr(folder, "stored_config", lambda path: configs.get(path.name, BASE))
    monkeypatch.setattr(fedjax_sel, "load", lambda path: dataclasses.replace(found(BASE), weights=Weights({}, {})))
    monkeypatch.setattr(fedjax_sel, "measures", lambda result: {"macro F1": np.array([0.25])})
    table = report.measures([Run(name, Path(name), found(BASE)) for name in ("mine", "random")])
    assert "| random | 0.2500 |" in table and "| mine |  |" in table
    assert "mine has code or values of its own (own.py:mine)" in capsys.readouterr().err
