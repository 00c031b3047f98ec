"""What selection alone costs: the stubbed rounds are those of a run."""

import itertools
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedjax_sel
from fedjax_sel import models
from fedjax_sel.experiment.problem import pose
from fedjax_sel.numerics import sampling
from fedjax_sel.strategies.contract import Selection, Strategy
from fedjax_sel.strategies.facts import ALL, CANDIDATES, NEVER, SELECTED, SERVER, Request, always, at_start, every
from studies import selection_cost
from studies.selection_cost import Setting
from tests import scripts

N, K, T, D = 7, 2, 20, 4
MODEL = models.make("mlp", (2, 2, 1), 3)
SIZES = np.arange(1, N + 1, dtype=np.int32)[None].repeat(2, axis=0)


def recorder(requests):
    """A strategy whose state tells what it saw: ages, finite values, rounds; it prefers low ids."""

    def init(key, now):
        profiles = now.info.profile.value
        assert profiles.shape == (N, MODEL.profile_size)
        assert (now.env.num_clients, now.env.num_selected, now.env.num_rounds, now.env.num_classes) == (N, K, T, 3)
        return {
            "observed": jnp.zeros((T, N), jnp.int32), "selecting": jnp.zeros((T, N), jnp.int32),
            "updating": jnp.zeros((T, N), jnp.int32), "losses": jnp.zeros((T, N)), "sum": jnp.zeros(()),
            "metrics": jnp.zeros(()), "profiles": profiles.astype(jnp.float64).mean(),
        }  # fmt: skip

    def observe(state, now):
        return {**state, "observed": state["observed"].at[now.round].set(now.info.loss.age)}

    def candidates(key, state, now):
        return (jnp.arange(D) + now.round).astype(jnp.int32) % N

    def select(key, state, now):
        ids = sampling.uniform_without_replacement(key, N, K)
        return Selection(ids, None, jnp.ones((K,), bool))

    def update(state, now, selection, outcome):
        total = sum(leaf.sum() for leaf in jax.tree.leaves((outcome.updates, outcome.step)))
        return {
            **state,
            "updating": state["updating"].at[now.round].set(now.info.loss.age),
            "losses": state["losses"].at[now.round].set(now.info.loss.value),
            "sum": state["sum"] + total + outcome.losses_before.sum() + outcome.losses_after.sum(),
            "metrics": state["metrics"] + outcome.metrics.after.loss + outcome.metrics.before.correct,
        }

    return Strategy("recorder", select, requests, init, update, observe, candidates)


REQUESTS = (
    Request("profile", ALL, at_start()),
    Request("loss", ALL, every(6, offset=1)),
    Request("loss", CANDIDATES, every(6, offset=3)),
    Request("loss", SELECTED, every(6, offset=5)),
    Request("server_metrics", SERVER, always()),
)


def final_state(setting):
    """The carry after all rounds, through the pieces that `measure` times."""
    of_state, carry, stubs = selection_cost._initial(setting, jax.random.key(3))
    state = selection_cost.initial_states(setting.strategy, *jax.device_get((of_state, stubs.env, carry.info)))
    carry = carry._replace(state=state)
    cohorts = []
    rounds = jax.jit(lambda carry, first: selection_cost._rounds(setting, carry, first, stubs))
    for first in range(0, setting.num_rounds, selection_cost.ROUNDS_A_CALL):
        carry, selection = rounds(carry, jnp.int32(first))
        cohorts.append(np.asarray(selection.ids))
    return carry, np.concatenate(cohorts, axis=1)


@pytest.mark.slow
def test_facts_come_when_they_are_due_from_whom_they_are_asked_and_age():
    carry, cohorts = final_state(Setting(recorder(REQUESTS), MODEL, 3, K, T, SIZES))
    state = jax.device_get(carry.state)
    assert (state["profiles"] > 0).all() and np.isfinite(state["sum"]).all() and (state["metrics"] > 0).all()
    for seed in range(2):
        age = np.full(N, NEVER)
        for t in range(T):
            if t % 6 == 1:
                age[:] = 0
            np.testing.assert_array_equal(state["observed"][seed, t], age)
            if t % 6 == 3:
                age[(np.arange(D) + t) % N] = 0
            if t % 6 == 5:
                age[cohorts[seed, t]] = 0
            np.testing.assert_array_equal(state["updating"][seed, t], age)
            age = np.minimum(age + 1, NEVER)
    assert (state["losses"][:, 0] == 0).all()  # nothing was measured yet
    assert (state["losses"][:, 1] > 0).all() and (state["losses"][:, 1] != state["losses"][:, 7]).all()
    np.testing.assert_array_equal(carry.info.profile.age, np.full((2, N), T))


