"""A run that answers its question early ends there, and is not gone on with."""

import dataclasses
import os
import shutil
import signal

import numpy as np
import pytest

from fedjax_sel.errors import UserError
from fedjax_sel.runs import run_files
from fedjax_sel.runs.experiment import run_experiment
from studies import grid
from studies.papers.entries import ENTRIES, fl_dp3s
from tests.reporting import made_up
from tests.studies.papers.small import SMALL

ROUNDS = 12


def three_rounds(result):
    return result.num_rounds >= 3


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    """A run that ended early, in its folder."""
    folder = tmp_path_factory.mktemp("early") / "run"
    config = SMALL.replace(rounds=ROUNDS, seeds=2, chunk=1, algo="random", out=str(folder), checkpoint_seconds=1000.0)
    (done,) = grid.run_all([("one", config)], lambda line: None, progress=False, enough=three_rounds)
    assert done.stopped_by is None and not done.before
    assert 3 <= done.result.num_rounds <= 5  # the device is ahead
    return config


@pytest.mark.slow
def test_it_is_read_and_not_run_again(config):
    said = []
    (done,) = grid.run_all([("one", config)], said.append, progress=False, enough=three_rounds)
    assert done.before and said == ["run 1 of 1: one (finished before)"] and 3 <= done.result.num_rounds <= 5
    assert done.result.config == config
    assert grid.done_before(config) is None  # for whom it is not enough, it has not ended


@pytest.mark.slow
def test_where_more_is_needed_it_goes_on_to_what_it_would_have_been(config, tmp_path):
    (done,) = grid.run_all([("one", config)], lambda line: None, progress=False)
    whole = run_experiment(config.replace(out=str(tmp_path / "whole")))
    assert done.result.finished and done.result.num_rounds == ROUNDS
    np.testing.assert_array_equal(done.result.cohorts, whole.cohorts)
    np.testing.assert_array_equal(done.result.test_accuracy, whole.test_accuracy)


@pytest.mark.slow
def test_where_rows_were_cut_it_goes_on_from_a_checkpoint(config, tmp_path):
    cut = config.replace(out=str(tmp_path / "cut"))
    shutil.copytree(config.run.out, cut.run.out)
    assert grid.done_before(cut, three_rounds) is not None
    rows = tmp_path / "cut" / run_files.METRICS
    rows.write_text("".join(rows.read_text().splitlines(keepends=True)[:-1]))
    assert grid.done_before(cut, three_rounds) is None


@pytest.mark.slow
def test_a_signal_in_the_last_rounds_ends_the_runs_after_it(tmp_path):
    def stop(result):
        os.kill(os.getpid(), signal.SIGTERM)
        return False

    runs = [(name, SMALL.replace(rounds=1, seeds=1, out=str(tmp_path / name))) for name in ("one", "two")]
    done = list(grid.run_all(runs, lambda line: None, progress=False, enough=stop))
    assert [one.stopped_by for one in done] == [None, signal.SIGTERM]
    assert done[0].result.finished and done[1].result is None and not (tmp_path / "two").exists()


@pytest.mark.slow
def test_a_run_without_a_round_goes_on(config, tmp_path):
    """One whose first update was not finite has sealed that there is nothing."""
    empty = config.replace(out=str(tmp_path / "empty"))
    shutil.copytree(config.run.out, empty.run.out)
    with pytest.MonkeyPatch.context() as patch:
        nothing = dataclasses.replace(made_up.result(0.8, rounds=0), config=empty)
        patch.setattr(grid, "load_whole", lambda path: nothing)
        assert grid.result_of(tmp_path / "empty", empty, ENTRIES["fl_dp3s/fig1"].enough) is None


@pytest.mark.slow
def test_what_left_updates_out_is_not_enough_for_who_would_stop_there(config, tmp_path, monkeypatch):
    skipping = config.replace(out=str(tmp_path / "skipping"))
    shutil.copytree(config.run.out, skipping.run.out)
    result = grid.load_whole(tmp_path / "skipping")
    skipped = np.ones_like(result.ledger.updates_skipped)
    result = dataclasses.replace(result, ledger=result.ledger._replace(updates_skipped=skipped))
    monkeypatch.setattr(grid, "load_whole", lambda path: result)
    with pytest.raises(UserError, match="skipped an update in round 1"):
        grid.result_of(tmp_path / "skipping", skipping, three_rounds)


def test_nothing_is_enough_where_nothing_is(tmp_path):
    nowhere = SMALL.replace(out=str(tmp_path / "no"))
    assert grid.result_of(grid._path(nowhere), nowhere, lambda result: True) is None


@pytest.mark.parametrize("name", ["fl_dp3s/fig1", "fl_dp3s/fig2", "fl_dp3s/fig3", "fl_dp3s/fig6"])
def test_who_counts_rounds_to_a_target_has_enough_once_every_seed_is_there(name):
    entry = ENTRIES[name]
    assert entry.enough(made_up.result(1.0)) and fl_dp3s.EARLY in entry.rule
    result = made_up.result(1.0)
    result.measured["train_accuracy"] = np.minimum(result.measured["train_accuracy"], [[1.0]] * 9 + [[0.89]])
    assert not entry.enough(result)
    apart = made_up.result(1.0)  # each seed is there once, and the mean over seeds never
    seeds, rounds = apart.measured["train_accuracy"].shape
    apart.measured["train_accuracy"] = np.where(np.arange(rounds) == np.arange(seeds)[:, None], 0.95, 0.1)
    assert rounds >= seeds and not entry.enough(apart)
