"""`python -m fedjax_sel.reproduce`."""

import concurrent.futures
import csv
import dataclasses
import json
import os
import re
import signal

import pytest

from fedjax_sel.cli import command_line
from fedjax_sel.core.files import FolderLock
from fedjax_sel.errors import UserError
from studies import grid
from studies.papers import command as reproduce
from studies.papers import entries, runner, study, tables
from studies.papers.entries.fedcor import accuracy
from studies.papers.entry import Cell, Entry, Part, Scale
from studies.papers.page import Page
from tests.reporting import made_up
from tests.studies.papers.small import SMALL


def run(*arguments):
    return command_line.guarded(reproduce.main, [str(argument) for argument in arguments])


def _judge(results, scale):
    pictures = {"accuracy.png": accuracy(results)} if results else {}
    return Page(tables.best_rows(results, "md", whole=scale.whole_rounds), (), pictures)


@pytest.fixture
def small(monkeypatch):
    """A published figure of two settings with two strategies each, on digits."""
    runs = {
        Cell(column, row): SMALL.replace(
            rounds=4, seeds=2, chunk=1, shards_per_client=shards, algo="random", algo_args={"variant": row}
        )
        for column, shards in (("fmnist-2spc", 2), ("fmnist-1spc", 1))
        for row in ("uniform-wor", "md")
    }
    entry = Entry("fedcor/fig4", "Reproduced if the order is.", runs, _judge, "none")
    monkeypatch.setitem(entries.ENTRIES, entry.name, entry)
    return entry.name


def rows_of(folder):
    with (folder / "rows.csv").open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize(
    "arguments,message",
    [
        ([], "missing ENTRY; --list shows all tables and figures\n"),
        (["fedcor/tabel1"], "ENTRY: unknown 'fedcor/tabel1'; did you mean 'fedcor/table1' or "),
        (
            ["fedcor/table1", "--columns", "fmnist-3spc"],
            "--columns: fedcor/table1 has no column 'fmnist-3spc'; it has ",
        ),
        (
            ["fedcor/table1", "--rows", "FedCor"],
            "--rows: fedcor/table1 has no row 'FedCor'; it has 'random', ",
        ),
        (["fedcor/table1", "--scale", "2"], "--scale: 2 is outside 0 (excluded) to 1 (included); give e.g. 0.2\n"),
        (["fedcor/table1", "--scale", "a"], "argument --scale: invalid float value: 'a'; --help lists every flag\n"),
        (["fedcor/table1", "--rounds", "-3"], "--rounds: -3 is below 1; "),
        (["fedcor/table1", "--seeds", "0"], "--seeds: 0 is below 1; "),
        (["fedcor/table1", "--jobs", "-1"], "--jobs: -1 is below 0; "),
        (["fedcor/table1", "--jobs", "1000000"], "--jobs: 1000000 exceeds 1024 processes; "),
        (["fedcor/table1", "--seeds", "3", "5", "3"], "--seeds: (3, 5, 3) contains a duplicate; "),
    ],
)
def test_what_can_be_mended_is_one_sentence(capsys, tmp_path, arguments, message):
    assert run(*arguments, "--out", tmp_path / "out") == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: {message}") and error.count("\n") == 1 and "Traceback" not in error
    assert not (tmp_path / "out").exists()


def test_the_list_shows_every_entry(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    assert run("--list") == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in entries.ENTRIES)


@pytest.mark.slow
def test_an_entry_end_to_end(small, tmp_path, capsys):
    assert run(small, "--columns", "fmnist-1spc", "--data-dir", tmp_path, "--out", tmp_path / "out") == 0
    folder = tmp_path / "out" / small
    text = (folder / "README.md").read_text()
    assert "**2 of 4 runs are finished.**" in text and entries.ENTRIES[small].rule in text
    assert f"python -m studies reproduce {small} --columns fmnist-1spc --data-dir DATA --out " in text
    assert {row["setting"] for row in rows_of(folder)} == {"fmnist-1spc"} and (folder / "accuracy.png").exists()
    assert "run 2 of 2: fmnist-1spc, md\n" in capsys.readouterr().err

    assert run(small, "--columns", "fmnist-2spc", "--out", tmp_path / "out") == 0
    rows = rows_of(folder)
    assert {row["setting"] for row in rows} == {"fmnist-1spc", "fmnist-2spc"}  # what was run before is still there
    text = (folder / "README.md").read_text()
    assert "**All 4 runs are finished.**" in text
    assert [command.split()[6] for command in text.split("```")[1].split("\n")[1:3]] == ["fmnist-1spc", "fmnist-2spc"]
    capsys.readouterr()

    written = [(path, path.stat().st_mtime_ns) for path in (tmp_path / "out" / "runs").rglob("*.csv")]
    assert run(small, "--out", tmp_path / "out") == 0
    assert capsys.readouterr().err.count("(finished before)") == 4 and rows_of(folder) == rows
    assert [(path, path.stat().st_mtime_ns) for path in (tmp_path / "out" / "runs").rglob("*.csv")] == written


