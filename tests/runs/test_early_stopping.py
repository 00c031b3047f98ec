"""A run ends where no seed improves any more; callbacks see its weights."""

from types import SimpleNamespace

import chex
import numpy as np
import pytest

import fedjax_sel
from fedjax_sel import UserError, logs
from fedjax_sel.callbacks import EarlyStopping, StopAtTarget

SMALL = fedjax_sel.preset("quickstart").replace(
    algo="random", num_clients=10, num_selected=2, local_steps=1, rounds=30, chunk=1, seeds=2
)


def measured(values, higher_is_better=True, name="test_accuracy"):
    """A chunk, as far as the callback can tell."""
    return SimpleNamespace(test_measure=name, measured={name: np.array(values)}, higher_is_better=higher_is_better)


NAN = np.nan


@pytest.mark.parametrize(
    "options,values,ends",
    [
        ({"patience": 2}, [[0.1, 0.2, 0.2, 0.2, 0.3]], 4),
        ({"patience": 2}, [[0.1, 0.2, 0.2, 0.3, 0.3]], None),
        ({"patience": 2}, [[0.1, 0.1, 0.1, 0.1, 0.1], [0.1, 0.2, 0.3, 0.2, 0.1]], 5),  # each seed waits for itself
        ({"patience": 1}, [[0.1, 0.1, 0.9, 0.9, 0.9], [0.1, 0.2, 0.2, 0.2, 0.2]], 3),  # who is done stays done
        ({"patience": 2}, [[NAN, NAN, NAN, 0.1, NAN, NAN, NAN, 0.1]], 8),  # at a measured round
        ({"patience": 2, "min_delta": 0.15}, [[0.1, 0.2, 0.3, 0.3, 0.3]], 5),
        ({"patience": 2, "higher_is_better": False}, [[0.3, 0.2, 0.3, 0.3, 0.3]], 4),
    ],
)
@pytest.mark.parametrize("chunk", [1, 3])
def test_when_it_ends_does_not_depend_on_chunks(options, values, ends, chunk):
    stop, values = EarlyStopping(**options), np.array(values)
    stop.start()
    answers = [
        stop.chunk(measured(values[:, first : first + chunk]), first) for first in range(0, values.shape[1], chunk)
    ]
    found = answers.index(True) if True in answers else None
    assert found == (None if ends is None else (ends - 1) // chunk)


def test_losses_fall_as_they_improve():
    stop = EarlyStopping(2, measure="test_loss")
    assert not stop.chunk(measured([[3.0, 2.0, 1.0, 0.5]], name="test_loss"), 0)
    assert stop.best == [0.5] and stop.best_rounds == [4]
    stop = EarlyStopping(2, measure="gini_accuracy")
    assert stop.chunk(measured([[0.3, 0.4, 0.4]], name="gini_accuracy"), 0)
    stop = EarlyStopping(2, measure="jain_error")  # equality grows, whatever the task's measure does
    assert stop.chunk(measured([[0.9, 0.8, 0.8]], higher_is_better=False, name="jain_error"), 0)
    stop = EarlyStopping(2)  # an error, as the task says
    assert stop.chunk(measured([[3.0, 4.0, 4.0]], higher_is_better=False, name="test_error"), 0)


@pytest.mark.parametrize(
    "options,words",
    [
        ({"patience": 0}, "patience: 0 is not a positive integer; give a number of rounds"),
        ({"patience": 2.5}, "patience: 2.5 is not a positive integer"),
        ({"patience": True}, "patience: True is not a positive integer"),
        ({"patience": 2, "min_delta": -1}, "min_delta: -1 is not a nonnegative finite number; give a difference"),
        ({"patience": 2, "min_delta": np.nan}, "min_delta: nan is not a nonnegative finite number"),
    ],
)
def test_numbers_out_of_range(options, words):
    with pytest.raises(UserError, match=words):
        EarlyStopping(**options)


@pytest.mark.slow
@pytest.mark.parametrize("name,words", [("test_los", "did you mean 'test_loss'"), ("train_loss", "is not measured")])
def test_a_measure_that_is_not_taken(name, words):
    with pytest.raises(UserError, match=f"^measure: .*{words}"):
        fedjax_sel.run(SMALL, callbacks=EarlyStopping(2, measure=name))


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
