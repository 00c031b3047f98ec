"""A process may be killed between any two of its renames: the next start completes what is missing."""

import json
import pathlib
import shutil
import subprocess
import sys

import jax
import numpy as np
import pytest

import fedjax_sel
from fedjax_sel.runs import checkpoint
from studies import grid
from studies.boards import series
from tests.studies.papers_setting import made_up

SMALL = fedjax_sel.preset("quickstart").replace(
    algo="random", dataset="synthetic:train_size=600,test_size=100,num_classes=10,image_size=8", num_clients=12,
    num_selected=3, local_epochs=1, rounds=6, chunk=2, seeds=2, checkpoint_every=2,
)  # fmt: skip
FILES = {"params.npz", "result.json", "metrics.csv", "cohorts.npy", "config.json", "environment.json"}


class Stops:
    """Ends a run after a number of rounds, also where it resumes."""

    def __init__(self, rounds):
        self.rounds = rounds

    def resume(self, earlier):
        return earlier.num_rounds >= self.rounds

    def chunk(self, rounds, first):
        return first + rounds.num_rounds >= self.rounds


def left_at_each_rename(config, place, *callbacks):
    """Run, and copy the folder after each rename: what the disk has if the process is killed there."""
    whole, copies = place / "whole", []

    def then_copied(rename):
        def wrapped(self, target):
            found = rename(self, target)
            if whole in pathlib.Path(target).parents:
                copies.append(shutil.copytree(whole, place / f"{len(copies)}-{pathlib.Path(target).name}"))
            return found

        return wrapped

    with pytest.MonkeyPatch.context() as patch:
        for name in ("replace", "rename"):
            patch.setattr(pathlib.Path, name, then_copied(getattr(pathlib.Path, name)))
        result = fedjax_sel.run(config.replace(out=str(whole)), callbacks=callbacks)
    return result, copies


def assert_whole(out, config, result):
    """Everything that the uninterrupted run has is there, and nothing else."""
    found = fedjax_sel.load(out)
    np.testing.assert_array_equal(found.cohorts, result.cohorts)
    np.testing.assert_array_equal(found.test_loss, result.test_loss)
    leaves = jax.tree.leaves(result.weights)
    assert (out / "params.npz").exists()
    for ours, theirs in zip(jax.tree.leaves(found.weights), leaves, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    told = json.loads((out / "result.json").read_text())
    assert told["rounds"] == result.num_rounds and "params" in told
    assert len(list((out / "checkpoints").iterdir())) == config.run.keep
    assert {path.name for path in out.iterdir()} >= FILES and not list(out.rglob("*.tmp"))


@pytest.fixture(scope="module")
def gaps(tmp_path_factory):
    return left_at_each_rename(SMALL, tmp_path_factory.mktemp("gaps"))


@pytest.mark.slow
@pytest.mark.parametrize("gap", range(-15, -1))
def test_a_run_that_was_killed_between_two_renames_is_completed(gaps, gap, tmp_path):
    """The last renames: cohorts, the last checkpoint and its manifest, weights, result.json, curves."""
    result, copies = gaps
    assert [path.name.split("-", 1)[1] for path in copies[-6:]] == [
        "cohorts.npy", "manifest.json", "round-00000006", "params.npz", "result.json", "curves.png",
    ]  # fmt: skip
    if -gap > len(copies):
        pytest.skip("there are fewer renames")
    out = shutil.copytree(copies[gap], tmp_path / "run")
    assert (grid.done_before(SMALL.replace(out=str(out))) is not None) == (gap > -3)
    fedjax_sel.run(SMALL.replace(out=str(out)))
    assert_whole(out, SMALL, result)


def assert_same_weights(out, result):
    found = fedjax_sel.load(out)
    for ours, theirs in zip(jax.tree.leaves(found.weights), jax.tree.leaves(result.weights), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    told = json.loads((out / "result.json").read_text())
    assert told["rounds"] == found.num_rounds and "params" in told


@pytest.mark.slow
def test_without_checkpoints_a_run_is_finished_with_its_last_file(tmp_path):
    result, copies = left_at_each_rename(SMALL.replace(keep=0), tmp_path)
    for out in copies[-2:]:  # result.json, curves
        again = fedjax_sel.run(SMALL.replace(keep=0, out=str(out)))
        assert again.finished and (out / "params.npz").exists()
    for out in copies[-4:-2]:  # cohorts, weights
        assert not grid.done_before(SMALL.replace(keep=0, out=str(out)))
        fedjax_sel.run(SMALL.replace(keep=0, out=str(out), resume="never"))
        assert_same_weights(out, result)


@pytest.mark.slow
def test_a_run_that_a_callback_ended_is_completed_too(tmp_path):
    config = SMALL.replace(rounds=20)
    result, copies = left_at_each_rename(config, tmp_path, Stops(3))
    assert not result.finished
    for out in copies[-4:]:  # from the last checkpoint on
        fedjax_sel.run(config.replace(out=str(out)), callbacks=Stops(3))
        assert_whole(out, config, result)


def test_a_leaderboard_that_was_killed_between_its_files_has_the_rows_of_both(tmp_path):
    rows = {"random": made_up.series([[0.5]]), "oort": made_up.series([[0.6]])}
    one = {"random": rows["random"]}
    series.write(tmp_path, one, made_up.about(one))
    curves = (tmp_path / series.CURVES).read_bytes()
    series.write(tmp_path, rows, made_up.about(rows))
    (tmp_path / series.CURVES).write_bytes(curves)
    found = series.read(tmp_path)
    assert found is not None and set(found.rows) == set(found.about["rows"]) == {"random"}
    (tmp_path / series.CURVES).unlink()  # killed as it began
    assert series.read(tmp_path) is None


EXITS = """
import json, os, sys
import jax
jax.config.update("jax_num_cpu_devices", 2)  # as in the tests: the same programs
import fedjax_sel
from fedjax_sel.runs import checkpoint

commit = checkpoint._commit

def last(temporary, place):
    commit(temporary, place)
    if place.name == "round-00000006":
        os._exit(9)

checkpoint._commit = last
fedjax_sel.run(fedjax_sel.Config.from_json(json.load(sys.stdin)))
"""


@pytest.mark.slow
def test_a_process_that_exits_after_its_last_checkpoint(gaps, tmp_path):
    config = SMALL.replace(out=str(tmp_path / "run"))
    ended = subprocess.run([sys.executable, "-c", EXITS], input=json.dumps(config.to_json()), text=True, timeout=120)
    out = tmp_path / "run"
    assert ended.returncode == 9 and not (out / "params.npz").exists()
    assert checkpoint.list_all(out / "checkpoints")[0].name == "round-00000006"
    fedjax_sel.run(config)
    assert_whole(out, config, gaps[0])