@pytest.mark.slow
def test_pages_lie_apart_from_runs_and_say_what_made_them(small, tmp_path):
    pages, large = tmp_path / "pages", tmp_path / "large"
    runs = entries.ENTRIES[small].runs
    while len(runs) > 1:
        runs.popitem()
    how = ("--rounds", "1", "--seeds", "1", "--out", pages, "--runs", large)
    assert run("fedgp/fig1", small, *how) == 0
    assert {path.name for path in pages.iterdir()} == {"fedcor", "fedgp"}
    text = (pages / small / "README.md").read_text()
    assert f"\npython -m studies reproduce {small} --rounds 1 --seeds 1 --out OUT --runs RUNS\n" in text
    (path,) = (large / "runs").glob("*/environment.json")
    of_run = json.loads(path.read_text())
    assert f"Commit {of_run['commit'][:7]}; the runs took " in text
    assert re.search(rf" \d+ seconds \({of_run['cores']} cores, .*, JAX {of_run['packages']['jax']}\)\.\n", text)
    again = ("--rounds", "1", "--seeds", "1", "--out", tmp_path / "again", "--runs", large)
    assert run(small, *again) == 0
    assert len([*(large / "runs").iterdir()]) == 1 and not (tmp_path / "again" / "runs").exists()


@pytest.mark.slow
def test_to_ask_for_the_entrys_own_seeds_is_to_ask_for_the_whole(small, tmp_path, monkeypatch):
    make = made_up.result(rounds=4)
    monkeypatch.setattr(grid, "done_before", lambda config, _=None: dataclasses.replace(make, config=config))
    monkeypatch.setattr(grid, "_came_to_its_end", lambda result, enough: True)
    (seeds,) = {len(config.run.seeds) for config in entries.ENTRIES[small].runs.values()}
    assert run(small, "--out", tmp_path) == run(small, "--seeds", str(seeds), "--out", tmp_path) == 0
    assert "Other than" not in (tmp_path / small / "README.md").read_text()
    assert run(small, "--seeds", str(seeds + 1), "--out", tmp_path) == 2


@pytest.mark.slow
def test_a_look_does_not_replace_the_page_of_the_whole(small, tmp_path, monkeypatch):
    """The whole may replace a look; and where nothing was finished, there is nothing to lose."""
    path, make = tmp_path / small / "README.md", made_up.result(rounds=4)

    def reproduce(*arguments):
        return run(small, *arguments, "--out", tmp_path)

    monkeypatch.setattr(grid, "done_before", lambda config, _=None: dataclasses.replace(make, config=config))
    monkeypatch.setattr(grid, "_came_to_its_end", lambda result, enough: True)

    assert reproduce("--rounds", "2") == 0 and "2 rounds." in path.read_text()
    assert reproduce("--rounds", "2") == 0
    assert reproduce("--rounds", "3") == 2 and "2 rounds." in path.read_text()
    assert reproduce() == 0
    whole = path.read_text()
    assert "Other than" not in whole
    assert reproduce("--rounds", "2") == 2 and path.read_text() == whole
    about = path.with_name("about.json")
    about.write_text(about.read_text().replace('"finished": 4', '"finished": 0'))
    assert reproduce("--rounds", "2") == 0 and "2 rounds." in path.read_text()


