"""Clients that cannot be reached, and clients whose training never reaches the server: seeded, equal, and billed."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedjax_sel
from fedjax_sel import Config, strategies
from fedjax_sel.errors import UserError
from fedjax_sel.experiment import problem as dealing
from fedjax_sel.experiment.problem import pose
from fedjax_sel.simulation import keys, run
from fedjax_sel.simulation.ledger import floats_per_answer, settle
from fedjax_sel.strategies import contract, facts
from fedjax_sel.strategies.facts import SELECTED, Request, always, every

SMALL = Config().replace(
    algo="random", dataset="synthetic:train_size=600,test_size=100,num_classes=10,image_size=8", num_clients=12,
    num_selected=4, local_epochs=1, rounds=6, chunk=3, seeds=2,
)  # fmt: skip


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    table = (np.random.default_rng(0).uniform(size=(12, 8)) < 0.5).astype(int)
    table[:, 2] = 0  # nobody in the third round
    path = tmp_path_factory.mktemp("trace") / "who.csv"
    path.write_text("\n".join(",".join(map(str, row)) for row in table) + "\n")
    return path, table


def test_a_trace_is_read_from_text_and_from_numpy(trace, tmp_path):
    path, table = trace
    np.testing.assert_array_equal(dealing.load_availability(path), table.T == 1)
    np.save(tmp_path / "who.npy", table.astype(bool))
    np.testing.assert_array_equal(dealing.load_availability(tmp_path / "who.npy"), table.T == 1)
    with pytest.raises(UserError, match="12 clients and 8 rounds, but the run has 12 clients and 9 rounds"):
        dealing.trace(dealing.experiment_of(SMALL.replace(num_clients=12, rounds=9, available=str(path))))


@pytest.mark.slow
@pytest.mark.parametrize("algo", ["random", "fl_dp3s"])
def test_nobody_trains_who_the_trace_says_is_away(trace, algo, tmp_path):
    path, table = trace
    result = fedjax_sel.run(SMALL.replace(algo=algo, available=str(path), out=str(tmp_path / "run")))
    for t in range(6):
        there = set(np.flatnonzero(table[:, t]))
        for cohort in result.cohorts[:, t]:
            chosen = set(cohort[cohort >= 0].tolist())
            assert chosen <= there and len(chosen) == min(4, len(there))
    np.testing.assert_array_equal(result.ledger.models_down[:, 2], 0)
    np.testing.assert_array_equal(result.test_loss[:, 2], result.test_loss[:, 1])
    longer = fedjax_sel.run(SMALL.replace(algo=algo, available=str(path), out=str(tmp_path / "run"), rounds=8))
    np.testing.assert_array_equal(longer.cohorts[:, :6], result.cohorts)
    assert all(set(cohort[cohort >= 0].tolist()) <= set(np.flatnonzero(table[:, 7])) for cohort in longer.cohorts[:, 7])
    path.with_name("other.csv").write_text(path.read_text().replace("1", "0", 1))
    with pytest.raises(UserError, match="another configuration"):
        fedjax_sel.run(SMALL.replace(algo=algo, available=str(path.with_name("other.csv")), out=str(tmp_path / "run")))


@pytest.mark.slow
def test_lost_reports_are_the_same_whatever_the_strategy_and_cost_what_they_cost():
    everyone = SMALL.replace(num_selected=12, report_failure_rate=0.3)
    random, other = (fedjax_sel.run(everyone.replace(algo=algo)) for algo in ("random", "fl_dp3s"))
    lost = random.ledger.reports_lost
    np.testing.assert_array_equal(lost, other.ledger.reports_lost)  # all are selected: the same clients fail
    assert 0 < lost.sum() < lost.size * 12 * 0.6
    assert (random.cohorts >= 0).all()  # they did train
    none = fedjax_sel.run(SMALL.replace(num_selected=12))
    np.testing.assert_array_equal(random.ledger.models_down, none.ledger.models_down)
    np.testing.assert_array_equal(random.ledger.examples_trained, none.ledger.examples_trained)
    np.testing.assert_array_equal(random.ledger.models_up, none.ledger.models_up - lost)
    assert none.ledger.reports_lost.sum() == 0
    assert (random.test_loss != none.test_loss).any()


LOSSY = SMALL.replace(seeds=1, chunk=1, rounds=3, report_failure_rate=0.5, num_selected=6, holdout=0.2)


def lossy_rounds(problem):
    """Rounds one by one: the tables after each, who of the cohort was lost, and what was billed."""
    program = run.prepare(problem)
    carry = program.carry
    lengths = floats_per_answer(problem.strategy, problem.model, problem.dataset.num_classes)
    for t in range(3):
        before = jax.device_get(carry.info)  # the chunk takes the carry's buffers
        carry, records = program.chunk(carry, jnp.int32(t), program.federation, program.streams)
        cohort = np.asarray(records.cohort)[0, 0]
        draws = [jax.random.uniform(keys.client_key(program.streams.reports[0], jnp.int32(t), k)) for k in cohort]
        lost = (np.array(draws) < 0.5) & (cohort >= 0)
        events = jax.tree.map(lambda leaf: np.moveaxis(np.asarray(leaf), 0, 1), records.events)
        ledger = jax.tree.map(lambda leaf: leaf[0, 0], settle(events, problem.model.num_params, lengths))
        yield t, before, jax.device_get(carry), cohort, lost, ledger


BUY_OF_THE_COHORT = [
    ("afl", {}, "loss"),
    ("fedsae", {}, "loss"),
    ("fedsae", {"variant": "greedy"}, "loss"),
    ("divfl", {}, "gradient"),
    ("oort", {}, "training_loss"),
    ("pow_d", {"variant": "rpow-d"}, "training_loss"),
]


def test_every_strategy_that_buys_of_its_cohort_is_looked_at():
    buying = {n for n in strategies.names() if any(r.who == SELECTED for r in strategies.make(n).requests)}
    assert buying | {"pow_d"} == {name for name, *_ in BUY_OF_THE_COHORT}
    for name, parameters, kind in BUY_OF_THE_COHORT:
        requests = strategies.make(name, **parameters).requests
        assert {r.kind for r in requests if r.who == SELECTED} == {kind}


@pytest.mark.slow
@pytest.mark.parametrize(
    "algo,parameters,kind",
    [pytest.param(*one, id="-".join([one[0], *one[1].values()])) for one in BUY_OF_THE_COHORT],
)
def test_nothing_is_learned_of_a_client_whose_report_is_lost(algo, parameters, kind):
    """What the cohort is asked travels with its reports: no value, no age, no float on the bill; the work was done."""
    problem = pose(LOSSY.replace(algo=algo, algo_args=parameters))
    length = problem.model.num_params if kind == "gradient" else 1
    seen = 0
    for t, before, carry, cohort, lost, ledger in lossy_rounds(problem):
        old, new = (jax.tree.map(lambda leaf: leaf[0], getattr(info, kind)) for info in (before, carry.info))
        silent = np.setdiff1d(np.arange(12), cohort[~lost])
        np.testing.assert_array_equal(new.value[silent], old.value[silent])
        np.testing.assert_array_equal(new.age[silent], np.minimum(old.age[silent] + 1, facts.NEVER))
        np.testing.assert_array_equal(new.age[cohort[~lost]], 1)  # a round is over
        start = 12 if t == 0 and kind != "training_loss" else 0  # asked of all before the first round
        assert ledger.floats_up == length * (start + (~lost).sum())
        assert (ledger.reports_lost, ledger.models_up) == (lost.sum(), (~lost).sum())
        assert ledger.models_down == (12 if start else 6)
        seen += lost.sum()
        if algo == "oort":
            np.testing.assert_array_equal(carry.strategy.last[0][cohort] == t + 1, ~lost)
    assert 0 < seen < 18


@pytest.mark.slow
def test_whom_nobody_hears_of_tells_nothing_where_clients_are_away():
    """Places that stay empty train as well, one program for all; what they found is nobody's to learn from."""

    def init(key, now):
        return {"updates": jnp.zeros((6,)), "after": jnp.zeros((6,)), "finite": jnp.zeros((6,), bool)}

    def select(key, state, now):
        return contract.Selection(jnp.arange(6, dtype=jnp.int32), None, now.available[:6])

    def update(state, now, selection, outcome):
        total = sum(jnp.abs(leaf).reshape(6, -1).sum(axis=1) for leaf in jax.tree.leaves(outcome.updates))
        return {"updates": total, "after": outcome.losses_after, "finite": outcome.finite}

    strategy = contract.Strategy("curious", select, init=init, update=update)
    config = LOSSY.replace(algo="random", report_failure_rate=0.0, available=0.5)
    program = run.prepare(dataclasses.replace(pose(config), strategy=strategy))
    carry, records = program.chunk(program.carry, jnp.int32(0), program.federation, program.streams)
    there = np.asarray(records.cohort)[0, 0] >= 0
    assert 0 < there.sum() < 6
    for told in jax.device_get(carry.strategy).values():
        np.testing.assert_array_equal(told[0] != 0, there)


