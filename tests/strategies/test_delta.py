"""DELTA against a twin in float64 loops, and one round by hand."""

import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from fedjax_sel import testing
from fedjax_sel.strategies.contract import Selection
from fedjax_sel.strategies.delta import delta, floored
from tests.strategies import hooks
from tests.strategies.hooks import env_of, now_of, outcome_of

module = importlib.import_module("fedjax_sel.strategies.delta")  # the package names the function `delta` too


def started(strategy, sizes, k):
    """What the server knows in round 0, and the state."""
    now = now_of(env_of(sizes, k))
    return now, hooks.started(strategy, now)


def outcome(updates, reported, finite, paths):
    """Updates [K, 3] in two leaves."""
    tree = {"a": jnp.float32(updates[:, :1]), "b": jnp.float32(updates[:, 1:]).reshape(-1, 2, 1)}
    return outcome_of(reported, tree, finite, path_lengths=jnp.float32(paths))


def practical(q, p, members, gradients, by_share):
    """The practical form in Sec. 4: the members of S share what the others leave."""
    if not members:
        return q
    mean = sum(gradients[i] for i in members) / len(members)
    scores = {i: np.sqrt(((gradients[i] - mean) ** 2).sum()) * (p[i] if by_share else 1.0) for i in members}
    if sum(scores.values()) == 0:
        return q
    rest = 1 - sum(q[i] for i in range(len(q)) if i not in members)
    fresh = {i: scores[i] / sum(scores.values()) * rest for i in members}
    floor = 0.01 / len(q)
    if min(fresh.values()) < floor:
        excess = {i: max(0, fresh[i] - floor) for i in members}
        c = (rest - floor * len(members)) / sum(excess.values())
        fresh = {i: floor + c * excess[i] for i in members}
    return [fresh.get(i, q[i]) for i in range(len(q))]


@pytest.mark.fast_cases(1)
@pytest.mark.parametrize("score,k,absent", [("diversity", 4, 0.3), ("share-diversity", 5, 0.0), ("diversity", 1, 0.0)])
def test_states_follow_the_twin(score, k, absent):
    """With lost and nonfinite reports, and clients that are drawn repeatedly."""
    n, rounds = 8, 30
    rng = np.random.default_rng(k)
    sizes = rng.integers(5, 50, n)
    strategy = delta(score=score)
    select, update = map(jax.jit, (strategy.select, strategy.update))
    (start, state), p, q = started(strategy, sizes, k), sizes / sizes.sum(), [1 / n] * n
    repeated = lost = 0
    for round in range(rounds):
        available = rng.random(n) >= absent
        available[rng.integers(n)] = True
        there = jnp.asarray(available) if absent else None
        now = start._replace(round=jnp.int32(round), available=there)
        selection = select(jax.random.key(round), state, now)
        ids, law = selection.ids.tolist(), np.where(available, q, 0) / np.where(available, q, 0).sum()
        np.testing.assert_allclose(strategy.inclusion(state, now), k * law, rtol=1e-4)
        shares = np.where(available, p, 0) / p[available].sum()
        ratio = [ids.count(i) * shares[i] / (k * law[i]) if i not in ids[:j] else 0.0 for j, i in enumerate(ids)]
        np.testing.assert_allclose(selection.weights, ratio, rtol=1e-4)
        updates, lengths = rng.normal(size=(k, 3)) * rng.lognormal(size=(k, 1)), rng.uniform(0.5, 2, k)
        arrives, finite = rng.random(k) > 0.2, rng.random(k) > 0.1
        updates[~finite] = np.nan
        reported = np.asarray(selection.mask) & arrives
        state = update(state, now, selection, outcome(updates, reported, finite, lengths))
        usable = [j for j in range(k) if reported[j] and finite[j]]
        gradients = {ids[j]: -updates[j] / lengths[j] for j in usable}
        q = practical(q, p, [ids[j] for j in usable], gradients, score != "diversity")
        np.testing.assert_allclose(state.probabilities, q, rtol=1e-3, atol=1e-9)
        repeated, lost = repeated + (len(set(ids)) < k), lost + (len(usable) < len(set(ids)))
    assert (repeated > 2 or k == 1) and lost > 2


