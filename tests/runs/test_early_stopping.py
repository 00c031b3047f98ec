"""A run that a callback ends early; callbacks see its weights."""

import chex
import pytest

import fedjax_sel
from fedjax_sel import UserError, logs
from fedjax_sel.callbacks import StopAtTarget

SMALL = fedjax_sel.preset("quickstart").replace(
    algo="random", num_clients=10, num_selected=2, local_steps=1, rounds=30, chunk=1, seeds=2
)


@pytest.mark.slow
def test_a_callback_sees_the_weights_of_every_round():
    class Weights:
        def __init__(self):
            self.after = {}

        def weights(self, rounds, weights):
            self.after[rounds] = weights

    kept = Weights()
    result = fedjax_sel.run(SMALL.replace(rounds=3), callbacks=kept)
    assert sorted(kept.after) == [0, 1, 2, 3]
    chex.assert_trees_all_equal(kept.after[3].trained, result.params)


@pytest.mark.slow
def test_weights_of_a_run_that_ended_early_and_of_one_that_was_interrupted(tmp_path):
    ended, stopped = tmp_path / "ended", tmp_path / "stopped"
    result = fedjax_sel.run(SMALL, out=str(ended), callbacks=StopAtTarget(1e-6))
    assert not result.finished
    chex.assert_trees_all_equal(fedjax_sel.load(ended).params, dict(result.params))

    class Fails:
        def chunk(self, rounds, first):
            if first == 3:
                raise RuntimeError("mine")

    with pytest.raises(RuntimeError):
        fedjax_sel.run(SMALL.replace(checkpoint_every=1), out=str(stopped), callbacks=Fails())
    found = fedjax_sel.load(stopped)
    with pytest.raises(UserError, match="params: this result has no weights"):
        _ = found.params


@pytest.mark.slow
def test_a_comparison_takes_callbacks_and_returns_weights(tmp_path):
    config = SMALL.replace(rounds=6)
    first = fedjax_sel.run_comparison(["random", "oort"], config, out=tmp_path, callbacks=StopAtTarget(1e-6))
    assert first.finished and [row.rounds for row in first.rows] == [2, 2]
    assert first.result("oort").params is not None
    fedjax_sel.run_comparison("random", config, out=tmp_path)
    again = fedjax_sel.run_comparison("random", config, out=tmp_path).result("random")
    assert again.finished and again.model is not None and fedjax_sel.per_client(again)["loss"].shape == (2, 10)


@pytest.mark.slow
def test_a_run_takes_logs(tmp_path, monkeypatch):
    seen = []

    class Tool:
        def __init__(self, folder):
            self.end = lambda result: seen.append((folder, result.num_rounds))

    monkeypatch.setattr(logs, "NAMES", dict.fromkeys(logs.NAMES, Tool))
    fedjax_sel.run(SMALL.replace(rounds=2), out=str(tmp_path / "run"), log="tensorboard")
    assert seen == [(tmp_path / "run-log", 2)]
    with pytest.raises(UserError, match="log: loggers write beside the run folder; give out= as well"):
        fedjax_sel.run(SMALL, log=["tensorboard"])
    with pytest.raises(UserError, match="--log: unknown 'tensorbord'; did you mean 'tensorboard'"):
        fedjax_sel.run(SMALL, out=str(tmp_path / "other"), log=["tensorbord"])