@pytest.mark.slow
def test_the_bill_of_facts_that_are_lost_with_a_report():
    """Every kind that the cohort can be asked, and what its outcome tells: heard of, or worked for and lost."""
    kinds = ("loss", "training_loss", "profile", "gradient", "label_histogram")
    cohort = jnp.array([7, 0, 3, 11, 5, 2], jnp.int32)

    def init(key, now):
        return {"updates": jnp.zeros((6,)), "before": jnp.zeros((6,)), "finite": jnp.zeros((6,), bool)}

    def select(key, state, now):
        return contract.Selection(cohort, None, jnp.ones(6, bool))

    def update(state, now, selection, outcome):
        total = sum(jnp.abs(leaf).reshape(6, -1).sum(axis=1) for leaf in jax.tree.leaves(outcome.updates))
        return {"updates": total, "before": outcome.losses_before, "finite": outcome.finite}

    requests = tuple(Request(kind, SELECTED, every(2) if kind == "profile" else always()) for kind in kinds)
    strategy = contract.Strategy("curious", select, requests, init=init, update=update)
    problem = dataclasses.replace(pose(LOSSY.replace(algo="random")), strategy=strategy)
    p, q, c = problem.model.num_params, problem.model.profile_size, 10
    for t, before, carry, _, lost, ledger in lossy_rounds(problem):
        heard = (~lost).sum()
        assert 0 < heard < 6
        for kind in kinds:
            old, new = (jax.tree.map(lambda leaf: leaf[0], getattr(info, kind)) for info in (before, carry.info))
            np.testing.assert_array_equal(new.value[cohort[lost]], old.value[cohort[lost]])
            arrives = ~lost & (kind != "profile" or t != 1)
            np.testing.assert_array_equal(new.age[cohort[arrives]], 1)
            assert (new.age[cohort[~arrives]] > 1).all()
        told = jax.tree.map(lambda leaf: leaf[0], carry.strategy)
        for name in ("updates", "before", "finite"):
            np.testing.assert_array_equal(told[name] != 0, ~lost)
        profiles = 0 if t == 1 else 1
        assert ledger.floats_up == heard * (1 + 1 + profiles * q + p + c + 1)
        assert (ledger.models_down, ledger.models_up) == (6, heard)
        # 50 examples a client, 40 of them for training: two losses, the gradient, the profile
        assert ledger.examples_evaluated == 6 * (40 + 40 + 50 + profiles * 50)
        assert ledger.examples_trained == 6 * 40


