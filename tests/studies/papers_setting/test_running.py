"""What a part's folder keeps when runs fail, when others write to it, and when it is left half-way."""

import dataclasses
import json

import numpy as np
import pytest

from fedjax_sel.core.files import FolderLock
from fedjax_sel.errors import NonFiniteUpdateError, UserError
from studies import grid as independent
from studies.boards import running, series
from studies.boards.grid import Grid
from studies.papers.entry import Scale
from tests.reporting import made_up
from tests.studies.papers.small import SMALL

ALGOS = ("random", "afl", "pow_d")


@pytest.fixture
def fails(monkeypatch):
    """Errors by strategy: a run of one of these raises it, and others have made-up curves at once."""
    found: dict[str, Exception] = {}

    def run_experiment(config, *_, **__):
        if config.selection.algo in found:
            raise found[config.selection.algo]
        one = made_up.result(0.8, rounds=config.run.rounds, seeds=config.run.seeds)
        return dataclasses.replace(one, config=config)

    monkeypatch.setattr(independent, "run_experiment", run_experiment)
    return found


def run(tmp_path, algos=None, timed=False):
    rows = {algo: SMALL.replace(rounds=4, seeds=2, algo=algo, num_clients=100) for algo in ALGOS}
    grid = Grid("fmnist-2spc", "fmnist", "Digits", rows, timed=timed)
    return running.run(
        grid, tmp_path / "out", tmp_path / "runs", Scale(), "command", lambda line: None, {grid.name: grid}, algos
    )


@pytest.mark.parametrize("own", [False, True])
def test_to_ask_for_the_usual_seeds_is_to_ask_for_nothing_else(own):
    grid = Grid("fmnist-2spc", "fmnist", "Digits", {"random": SMALL.replace(seeds=(4, 5, 6))}, own_seeds=own)
    usual = (0, 1, 2) if own else (4, 5, 6)  # a grid with seeds of its own takes as many of those
    assert running._own(grid, Scale(seeds=usual)) == Scale()
    assert running._own(grid, Scale(seeds=usual[:2])).in_words() == "seeds 4, 5"


def test_rows_of_other_examples_are_refused(tmp_path, fails, monkeypatch):
    digests = {"random": "a", "afl": "a", "pow_d": "b"}

    def made_from(path):
        return {"dataset": next(digest for algo, digest in digests.items() if f"-{algo}-" in path.name)}

    monkeypatch.setattr(running.run_folder, "made_from", made_from)
    with pytest.raises(UserError, match=r"^--data-dir: pow_d was run on other examples than random, which "):
        run(tmp_path)
    assert set(about(tmp_path)["rows"]) == {"random", "afl"}
    for row in about(tmp_path)["rows"].values():
        assert row["data"] == "a"


def about(tmp_path):
    return json.loads((tmp_path / "out" / "fmnist-2spc" / series.ABOUT).read_text())


def test_a_row_that_fails_again_is_noted_beside_those_that_are_there(tmp_path, fails):
    assert run(tmp_path, ["random", "afl"]).rows == 2
    fails["pow_d"] = NonFiniteUpdateError("not finite")
    found = run(tmp_path)
    assert found.rows == 2 and found.failed == {"pow_d": "not finite"}
    assert about(tmp_path)["failed"] == {"pow_d": "not finite"} and about(tmp_path)["failed_for_good"] == ["pow_d"]


def test_a_failure_is_kept_until_its_row_is_there(tmp_path, fails):
    fails["afl"] = UserError("another process is writing")
    run(tmp_path, ["random", "afl"])
    run(tmp_path, ["pow_d"])
    assert about(tmp_path)["failed"] == {"afl": "another process is writing"}
    assert about(tmp_path)["failed_for_good"] == []  # it may succeed, and does
    fails.clear()
    assert run(tmp_path).failed == {} and about(tmp_path)["failed"] == {}


def test_where_nothing_succeeds_it_is_an_error(tmp_path, fails):
    fails.update(dict.fromkeys(ALGOS, UserError("no data")))
    with pytest.raises(UserError, match=r"^fmnist-2spc: no run succeeded; the first one: no data$"):
        run(tmp_path)