@pytest.mark.slow
def test_a_page_does_not_lose_the_runs_of_another_command(small, tmp_path, monkeypatch, capsys):
    """Not where they lie elsewhere, where one of another scale began at the same time, or where nothing is finished."""
    path, make = tmp_path / small / "README.md", made_up.result(rounds=4)
    done, meanwhile = set(), []

    def finished(config, *_):
        return dataclasses.replace(make, config=config)

    def run_experiment(config, *_):
        for command in meanwhile:
            meanwhile.clear()
            assert command() == 0
        done.add(config.run.out)
        return finished(config)

    monkeypatch.setattr(
        grid, "done_before", lambda config, _=None: finished(config) if config.run.out in done else None
    )
    monkeypatch.setattr(grid, "run_experiment", run_experiment)
    monkeypatch.setattr(grid, "_came_to_its_end", lambda result, enough: True)

    def reproduce(*arguments, runs="one"):
        return run(small, *arguments, "--out", tmp_path, "--runs", tmp_path / runs)

    meanwhile.append(lambda: reproduce("--rounds", "3", "--rows", "md"))
    assert reproduce("--rounds", "2") == 2 and "2 of 4" in path.read_text() and "3 rounds." in path.read_text()
    assert reproduce("--rounds", "3") == 0 and "All 4" in path.read_text()
    whole = path.read_text()
    capsys.readouterr()
    assert reproduce("--rounds", "3", "--rows", "md", runs="other") == 2 and path.read_text() == whole
    error = capsys.readouterr().err
    assert error.startswith(f"error: --runs: {path.parent} holds {small} with 4 runs, of which ") and "has 0; " in error
    monkeypatch.setattr(grid, "run_experiment", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt()))
    assert reproduce() == 130 and path.read_text() == whole


def test_a_page_never_has_less_than_what_is_finished(small, tmp_path, monkeypatch):
    entry, wrote = entries.ENTRIES[small], []
    cells = list(entry.runs)
    done = {entry.runs[cells[3]].fingerprint()}  # it stands behind the others
    make = made_up.result(0.8)

    def done_before(config, enough=None):
        return dataclasses.replace(make, config=config) if config.fingerprint() in done else None

    monkeypatch.setattr(grid, "done_before", done_before)
    monkeypatch.setattr(grid, "run_experiment", lambda config, *_: dataclasses.replace(make, config=config))
    monkeypatch.setattr(grid, "_came_to_its_end", lambda result, enough: True)
    runner.run(entry, Part(), tmp_path, Scale(), lambda line: None, lambda found: wrote.append(set(found.results)))
    assert wrote[0] == {cells[0], cells[3]} and wrote[-1] == set(cells)


@pytest.mark.slow
def test_a_page_has_what_others_finished_meanwhile(small, tmp_path, monkeypatch):
    """Two commands for two columns, side by side: who writes last has all of both."""
    entry, make, done = entries.ENTRIES[small], made_up.result(0.8), set()

    def done_before(config, enough=None):
        return dataclasses.replace(make, config=config) if config.fingerprint() in done else None

    def run_experiment(config, *_):
        done.update(one.fingerprint() for one in entry.runs.values())  # those of the other command
        return dataclasses.replace(make, config=config)

    monkeypatch.setattr(grid, "done_before", done_before)
    monkeypatch.setattr(grid, "run_experiment", run_experiment)
    monkeypatch.setattr(grid, "_came_to_its_end", lambda result, enough: True)
    part = Part(("fmnist-1spc",), ("md",))
    found = study.run(entry, part, study.Folders(tmp_path), Scale(), "command", lambda line: None)
    assert found.finished and list(found.results) == list(entry.runs)
    assert "**All 4 runs are finished.**" in (tmp_path / small / "README.md").read_text()


def test_a_page_waits_for_who_is_writing_it(small, tmp_path):
    runs = entries.ENTRIES[small].runs
    runs.clear()
    folder = tmp_path / small
    folder.mkdir(parents=True)
    with FolderLock() as lock, concurrent.futures.ThreadPoolExecutor() as pool:
        lock.take(folder)
        page = pool.submit(run, small, "--out", tmp_path)
        with pytest.raises(concurrent.futures.TimeoutError):
            page.result(timeout=1)
        assert [path.name for path in folder.iterdir()] == [".lock"]
        lock.release(folder)
        assert page.result(timeout=30) == 0 and (folder / "README.md").exists()


def test_a_stop_after_a_failure_is_a_stop(small, tmp_path, monkeypatch, capsys):
    def run_experiment(config, *_):
        monkeypatch.setattr(grid, "run_experiment", interrupted)
        raise UserError("another process is writing")

    def interrupted(config, *_):
        raise KeyboardInterrupt

    monkeypatch.setattr(grid, "run_experiment", run_experiment)
    assert run(small, "--out", tmp_path) == 130
    assert f"Interrupted: 0 of 4 runs of {small} are finished" in capsys.readouterr().err


