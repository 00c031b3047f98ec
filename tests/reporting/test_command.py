"""`report --html` on folders: what is read, and what is not imported."""

import dataclasses
import hashlib

import numpy as np
import pytest

from fedjax_sel.cli import command_line, report
from fedjax_sel.experiment import problem
from fedjax_sel.reporting import comparison, html
from fedjax_sel.runs import checkpoint, run_files
from fedjax_sel.runs.run_files import csv_text
from tests.reporting import made_up
from tests.reporting.test_page import numbers_of


@pytest.fixture(autouse=True)
def _without_plotly(monkeypatch):
    monkeypatch.setattr(html, "plotly", lambda: "/* plotly */")


def write(folder, rounds, **changes):
    """Write an interrupted run of so many rounds."""
    result = made_up.result(0.8, rounds=made_up.ROUNDS, **changes)
    folder.mkdir(exist_ok=True)
    run_files.write_json(folder / run_files.CONFIG, result.config.to_json())
    part = dataclasses.replace(
        result, cohorts=result.cohorts[:, :rounds], elapsed_seconds=result.elapsed_seconds[:rounds],
        round_seconds=result.round_seconds[:rounds],
    )  # fmt: skip
    rows = csv_text(part, 0, header=True).encode()
    (folder / run_files.METRICS).write_bytes(rows)
    np.save(folder / run_files.COHORTS, part.cohorts)
    about = {
        "config": result.config.to_json(), "source": result.data_source, "higher_is_better": True, "data": {},
        "metrics": {"bytes": len(rows), "sha256": hashlib.sha256(rows).hexdigest()},
        "cohorts": checkpoint.digest_of_array(part.cohorts), "rounds": rounds,
    }  # fmt: skip
    run_files.write(folder / run_files.RESULT, dict.fromkeys(run_files.ENTRIES) | about)
    return result


def test_a_page_of_a_run_needs_its_folder_only(tmp_path, capsys, monkeypatch):
    write(tmp_path / "run", 20)
    monkeypatch.setattr(problem, "load_data", lambda *_: pytest.fail("the data were read"))
    path = tmp_path / "here" / "page.html"
    assert command_line.guarded(report.main, [str(tmp_path / "run"), "--html", str(path)]) == 0
    assert capsys.readouterr().out == f"Report in {path}\n"  # and no picture that nobody asked for
    (one,) = numbers_of(path.read_text())["settings"]
    (run,) = one["runs"]
    assert len(run["counts"]["mean"]) == made_up.CLIENTS


def test_code_that_a_folder_names_is_not_imported(tmp_path, monkeypatch, capsys):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "named_by_a_folder.py").write_text("raise SystemExit('imported')")
    write(tmp_path / "run", 20, dataset="named_by_a_folder:data")
    path = tmp_path / "page.html"
    assert command_line.guarded(report.main, [str(tmp_path / "run"), "--html", str(path)]) == 0
    assert "named_by_a_folder:data" in path.read_text()
    write(tmp_path / "value", 20, dataset="value:mine")
    pictures = ["--measures", "--out", str(tmp_path / "curves.png")]
    assert command_line.guarded(report.main, [str(tmp_path / "run"), str(tmp_path / "value"), *pictures]) == 0
    err = capsys.readouterr().err
    assert err.count("has code or values of its own (named_by_a_folder:data)") == 1 and "(value:mine)" in err


def test_a_folder_of_runs_stands_for_its_runs(tmp_path):
    for name in ("b", "a", "deeper/c"):
        (tmp_path / name).mkdir(parents=True)
        write(tmp_path / name, 1)
    (tmp_path / "none").mkdir()
    assert html.runs_in(tmp_path) == [tmp_path / "a", tmp_path / "b", tmp_path / "deeper" / "c"]
    assert html.runs_in(tmp_path / "a") == [tmp_path / "a"]
    assert html.runs_in(tmp_path / "none") == [tmp_path / "none"]  # whoever reads it says what is wrong


def test_runs_of_one_strategy_are_told_apart_by_its_parameters(tmp_path):
    plain, gradient = made_up.result(algo="fl_dp3s"), made_up.result(algo="fl_dp3s", algo_args={"profile": "gradient"})
    found = html.named({tmp_path / "a": plain, tmp_path / "b": gradient})
    assert [run.name for run in found] == ["fl_dp3s", "fl_dp3s[profile=gradient]"]
    found = html.named({tmp_path / "a": plain, tmp_path / "b": plain, tmp_path / "c": gradient})
    assert [run.name for run in found] == [str(tmp_path / "a"), str(tmp_path / "b"), "fl_dp3s[profile=gradient]"]


def test_the_baseline_is_random_also_where_it_has_the_name_of_its_folder():
    of = {"afl": {}, "b/random": {"algo_args": {"variant": "md"}}, "a/random": {}}
    results = [made_up.result(algo=name.rpartition("/")[2], **changes) for name, changes in of.items()]
    for first, baseline in ((0, "a/random"), (1, "a/random"), (-1, "b/random")):
        chosen = list(zip(of, results))[first:] if first >= 0 else list(zip(of, results))[:-1]
        rows = [comparison.row("", name, result) for name, result in chosen]
        assert {pair.baseline for pair in comparison.pairs(rows, [result for _, result in chosen])} == {baseline}


@pytest.mark.parametrize(
    "arguments,says",
    [
        (["RUN", "--html", "FOLDER"], "is a folder; name a file in it"),
        (["RUN", "--out", "page.html"], "is a page, not a picture; write --html page.html"),
        (["RUN", "--html", "--out", "page.html"], "is a page, not a picture; write --html page.html"),
        (["--html", "RUN", "RUN"], "put --html last"),
        (["RUN", "--html", "page.html", "--style", "paper"], "--style: has no effect on the page"),
        (["RUN", "--html", "FILE/page.html"], "cannot write"),
        (["FOLDER", "--html", "page.html"], "has no readable run"),
        (["missing", "--html", "page.html"], "no such folder"),
        (["RUN", "--html", ""], "is empty"),
    ],
)
def test_bad_input_is_one_sentence(tmp_path, monkeypatch, capsys, arguments, says):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "RUN", 20)
    (tmp_path / "FOLDER").mkdir()
    (tmp_path / "FILE").touch()
    assert command_line.guarded(report.main, arguments) == 2
    err = capsys.readouterr().err
    (sentence,) = [line for line in err.splitlines() if line.startswith("error: ")]
    assert says in sentence