def test_one_process_at_a_time_writes(tmp_path, fails):
    folder = tmp_path / "out" / "fmnist-2spc"
    folder.mkdir(parents=True)
    with FolderLock() as lock:
        lock.take(folder)
        with pytest.raises(UserError, match=r"^--out: another process is writing to .*fmnist-2spc; "):
            run(tmp_path)
    assert run(tmp_path).rows == 3


def test_a_row_that_was_half_written_is_read_from_its_run(tmp_path, fails):
    run(tmp_path)
    told = about(tmp_path)
    del told["rows"]["pow_d"]  # as where the process was killed between the two files
    (tmp_path / "out" / "fmnist-2spc" / series.ABOUT).write_text(json.dumps(told))
    held = series.read(tmp_path / "out" / "fmnist-2spc")
    assert held is not None and list(held.rows) == ["random", "afl"]
    assert run(tmp_path).rows == 3 and set(about(tmp_path)["rows"]) == set(ALGOS)


def test_what_was_timed_is_kept_when_timing_is_interrupted(tmp_path, fails, monkeypatch):
    times = iter([0.25])

    def selection_seconds(experiment, seconds):
        for one in times:
            return one
        raise KeyboardInterrupt

    monkeypatch.setattr(running.selection_cost, "selection_seconds", selection_seconds)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, timed=True)
    assert [row.get("selection_seconds") for row in about(tmp_path)["rows"].values()] == [0.25, None, None]


def test_a_row_has_the_fairness_of_its_run(tmp_path, fails):
    run(tmp_path)
    fairness = about(tmp_path)["rows"]["afl"]["fairness"]
    made = made_up.result(0.8, rounds=4, seeds=(0, 1))
    counts = [np.bincount(cohorts.ravel(), minlength=100) for cohorts in made.cohorts]
    assert fairness["participation_gap"] == [pytest.approx(np.ptp(one) / 4) for one in counts]
    jain = [one.sum() ** 2 / (100 * (one**2).sum()) for one in counts]
    assert fairness["jain_of_selections"] == [pytest.approx(one, rel=1e-5) for one in jain]


def test_a_row_says_where_it_was_run(tmp_path, fails, monkeypatch):
    place = {"devices": ["gpu:0"], "packages": {"jax": "9.9"}, "fedjax_sel": "1.2", "commit": "abcdef0123"}
    monkeypatch.setattr(running.heading, "environment_of", lambda result: place)
    run(tmp_path)
    row = about(tmp_path)["rows"]["afl"]
    assert {name: row[name] for name in ("devices", "jax", "fedjax_sel", "commit")} == {
        "devices": "gpu:0", "jax": "9.9", "fedjax_sel": "1.2", "commit": "abcdef0",
    }  # fmt: skip


def test_rows_that_follow_from_tuning_wait_for_all_of_it(tmp_path, fails):
    """Else the best of the first trials would be taken for the best, and `--algos` would leave out the baseline's."""
    trials = {
        f"random rate={rate}": SMALL.replace(rounds=4, seeds=2, algo="random", num_clients=100, learning_rate=rate)
        for rate in (0.1, 0.2)
    }
    tuning = Grid("rates", "fmnist", "Rates", trials, own_seeds=True)
    row = SMALL.replace(rounds=4, seeds=2, algo="afl", num_clients=100)
    table = Grid("table", "fmnist", "Table", {"afl": row}, after="rates", choose=lambda held: {"afl": row})

    def start(grid):
        where = (tmp_path / "out", tmp_path / "runs", Scale(), "command", lambda line: None)
        return running.run(grid, *where, {"rates": tuning, "table": table}, ["afl"])

    fails["random"] = MemoryError("not now")
    with pytest.raises(UserError, match="no run succeeded"):
        start(tuning)
    del fails["random"]
    assert running.run(
        tuning._replace(rows=dict([*trials.items()][:1])), tmp_path / "out", tmp_path / "runs", Scale(), "command",
        lambda line: None, {},
    ).rows == 1  # fmt: skip
    with pytest.raises(UserError, match=r"follows from rates, which lacks 1 of its rows, such as random rate=0\.2"):
        start(table)
    assert start(tuning).rows == 2 and start(table).rows == 1
