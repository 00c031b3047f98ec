"""`report --html` on folders: what is read again, what is not imported."""

import dataclasses

import numpy as np
import pytest

import fedjax_sel
from fedjax_sel.cli import command_line, report
from fedjax_sel.errors import UserError
from fedjax_sel.experiment import problem
from fedjax_sel.reporting import html
from fedjax_sel.runs import run_files
from fedjax_sel.runs.run_files import csv_text
from tests.reporting import made_up
from tests.reporting.test_page import numbers_of


@pytest.fixture(autouse=True)
def _without_plotly(monkeypatch):
    monkeypatch.setattr(html, "plotly", lambda: "/* plotly */")


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    """The folder of a small finished run."""
    out = tmp_path_factory.mktemp("real") / "run"
    config = made_up.config(algo="fl_dp3s", rounds=4, chunk=2, seeds=2, local_epochs=1)
    fedjax_sel.run(config, out=str(out))
    return out


def write(folder, rounds, cohorts, **changes):
    """Write a run that has so many rounds in its rows and in its cohorts."""
    result = made_up.result(0.8, rounds=made_up.ROUNDS, **changes)
    folder.mkdir(exist_ok=True)
    run_files.write_json(folder / run_files.CONFIG, result.config.to_json())
    part = dataclasses.replace(
        result, cohorts=result.cohorts[:, :rounds], elapsed_seconds=result.elapsed_seconds[:rounds],
        round_seconds=result.round_seconds[:rounds],
    )  # fmt: skip
    (folder / run_files.METRICS).write_text(csv_text(part, 0, header=True))
    if not rounds:
        (folder / run_files.METRICS).unlink()  # a run that has just started has no such file
    if cohorts:
        np.save(folder / run_files.COHORTS, result.cohorts[:, :cohorts])
    return result


def test_a_page_of_a_run_has_all_that_its_folder_and_its_data_tell(real, tmp_path, capsys):
    path = tmp_path / "here" / "page.html"
    assert command_line.guarded(report.main, [str(real), "--html", str(path)]) == 0
    assert capsys.readouterr().out == f"Report in {path}\n"  # and no picture that nobody asked for
    (one,) = numbers_of(path.read_text())["settings"]
    (run,) = one["runs"]
    assert np.shape(one["labels"]) == (2, made_up.CLIENTS * 10) and sum(one["labels"][0]) > 1000
    assert len(run["clients"]["mean"]) == made_up.CLIENTS and all(0 <= value <= 1 for value in run["clients"]["mean"])
    assert [(inside["kind"], inside["rounds"]) for inside in run["inside"]] == [("matrix", 4)]
    assert run["inside"][0]["matrix"]["high"] == 1  # a client is like itself
    assert "fedjax_sel " in path.read_text() and "Left out" not in path.read_text()


def test_quick_leaves_out_what_needs_the_data_and_says_so(real, tmp_path, monkeypatch):
    monkeypatch.setattr(problem, "load_data", lambda *_: pytest.fail("the data were read"))
    path = tmp_path / "page.html"
    assert command_line.guarded(report.main, [str(real), "--html", str(path), "--quick"]) == 0
    (one,) = numbers_of(path.read_text())["settings"]
    assert one["labels"] is None and one["runs"][0]["clients"] is None and "--quick: label counts" in path.read_text()


def test_labels_are_those_of_the_partition(real):
    config = fedjax_sel.Experiment(fedjax_sel.load(str(real)).config)
    data = problem.load_data(config, 0.0)
    found = html.label_counts(real)
    assert found.shape == (2, made_up.CLIENTS, 10)
    for seed in (0, 1):
        own = problem.partitioned(config.replace(seeds=[seed]), data)[1][0].indices
        for client in (0, 5, 11):
            labels = np.asarray(data.train_labels)[own[client]]
            assert [(labels == label).sum() for label in range(10)] == found[seed, client].tolist()


def test_labels_of_other_data_than_the_runs_are_not_shown(real, tmp_path):
    import shutil

    copied = shutil.copytree(real, tmp_path / "copied")
    (copied / run_files.RESULT).unlink()
    shutil.rmtree(copied / run_files.CHECKPOINTS)
    data = run_files.read_json(copied / run_files.DATA)
    data["partitions"]["1"]["sha256"] = "0" * 64
    run_files.write_json(copied / run_files.DATA, data)
    with pytest.raises(UserError, match="SHA-256 mismatch"):
        html.label_counts(copied)


def test_code_that_a_folder_names_is_not_imported(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "named_by_a_folder.py").write_text("raise SystemExit('imported')")
    write(tmp_path / "run", 20, 20, dataset="named_by_a_folder:data")
    path = tmp_path / "page.html"
    with pytest.warns(UserWarning, match="the rows cannot be verified"):
        assert command_line.guarded(report.main, [str(tmp_path / "run"), "--html", str(path)]) == 0
    assert path.read_text().count("names code (named_by_a_folder:data)") == 2


def test_a_folder_of_runs_stands_for_its_runs(tmp_path):
    for name in ("b", "a", "deeper/c"):
        (tmp_path / name).mkdir(parents=True)
        write(tmp_path / name, 1, 1)
    (tmp_path / "none").mkdir()
    assert html.runs_in(tmp_path) == [tmp_path / "a", tmp_path / "b", tmp_path / "deeper" / "c"]
    assert html.runs_in(tmp_path / "a") == [tmp_path / "a"]
    assert html.runs_in(tmp_path / "none") == [tmp_path / "none"]  # whoever reads it says what is wrong


def test_runs_of_one_strategy_are_told_apart_by_its_parameters(tmp_path):
    plain, gradient = made_up.result(algo="fl_dp3s"), made_up.result(algo="fl_dp3s", algo_args={"profile": "gradient"})
    found = html.Setting({tmp_path / "a": plain, tmp_path / "b": gradient}, "")
    assert list(html.named(found)) == ["fl_dp3s", "fl_dp3s[profile=gradient]"]
    found = html.Setting({tmp_path / "a": plain, tmp_path / "b": plain}, "")
    assert list(html.named(found)) == [str(tmp_path / "a"), str(tmp_path / "b")]


@pytest.mark.filterwarnings("ignore:.*the rows cannot be verified")
@pytest.mark.parametrize(
    "arguments,says",
    [
        (["RUN", "--quick"], "--quick: has no effect without --html"),
        (["RUN", "--html", "FOLDER"], "is a folder; name a file in it"),
        (["RUN", "--html", "page.png"], "does not end in .html"),
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
    write(tmp_path / "RUN", 20, 20)
    (tmp_path / "FOLDER").mkdir()
    (tmp_path / "FILE").touch()
    assert command_line.guarded(report.main, [*arguments, *(["--quick"] if "--html" in arguments else [])]) == 2
    err = capsys.readouterr().err
    (sentence,) = [line for line in err.splitlines() if line.startswith("error: ")]
    assert says in sentence
