"""`python -m studies.papers_setting`."""

import csv
import os
import signal

import pytest

from fedjax_sel.cli import command_line
from studies import grid as independent
from studies.boards.command import chosen
from studies.boards.grid import Grid
from studies.papers_setting import command, grids, pages, settings, tuning, tuning_page
from studies.papers_setting.grids import GRIDS
from tests.studies.papers.small import SMALL


def run(*arguments):
    return command_line.guarded(command.main, [str(argument) for argument in arguments])


def only(monkeypatch, *some):
    """Let these be all grids that there are."""
    for module in (grids, pages):
        monkeypatch.setattr(module, "GRIDS", {grid.name: grid for grid in some})


@pytest.fixture
def small(monkeypatch):
    """A setting of three strategies, on digits."""
    rows = {
        name: SMALL.replace(rounds=4, seeds=2, chunk=1, server_validation=0.05, algo=algo, optimizer=optimizer)
        for name, algo, optimizer in (
            ("random", "random", "fedavg"),
            ("pow_d", "pow_d", "fedavg"),
            ("random + fedyogi", "random", "fedyogi"),
        )
    }
    grid = Grid("fmnist-2spc", "fmnist", "Digits", rows, timed=True)
    only(monkeypatch, grid)
    return grid.name


def rows_of(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize(
    "arguments,message",
    [
        ([], "missing PART; --list shows all parts\n"),
        (["fmnist-3spc"], "PART: unknown 'fmnist-3spc'; did you mean "),
        (["fmnist", "--algos", "fedcorr"], "--algos: unknown 'fedcorr'; did you mean 'fedcor'"),
        (["fmnist", "--rounds", "0"], "--rounds: 0 is below 1; "),
        (["fmnist", "--jobs", "-1"], "--jobs: -1 is below 0; "),
        (["fmnist", "--jobs", "1000000"], "--jobs: 1000000 exceeds 1024 processes; "),
        (["fmnist", "--seeds", "3", "5", "3"], "--seeds: (3, 5, 3) contains a duplicate; "),
        (["--pages"], "--pages: "),
        (["fmnist-2spc", "--pages"], "--pages: is for all parts and runs nothing"),
    ],
)
def test_what_can_be_mended_is_one_sentence(capsys, tmp_path, arguments, message):
    assert run(*arguments, "--out", tmp_path / "out") == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: {message}") and error.count("\n") == 1 and "Traceback" not in error
    assert not (tmp_path / "out").exists()


def test_the_list_shows_every_part_and_what_it_takes(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    assert run("--list") == 0
    shown = capsys.readouterr().out
    assert [line for line in shown.splitlines() if not line.startswith(" ")] == list(GRIDS)  # whole, to be typed
    assert "29 runs of 10 seeds and 150 rounds" in shown and max(map(len, shown.splitlines())) <= 60


def test_groups_and_parts():
    assert [grid.name for grid in chosen(["mnist", "fmnist-dir", "mnist-1spc"], GRIDS)] == [
        "mnist-1spc", "mnist-2spc", "mnist-dir", "mnist-xi0.8", "fmnist-dir",
    ]  # fmt: skip


def test_every_strategy_takes_part_with_words_about_its_settings():
    from fedjax_sel import strategies

    untimed = {name for name in strategies.names() if not strategies.make(name).needs_clock}
    assert set(settings.ALGOS) == set(settings.STRATEGY_SETTINGS) == untimed
    for setting in settings.SETTINGS.values():
        grid = GRIDS[setting.name]
        assert {config.selection.algo for config in grid.rows.values()} == set(settings.ALGOS)
        assert {config.data.server_validation for config in grid.rows.values()} == {settings.SERVER_VALIDATION}
        assert (
            len({config.replace(algo="random", algo_args={}, optimizer="fedavg") for config in grid.rows.values()}) == 1
        )


@pytest.mark.slow
def test_a_part_end_to_end(small, tmp_path, capsys):
    out = tmp_path / "out"
    flags = ("--out", out, "--runs", tmp_path / "runs", "--data-dir", tmp_path)
    assert run(small, "--algos", "random", *flags) == 0
    text = (out / small / "README.md").read_text()
    assert "**Not run yet:** pow_d." in text and "--runs RUNS --data-dir DATA\n" in text
    assert [row["row"] for row in rows_of(out / small / "table.csv")] == ["random", "random + fedyogi"]
    capsys.readouterr()

    assert run(small, *flags) == 0
    assert "1 of 3 rows to run" in capsys.readouterr().err
    rows = rows_of(out / small / "table.csv")
    assert [row["row"] for row in rows] == ["random", "pow_d", "random + fedyogi"]
    assert all(float(row["selection_milliseconds"]) > 0 for row in rows)
    assert "Not run yet" not in (out / small / "README.md").read_text()

    before = {path.relative_to(out): path.read_bytes() for path in out.rglob("*") if path.is_file()}
    for path in [*out.rglob("*.csv"), *out.rglob("*.png"), *out.rglob("*.md")]:
        path.unlink()
    assert run("--pages", "--out", out) == 0  # all of it comes from the curves
    assert {path.relative_to(out): path.read_bytes() for path in out.rglob("*") if path.is_file()} == before


@pytest.mark.slow
def test_results_of_another_scale_are_not_mixed(small, tmp_path, capsys):
    assert run(small, "--algos", "random", "--rounds", "2", "--out", tmp_path) == 0
    capsys.readouterr()
    before = (tmp_path / small / "curves.csv.gz").read_bytes()
    assert run(small, "--out", tmp_path) == 2
    error = capsys.readouterr().err
    assert f"--out: {tmp_path / small} holds random with 2 rounds and 2 seeds" in error
    assert (tmp_path / small / "curves.csv.gz").read_bytes() == before
    assert "**Other than usual:** 2 rounds." in (tmp_path / small / "README.md").read_text()


@pytest.mark.slow
def test_a_stop_keeps_what_is_done_and_goes_on(small, tmp_path, capsys, monkeypatch):
    run_experiment, calls = independent.run_experiment, []

    class Stop:
        def chunk(self, chunk, first):
            os.kill(os.getpid(), signal.SIGINT)

    def stopped(config, progress, watching):
        assert watching == ()  # no run of this one ends early
        calls.append(config)
        return run_experiment(config, watching=[Stop()] if len(calls) == 2 else [])

    monkeypatch.setattr(independent, "run_experiment", stopped)
    assert run(small, "--out", tmp_path) == 130
    assert "Interrupted: 1 of 3 rows" in capsys.readouterr().err
    assert [row["row"] for row in rows_of(tmp_path / small / "table.csv")] == ["random"]
    assert run(small, "--out", tmp_path) == 0
    assert len(rows_of(tmp_path / small / "table.csv")) == 3 and len(calls) == 4


@pytest.mark.slow
def test_the_best_draw_is_what_is_measured(tmp_path, monkeypatch, capsys):
    """On digits, with two strategies and two draws each."""
    monkeypatch.setattr(tuning, "DRAWS", 2)
    monkeypatch.setattr(tuning, "drawn", tuning.drawn.__wrapped__)  # the draws that it keeps are as many as usual
    monkeypatch.setattr(tuning, "RANGES", {algo: tuning.RANGES[algo] for algo in ("random", "afl")})
    config = SMALL.replace(rounds=2, seeds=3, chunk=1, local_steps=3)
    setting = settings.Setting("fmnist-2spc", "Digits", config, 10)
    drawn, tuned = grids._tuned(setting)
    only(monkeypatch, drawn, tuned)
    assert run(tuned.name, "--out", tmp_path) == 2
    assert "follows from tuned-fmnist-2spc-draws, which is not in" in capsys.readouterr().err
    assert run("tuned", "--seeds", "2", "--out", tmp_path) == 0
    text = (tmp_path / drawn.name / "README.md").read_text()
    assert "**Other than usual:** seeds 100, 101." in text and "| afl | 1 | alpha1 | 0 to 0.9 |" in text
    text = (tmp_path / tuned.name / "README.md").read_text()
    held = pages.series.read(tmp_path / drawn.name)
    assert len(held.rows) == 3 and held.rows["afl draw=1"].seeds == (100, 101)
    best = tuning.arguments("afl", tuning.best(held, "afl"))
    assert f"| afl | {tuning_page.in_words(best)} | {max(tuning.accuracy(held, 'afl').values()):.3f} |" in text
    assert [row["seeds"] for row in rows_of(tmp_path / tuned.name / "table.csv")] == ["2", "2"]
    assert run(tuned.name, "--seeds", "3", "--out", tmp_path) == 2  # best of fewer
    assert f"{drawn.name}, which {tmp_path} has with seeds 100, 101, not all of it; " in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [name for name, grid in GRIDS.items() if name.endswith("2spc") and grid.group == "information"]
)
def test_every_study_at_a_tiny_scale(name, tmp_path, monkeypatch):
    rows = {
        row: SMALL.replace(
            seeds=2, rounds=4, chunk=2, algo=config.selection.algo, algo_args=config.selection.algo_args,
            server_validation=0.05, available=config.selection.available,
            report_failure_rate=config.selection.report_failure_rate,
        )
        for row, config in GRIDS[name].rows.items()
    }  # fmt: skip
    only(monkeypatch, GRIDS[name]._replace(rows=rows))
    assert run(name, "--out", tmp_path) == 0
    assert [row["row"] for row in rows_of(tmp_path / name / "table.csv")] == list(rows)
