"""Strategies in NumPy: the same cohorts wherever they run, bills, exact resume, and errors that name the function."""

import random
import sys

import numpy as np
import pytest

import fedjax_sel
from fedjax_sel import Config, Selector, UserError, callbacks, testing
from fedjax_sel.strategies import ALL, NEVER, Request, always, from_numpy, make

N, K = 12, 3
SMALL = Config().replace(
    dataset="synthetic:train_size=240,test_size=60,num_classes=4,image_size=4", num_clients=N, num_selected=K,
    model="logistic", local_steps=1, batch_size=4, rounds=6, chunk=2, seeds=2, eval_every=6, checkpoint_every=2,
)  # fmt: skip
LOSS = Request("loss", ALL, always())


def uniform(rng, state, now):
    return rng.choice(now.env.num_clients, now.env.num_selected, replace=False)


def begin(rng, now):
    return {"counts": np.zeros(now.env.num_clients, int), "bias": rng.random(2)}


def least_selected(rng, state, now):
    """The clients with the fewest reports, the highest losses first."""
    loss, age = now.info.loss
    score = np.where(age < NEVER, loss, 1e3) / 1e3 - state["counts"] + 1e-6 * rng.random(now.env.num_clients)
    if now.available is not None:
        score = np.where(now.available, score, -np.inf)
    return np.argsort(-score)[: now.env.num_selected]


def count(state, now, selection, outcome):
    counts = state["counts"].copy()
    counts[selection.ids[outcome.reported]] += 1
    return {**state, "counts": counts}


def counting(**more):
    return from_numpy("counting", least_selected, requests=[LOSS], init=begin, update=count, **more)


def run(strategy, **flat_names):
    return fedjax_sel.run(fedjax_sel.Experiment.of(SMALL.replace(**flat_names), algo=strategy, names={"algo": "mine"}))


@pytest.mark.slow
@pytest.mark.parametrize("strategy", [counting(), from_numpy("uniform", uniform)], ids=["counting", "uniform"])
def test_a_stopped_run_goes_on_with_the_same_bits(strategy, tmp_path):
    class Stop:
        def chunk(self, rounds, first):
            return True  # ends after the next chunk

    whole = run(strategy)
    out, experiment = str(tmp_path), fedjax_sel.Experiment.of(SMALL, algo=strategy, names={"algo": "mine"})
    assert not fedjax_sel.run(experiment, out=out, callbacks=[Stop()]).finished
    resumed = fedjax_sel.run(experiment, out=out)
    np.testing.assert_array_equal(resumed.cohorts, whole.cohorts)
    np.testing.assert_array_equal(resumed.test_loss, whole.test_loss)
    assert (whole.cohorts[0] != whole.cohorts[1]).any()  # of two seeds