@pytest.mark.slow
def test_a_cost_is_measured_over_all_rounds_or_until_the_budget_is_spent():
    setting = Setting(recorder(REQUESTS), MODEL, 3, K, T, SIZES)
    cost = selection_cost.measure(setting)
    assert cost.rounds == T and 0 < cost.seconds_per_round < 1 and cost.compile_seconds > 0
    assert cost.state_bytes == 2 * 4 * (4 * T * N + 3)
    assert cost.fact_bytes == 2 * 4 * N * (MODEL.profile_size + 1 + 2)
    assert cost.peak_bytes >= cost.state_bytes
    assert selection_cost.measure(setting, budget_seconds=1e-9).rounds == selection_cost.ROUNDS_A_CALL


@pytest.mark.slow
def test_seconds_are_of_a_round(monkeypatch):
    """By a clock that goes on by a second whenever it is read."""
    clock = SimpleNamespace(perf_counter=map(float, itertools.count()).__next__)
    monkeypatch.setattr(selection_cost, "time", clock)
    cost = selection_cost.measure(Setting(recorder(REQUESTS), MODEL, 3, K, T, SIZES), budget_seconds=1.5)
    calls = -(-cost.rounds // selection_cost.ROUNDS_A_CALL)
    assert cost.compile_seconds == 1.0 and cost.seconds_per_round == pytest.approx(calls / cost.rounds)


def test_what_is_too_large_is_refused_before_it_is_allocated():
    setting = Setting(recorder(REQUESTS), MODEL, 3, K, T, SIZES)
    with pytest.raises(MemoryError, match="state and facts would take"):
        selection_cost.measure(setting, most_bytes=1000)
    huge = fedjax_sel.strategies.make("fl_dp3s")
    sizes = np.ones((1, 10_000_000), np.int32)
    with pytest.raises(MemoryError, match=r"more than the 500\.0 MB"):
        selection_cost.measure(Setting(huge, MODEL, 3, K, T, sizes), most_bytes=500_000_000)


@pytest.mark.fast_cases(1)
@pytest.mark.parametrize("available", [1.0, 0.5])
@pytest.mark.parametrize("algo", ["random", "fl_dp3s"])
def test_seconds_of_a_configuration(algo, available):
    config = fedjax_sel.preset("quickstart").replace(
        algo=algo, available=available, rounds=3, num_clients=10, num_selected=2, seeds=2
    )
    assert 0 < selection_cost.selection_seconds(fedjax_sel.Experiment(config), budget_seconds=0.1) < 1


@pytest.mark.slow
def test_a_strategy_that_needs_the_clock():
    config = fedjax_sel.preset("quickstart").replace(
        algo="oort", algo_args={"system": "clock"}, timing="tiers", rounds=3, num_clients=10, num_selected=2, seeds=2
    )
    assert 0 < selection_cost.selection_seconds(fedjax_sel.Experiment(config), budget_seconds=0.1) < 1


@pytest.mark.slow
def test_a_file_of_who_is_there_counts_as_a_run_would_ask_it(tmp_path):
    """Selecting among those who are there may cost more; a strategy that is timed without anybody away says nothing."""
    shares = {}
    for name, rows in {"half": ["1010101010", "1111100000"], "all": ["1111111111"] * 2 + ["0" * 10]}.items():
        (tmp_path / f"{name}.csv").write_text("\n".join(",".join(of_client) for of_client in zip(*rows)))
        config = fedjax_sel.preset("quickstart").replace(
            algo="random", available=str(tmp_path / f"{name}.csv"), rounds=2, num_clients=10, num_selected=2, seeds=1
        )
        shares[name] = selection_cost.problem_setting(pose(config)).available
    assert shares == {"half": 0.5, "all": 1.0}  # a run asks who is there, even if nobody is ever away


@pytest.mark.slow
def test_the_benchmarks_case(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    benchmark = scripts.load("benchmarks/selection_cost.py")
    case = {"algo": "fl_dp3s[profile=gradient]", "num_clients": 12, "num_selected": 3, "rounds": 10, "budget": 0.1}
    measured = benchmark.run_case(**case, memory=100)
    assert measured["milliseconds_per_round"] > 0 and measured["rounds_timed"] == 10
    assert "ms" not in benchmark.describe({**case, **measured}) and "fl_dp3s" in benchmark.describe(
        {**case, **measured}
    )
    skipped = benchmark.run_case(**{**case, "num_clients": 5000}, memory=100)
    assert "more than the 100.0 MB allowed" in skipped["skipped"]
    assert "skipped: " in benchmark.describe({**case, **skipped})