@pytest.mark.slow
def test_without_a_single_report_the_model_stays_and_no_strategy_learns():
    never = fedjax_sel.run(SMALL.replace(algo="oort", report_failure_rate=0.999999))
    assert (never.ledger.reports_lost == 4).all() and (never.ledger.models_up == 0).all()
    assert (never.test_loss == never.test_loss[:, :1]).all()
    assert np.isnan(never.gemd).all()  # nobody's labels reached the server


@pytest.mark.slow
def test_skipped_updates_are_counted():
    wild = SMALL.replace(learning_rate=1e20, on_nonfinite="skip", local_epochs=3)
    result = fedjax_sel.run(wild)
    assert (result.ledger.updates_skipped == 4).all()
    assert (result.test_loss == result.test_loss[:, :1]).all()  # an all-skipped cohort leaves the model unchanged


@pytest.mark.slow
@pytest.mark.parametrize(
    "algo,args", [("gpfl", {}), ("greedyfed", {}), ("pow_d", {"variant": "rpow-d", "num_candidates": 12})]
)
def test_clients_that_always_miss_the_deadline_do_not_fill_all_cohorts(algo, args):
    config = SMALL.replace(algo=algo, algo_args=args, rounds=12, timing="tiers", deadline="q0.6", server_validation=0.1)
    lost = fedjax_sel.run(config).ledger.reports_lost
    assert lost.max() > 0 and (lost[:, -4:].min(axis=1) < SMALL.selection.num_selected).all()