def test_facts_are_billed_and_the_state_is_kept_per_seed():
    snapshots = callbacks.Snapshots()
    strategy = counting(reads=["losses_after"])
    experiment = fedjax_sel.Experiment.of(SMALL, algo=strategy, names={"algo": "mine"})
    result = fedjax_sel.run(experiment, callbacks=[snapshots])
    assert (result.ledger.floats_up == N + K).all() and (result.ledger.models_down == N).all()
    np.testing.assert_array_equal(snapshots.states[-1]["counts"], result.selection_counts)
    assert (result.selection_counts == SMALL.run.rounds * K // N).any()


def test_updates_above_100_kib_reach_the_host_of_two_devices():
    """XLA's CPU threads copy large arguments of callbacks; if all of them wait in callbacks, no thread is left."""

    def learn(state, now, selection, outcome):
        (bias, _) = (leaf for leaf in outcome.updates["Dense_0"].values())
        assert bias.shape[0] == K
        return {**state, "bias": np.array([np.abs(bias).sum(), 1.0])}

    strategy = from_numpy("large", uniform, init=begin, update=learn, reads=["updates"])
    settings = {"dataset": "synthetic:train_size=240,test_size=60,num_classes=40,image_size=32", "mesh": "seeds=2"}
    assert run(strategy, **settings).finished


def test_the_selector_selects_as_the_simulator_does():
    for strategy in (from_numpy("uniform", uniform), make("random")):
        server = Selector(strategy, num_clients=N, num_selected=K, num_rounds=6, sizes=[20] * N)
        first = server.select()[0]
        server.update()
        assert len({*first}) == K and server.select()[0] != first


@pytest.mark.slow
def test_it_conforms():
    testing.check_strategy(counting(), games=64)


def broken(where):
    def select(rng, state, now):
        if where == "select" and now.round == 3:
            raise KeyError("last_loss")
        if where == "exit" and now.round == 1:
            sys.exit(3)
        if where == "library":
            random.sample([1, 2], K)
        return {
            "ids": [0, 0, 1],
            "outside": [0, 1, N],
            "many": range(K + 1),
            "floats": [0.5],
            "mask": now.env.sizes > 0,
        }.get(where, [0, 1])

    def update(state, now, selection, outcome):
        if where == "update" and now.round == 3:
            raise ValueError("no reward")
        if where == "reads":
            return {**state, "counts": state["counts"] + 0.3 * outcome.losses_after}
        return {"counts": state["counts"]} if where == "shape" else count(state, now, selection, outcome)

    def init(rng, now):
        wrong = {
            "empty": np.zeros(0),
            "init": {"counts": np.zeros(N), "name": "a"},
            "shapes": np.zeros(int(now.env.sizes[0])),
            "large": np.int64(3_000_000_000),
        }
        if where == "singular":
            np.linalg.inv(np.outer(now.env.sizes, now.env.sizes))
        return wrong.get(where, begin(rng, now))

    return from_numpy("mine", select, init=init, update=update)


@pytest.mark.fast_cases(1)
@pytest.mark.parametrize(
    "where,words",
    [
        ("select", r"`select` failed in round 4: KeyError: 'last_loss' \(test_from_numpy.py, line \d+\)"),
        ("library", r"`select` failed in round 1: ValueError: .* \(test_from_numpy.py, line \d+\)"),
        ("singular", r"`init` failed in round 1: LinAlgError: .* \(test_from_numpy.py, line \d+\) with ones"),
        ("update", r"`update` failed in round 4: ValueError: no reward"),
        ("ids", r"`select` failed in round 1: .* are not distinct client IDs from 0 to 11; name each client once"),
        ("outside", r"`select` failed in round 1: .* are not distinct client IDs from 0 to 11"),
        ("many", r"`select` failed in round 1: it returns 4 client IDs; return at most now.env.num_selected = 3"),
        ("floats", r"`select` failed in round 1: it returns .*; return a list of client IDs, integers"),
        ("mask", r"`select` failed in round 1: it returns a mask; return client IDs, such as np.flatnonzero"),
        ("reads", r"`update` failed in round 1: outcome.losses_after is not provided; add it to from_numpy"),
        ("empty", r"`init` failed in round 1: the state has an empty array"),
        ("exit", r"`select` failed in round 2: SystemExit"),
        ("shape", r"`update` failed in round 1: it returns a state of another structure"),
        ("shapes", r"`init` failed in round 1: it returns state as float32 .* keep shapes and kinds"),
        ("init", r"`init` failed in round 1: the state holds 'a', not an array of numbers"),
        ("large", r"`init` failed in round 1: the state holds .*3000000000.*, beyond 32-bit integers; keep a float"),
    ],
)
def test_errors_name_the_function_and_the_round(where, words, capfd):
    with pytest.raises(UserError, match=f"strategy 'mine': {words}"):
        run(broken(where))
    assert "Traceback" not in capfd.readouterr().err
    with pytest.raises(UserError, match=f"strategy 'mine': {words}"):
        server = Selector(broken(where), num_clients=N, num_selected=K, num_rounds=6, sizes=[20] * N)
        for _ in range(6):
            server.select()
            server.update()


@pytest.mark.slow
def test_the_kit_reports_a_failing_function_and_not_what_follows_from_it():
    report = testing.examine(broken("select"), games=16, run=False)
    failed = {name: found.why for name, found in report.findings.items() if found.status == "failed"}
    assert failed and all("`select` failed in round" in reason for reason in failed.values())


def test_wrong_arguments():
    with pytest.raises(UserError, match="`update` needs a state; give init="):
        from_numpy("mine", uniform, update=count)
    with pytest.raises(UserError, match="reads of mine: unknown 'losses_befor'; did you mean 'losses_before'"):
        from_numpy("mine", uniform, init=begin, update=count, reads=["losses_befor"])
