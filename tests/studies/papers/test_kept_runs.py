"""Runs that are committed: read as the ones that they were copied from, with nothing of the machine in them."""

from pathlib import Path

import numpy as np
import pytest

import fedjax_sel
from fedjax_sel.core.files import FolderLock
from fedjax_sel.runs import run_files
from studies import grid
from tests import scripts
from tests.studies.papers.small import SMALL


@pytest.fixture(scope="module")
def keep_runs():
    return scripts.load("tools/keep_runs.py")


def test_committed_runs_are_read_under_their_fingerprints():
    runs = [*(Path(__file__).parents[3] / "results" / "runs").iterdir()]
    assert runs and all(fedjax_sel.load(run).config.fingerprint() == run.name.rpartition("-")[2] for run in runs)


def _enough(result):
    return result.num_rounds >= 2


@pytest.mark.slow
def test_a_copy_is_read_as_the_run(keep_runs, tmp_path):
    config = SMALL.replace(rounds=8, chunk=1, seeds=2, checkpoint_every=1, out=str(tmp_path / "far" / "away"))
    run = fedjax_sel.run(config, callbacks=[_Stop()])
    assert run.num_rounds < 8
    with pytest.raises(fedjax_sel.UserError, match=f"it has {run.num_rounds} of 8 rounds; resume it"):
        keep_runs.keep(tmp_path / "far" / "away", tmp_path / "kept")
    assert not (tmp_path / "kept").exists()
    config = fedjax_sel.run(config).config  # went on
    copy = keep_runs.keep(tmp_path / "far" / "away", tmp_path / "kept")
    assert not (copy / run_files.CHECKPOINTS).exists()
    for file in copy.iterdir():
        assert str(tmp_path).encode() not in file.read_bytes(), file.name
    again = grid.done_before(config.replace(out=str(copy)))
    assert again is not None and again.finished
    before = grid.done_before(config)
    np.testing.assert_array_equal(again.cohorts, before.cohorts)
    for name, values in before.measured.items():
        np.testing.assert_array_equal(again.measured[name], values)
    with pytest.raises(fedjax_sel.errors.UserError, match="already exists"):
        keep_runs.keep(tmp_path / "far" / "away", tmp_path / "kept")


class _Stop:
    def chunk(self, rounds, first):
        return True


@pytest.mark.slow
def test_a_run_that_ended_early_stays_one(keep_runs, tmp_path):
    config = SMALL.replace(rounds=8, chunk=1, seeds=2, out=str(tmp_path / "run"))
    keep_runs.ENOUGH = {_enough}
    (done,) = grid.run_all([("", config)], lambda line: None, progress=False, enough=_enough)
    assert 2 <= done.result.num_rounds < 8
    copy = keep_runs.keep(tmp_path / "run", tmp_path / "kept")
    again = grid.done_before(config.replace(out=str(copy)), _enough)
    assert again is not None and again.num_rounds == done.result.num_rounds
    assert grid.done_before(config.replace(out=str(copy))) is None  # to somebody who wants all of its rounds


@pytest.mark.slow
def test_what_is_no_whole_run_is_refused(keep_runs, tmp_path, capsys):
    assert keep_runs.main([str(tmp_path / "nowhere"), "--to", str(tmp_path / "kept")]) == 2
    config = SMALL.replace(rounds=2, chunk=1, seeds=1, out=str(tmp_path / "run"))
    fedjax_sel.run(config)
    (tmp_path / "run" / run_files.RESULT).unlink()
    assert keep_runs.main([str(tmp_path / "run"), "--to", str(tmp_path / "kept")]) == 2
    with FolderLock() as lock:
        lock.take(tmp_path / "run")
        assert keep_runs.main([str(tmp_path / "run"), "--to", str(tmp_path / "kept")]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 3 and all(line.startswith("error: ") for line in lines)