@pytest.mark.slow
def test_fewer_rounds_are_said(small, tmp_path):
    assert run(small, "--columns", "fmnist-1spc", "--rounds", "2", "--seeds", "3", "4", "--out", tmp_path) == 0
    assert "**Other than the entry has it:** seeds 3, 4; 2 rounds." in (tmp_path / small / "README.md").read_text()
    rows = rows_of(tmp_path / small)
    assert rows and {row["verdict"] for row in rows} == {"not comparable"}


@pytest.mark.slow
def test_a_run_that_fails_leaves_the_others(small, tmp_path, capsys):
    entry = entries.ENTRIES[small]
    first = next(iter(entry.runs))
    entry.runs[first] = entry.runs[first].replace(dataset="mnist", data_dir=str(tmp_path / "nothing"))
    assert run(small, "--out", tmp_path / "out") == 3
    assert f"failed: {first.column}, {first.row}: " in capsys.readouterr().err
    text = (tmp_path / "out" / small / "README.md").read_text()
    assert f"Failed: {first.column}, {first.row}: " in text and "**3 of 4 runs are finished.**" in text


def test_nothing_that_succeeds_is_an_error(small, tmp_path, capsys):
    entry = entries.ENTRIES[small]
    for cell, config in entry.runs.items():
        entry.runs[cell] = config.replace(dataset="mnist", data_dir=str(tmp_path / "nothing"))
    assert run(small, "--out", tmp_path / "out") == 2
    assert f"error: {small}: no run succeeded; the first one: " in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("number,code", [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_a_stop_ends_the_command_and_goes_on(small, tmp_path, capsys, monkeypatch, number, code):
    """Also where other entries are to follow, and a scheduler's signal, whose exit code is that of success."""
    run_experiment, calls = grid.run_experiment, []

    class Stop:
        def chunk(self, chunk, first):
            if first == 0:
                os.kill(os.getpid(), number)

    def stopped(config, progress, watching):
        assert watching == ()  # no run of this one ends early
        calls.append(config)
        return run_experiment(config, watching=[Stop()] if len(calls) == 2 else [])

    monkeypatch.setattr(grid, "run_experiment", stopped)
    assert run(small, "fedgp/fig1", "--out", tmp_path) == code
    assert len(calls) == 2 and not (tmp_path / "fedgp").exists()
    assert f"Interrupted: 1 of 4 runs of {small} are finished" in capsys.readouterr().err
    assert run(small, "--out", tmp_path) == 0
    error = capsys.readouterr().err
    assert error.count("(finished before)") == 1 and "Interrupted" not in error


def test_jobs_without_dask(small, tmp_path, monkeypatch, capsys):
    import builtins

    real = builtins.__import__

    def without(name, *rest):
        if name == "distributed":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    assert run(small, "--jobs", "2", "--out", tmp_path) == 2
    expected = '--jobs: the package distributed is missing; run pip install "fedjax-sel[dask]", or omit --jobs\n'
    assert capsys.readouterr().err == f"error: {expected}"


@pytest.mark.slow
@pytest.mark.parametrize("address", ["127.0.0.1:1", "nonsense://x"])
def test_a_scheduler_that_does_not_answer(small, tmp_path, capsys, address):
    pytest.importorskip("distributed")
    assert run(small, "--scheduler", address, "--out", tmp_path) == 2
    assert f"error: --scheduler: no answer from {address}; " in capsys.readouterr().err


@pytest.mark.slow
def test_two_processes_give_the_tables_of_one(small, tmp_path):
    pytest.importorskip("distributed")
    assert run(small, "--out", tmp_path / "one") == 0
    assert run(small, "--jobs", "2", "--out", tmp_path / "two") == 0
    assert rows_of(tmp_path / "one" / small) == rows_of(tmp_path / "two" / small)


def test_workers_that_were_started_elsewhere_find_the_folders(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = SMALL.replace(out="runs/one", data_dir="images")
    sent = grid._for_any_folder(config)
    assert (sent.run.out, sent.data.data_dir) == (str(tmp_path / "runs" / "one"), str(tmp_path / "images"))
    assert sent.fingerprint() == config.fingerprint()
    assert grid._for_any_folder(config.replace(data_dir=None)).data.data_dir is None
