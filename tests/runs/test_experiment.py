"""Runs from Python and their folders."""

import csv
import dataclasses
import json
import time

import numpy as np
import pytest

import fedjax_sel
from fedjax_sel import Config, NonFiniteUpdateError
from fedjax_sel.experiment.problem import pose
from fedjax_sel.runs import experiment, folder, reading
from fedjax_sel.runs import run_files as rows

SMALL = Config().replace(rounds=5, chunk=2, seeds="3 1", num_clients=20, num_selected=4, target_accuracy=0.2)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "one"
    return out, fedjax_sel.run(SMALL.replace(out=str(out), train_metrics_every=3))


def test_a_result_has_seeds_and_rounds_in_front(finished):
    _, result = finished
    assert isinstance(result, fedjax_sel.Result) and result.finished and result.seeds == (3, 1)
    for name in ("test_accuracy", "test_loss", "train_accuracy", "worst_decile_accuracy", "gemd"):
        assert getattr(result, name).shape == (2, 5), name
    assert result.cohorts.shape == (2, 5, 4) and result.cohorts.dtype == np.int32
    assert all(column.shape == (2, 5) and column.dtype == np.int64 for column in result.ledger)
    assert (np.diff(result.elapsed_seconds) > 0).all()


def test_rounds_of_an_earlier_version_limit_the_columns(finished):
    _, result = finished
    measured = {name: values for name, values in result.measured.items() if not name.startswith(("gini_", "jain_"))}
    earlier = dataclasses.replace(result, measured=measured)
    collector = experiment.Collector(pose(result.config), earlier)
    collector._parts.append(result)
    whole = collector.result()
    assert list(whole.measured) == list(measured) and whole.num_rounds == 10
    assert "final worst-decile accuracy" in dict(whole.summary())


def test_the_folder_holds_the_same_numbers(finished):
    out, result = finished
    assert {path.name for path in out.iterdir()} == {
        "config.json", "environment.json", "metrics.csv", "cohorts.npy", "checkpoints", "result.json",
        "curves.png",
        "params.npz",
    }  # fmt: skip
    with (out / "metrics.csv").open() as file:
        table = list(csv.DictReader(file))
    assert [(int(r["round"]), int(r["seed"])) for r in table] == [(t, s) for t in range(1, 6) for s in (3, 1)]
    for row in table:
        place, t = (3, 1).index(int(row["seed"])), int(row["round"]) - 1
        assert np.float32(row["test_accuracy"]) == result.test_accuracy[place, t]
        assert int(row["bytes_up"]) == result.ledger.bytes_up[place, t]
        assert (row["train_accuracy"] == "") == (t not in (2, 4))
    again = rows.parse(result.config, "here", (out / "metrics.csv").read_text(), np.load(out / "cohorts.npy"))
    assert again.measured.keys() == result.measured.keys()
    for name, values in result.measured.items():
        np.testing.assert_array_equal(again.measured[name], values)
    np.testing.assert_array_equal(again.cohorts, result.cohorts)
    np.testing.assert_array_equal(again.ledger, result.ledger)
    digests = folder.made_from(out)
    assert digests.keys() == {"dataset", "partitions"}
    assert set(digests["partitions"]) == {"3", "1"} and digests["partitions"]["3"] != digests["partitions"]["1"]
    assert folder.made_from(out.parent) is None
    assert "jax" in json.loads((out / "environment.json").read_text())["packages"]


def test_a_finished_run_is_read_not_repeated(finished, monkeypatch):
    out, result = finished
    before = (out / "metrics.csv").stat().st_mtime_ns
    monkeypatch.setattr(experiment, "pose", lambda config: pytest.fail("the run was repeated"))
    again = fedjax_sel.run(SMALL.replace(out=str(out), train_metrics_every=3, target_accuracy=0.9))
    np.testing.assert_array_equal(again.test_accuracy, result.test_accuracy)
    assert (out / "metrics.csv").stat().st_mtime_ns == before


def test_the_summary_counts_rounds_to_the_target_and_bytes(finished):
    _, result = finished
    rows = dict(result.summary())
    np.testing.assert_allclose(rows["megabytes down"], result.ledger.bytes_down.sum(axis=1) / 1e6)
    reached = rows["rounds to 20% test accuracy"]
    for place in range(2):
        above = np.flatnonzero(result.test_accuracy[place] >= 0.2)
        assert reached[place] == above[0] + 1 if len(above) else np.isnan(reached[place])


@pytest.mark.slow
def test_what_comes_before_the_first_chunk_is_done_does_not_slow_a_run_down(monkeypatch):
    real, wait = experiment.run.chunks, 2.0

    def compiles_for_long(*programs):
        time.sleep(wait)
        yield from real(*programs)

    monkeypatch.setattr(experiment.run, "chunks", compiles_for_long)
    result = fedjax_sel.run(SMALL.replace(rounds=12))
    assert result.compilation_seconds > wait
    known = result.round_seconds[2:]
    np.testing.assert_allclose(result.seed_rounds_per_second, 2 * 10 / known.sum())
    assert known.sum() <= result.elapsed_seconds[-1] - wait
    alone = fedjax_sel.run(SMALL.replace(rounds=2))  # one chunk, and nothing to tell its compilation from
    assert np.isnan([alone.seed_rounds_per_second, alone.compilation_seconds]).all()


@pytest.mark.slow
def test_an_update_that_is_not_finite_stops_the_run_and_names_it(tmp_path):
    out = tmp_path / "run"
    with pytest.raises(NonFiniteUpdateError, match=r"round \d+, seed 3: the update of client .* learning rate 1e\+20"):
        fedjax_sel.run(SMALL.replace(out=str(out), learning_rate=1e20))
    # nothing of the broken round is kept, so the run does not pass for a finished one
    result = reading.load(out)
    assert not result.finished and result.num_rounds < 5
    with pytest.raises(NonFiniteUpdateError):
        fedjax_sel.run(SMALL.replace(out=str(out), learning_rate=1e20))


def test_it_learns():
    """Twenty rounds on real digits: far above the tenth that guessing gives."""
    config = fedjax_sel.preset("quickstart").replace(partition="iid", rounds=20, seeds=2)
    result = fedjax_sel.run(config)
    assert (result.test_accuracy[:, -1] > 0.8).all()
    assert (result.test_loss[:, -1] < 0.8 * result.test_loss[:, 0]).all()


@pytest.mark.slow
def test_diverse_cohorts_have_lower_gemd_than_random_ones():
    base = fedjax_sel.preset("quickstart").replace(
        dataset="synthetic:train_size=5000,test_size=100,num_classes=10,image_size=8", rounds=30, seeds=2
    )
    random = fedjax_sel.run(base.replace(algo="random")).gemd.mean()
    assert 0.5 < random < 0.8
    assert fedjax_sel.run(base.replace(algo="fl_dp3s")).gemd.mean() < 0.4 * random