def test_one_round_by_hand():
    """Gradients 0, 3 and 9 have the mean 4 and the distances 4, 1 and 5; client 3 was not drawn."""
    strategy = delta()
    now, state = started(strategy, [5, 5, 10, 20], 3)
    selection = Selection(jnp.int32([1, 0, 2]), None, jnp.ones(3, bool))
    updates = np.array([[0.0, 0, 0], [-3, 0, 0], [-9, 0, 0]])
    state = strategy.update(state, now, selection, outcome(updates, [True] * 3, [True] * 3, np.ones(3)))
    np.testing.assert_allclose(state.probabilities, [0.075, 0.3, 0.375, 0.25], rtol=1e-6)


def test_a_client_at_the_mean_keeps_the_floor_and_can_be_drawn_again():
    """Updates 0, 2 and 1: the third score is zero. Later, scores 2, 2 and 1 share the sum 1 again."""
    strategy = delta()
    now, state = started(strategy, [10, 10, 10], 3)
    selection = Selection(jnp.int32([0, 1, 2]), None, jnp.ones(3, bool))
    still = outcome(np.array([[0.0, 0, 0], [2, 0, 0], [1, 0, 0]]), [True] * 3, [True] * 3, np.ones(3))
    state = strategy.update(state, now, selection, still)
    floor = 0.01 / 3
    np.testing.assert_allclose(state.probabilities, [0.5 - floor / 2, 0.5 - floor / 2, floor], rtol=1e-6)
    np.testing.assert_allclose(3 * state.probabilities, strategy.inclusion(state, now), rtol=1e-6)
    moved = outcome(np.array([[0.0, 0, 0], [4, 0, 0], [3, 0, 0]]), [True] * 3, [True] * 3, np.ones(3))
    state = strategy.update(state, now, selection, moved)
    np.testing.assert_allclose(state.probabilities, [7 / 14, 5 / 14, 2 / 14], rtol=1e-6)


def test_the_floor_stays_where_all_but_one_are_below_it():
    law = jnp.float32([0.6, 0.001, 0.0, 0.3])
    arrived = jnp.array([True, True, True, False])
    np.testing.assert_allclose(floored(law, arrived, 0.01)[:3], [0.581, 0.01, 0.01], rtol=1e-6)
    np.testing.assert_array_equal(floored(law, arrived & (law > 0.01), 0.01), law)  # no share is below: no bit changes
    np.testing.assert_allclose(floored(0.01 * arrived, arrived, 0.01)[:3], 0.01, rtol=1e-6)


@pytest.mark.slow
def test_the_kit_finds_a_missing_floor(monkeypatch):
    kept = ("requests", "traceable", "answer", "state", "cohort")
    skip = [check.name for check in testing.CHECKS if check.name not in kept]
    assert testing.examine(delta, run=False, skip=skip).failed == ()
    monkeypatch.setattr(module, "_FLOOR", 0.0)
    report = testing.examine(delta, run=False, skip=skip)
    assert report.findings["cohort"].why.startswith("`inclusion` is 0 for an available client")


@pytest.mark.parametrize("updates", [np.ones((3, 3)), np.full((3, 3), 1e30) * np.arange(3)[:, None]])
def test_equal_or_huge_updates_change_nothing(updates):
    strategy = delta()
    now, state = started(strategy, [5, 5, 10, 20], 3)
    selection = Selection(jnp.int32([1, 0, 2]), None, jnp.ones(3, bool))
    after = strategy.update(state, now, selection, outcome(updates, [True] * 3, [True] * 3, np.ones(3)))
    np.testing.assert_array_equal(after.probabilities, state.probabilities)


def test_draws_are_independent():
    strategy = delta()
    law = np.array([0.4, 0.3, 0.2, 0.1])
    now, state = started(strategy, [5, 5, 10, 20], 2)
    state = state._replace(probabilities=jnp.float32(law))
    select = jax.jit(jax.vmap(lambda key: strategy.select(key, state, now).ids))
    ids = np.asarray(select(jax.random.split(jax.random.key(0), 20_000)))
    counts = np.bincount(ids[:, 0] * 4 + ids[:, 1], minlength=16)
    assert stats.chisquare(counts, np.outer(law, law).ravel() * len(ids)).pvalue > 1e-4
