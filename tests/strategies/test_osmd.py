"""OSMD against a twin in float64 loops, the law of its draws, and the projection by bisection."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize, stats

from fedjax_sel.strategies.osmd import osmd, probabilities, projected
from tests.strategies import hooks
from tests.strategies.hooks import env_of, now_of, outcome_of

DRAWS = 20_000


def started(strategy, env):
    return hooks.started(strategy, now_of(env))


def outcome(updates, reported, finite, paths):
    """Updates [K, 3] in two leaves."""
    tree = {"a": jnp.float32(updates[:, :1]), "b": jnp.float32(updates[:, 1:]).reshape(-1, 2, 1)}
    return outcome_of(reported, tree, finite, path_lengths=jnp.float32(paths))


def on_simplex(weights, floor):
    """max(floor, s w) with sum 1, by bisection over s."""
    weights = np.array(weights) / max(weights)
    scale = optimize.brentq(lambda s: np.maximum(floor, s * weights).sum() - 1, 0, 1 / weights.max() + 1, xtol=1e-16)
    return np.maximum(floor, scale * weights)


class Twin:
    """Adaptive OSMD: experts, their mixture, and their weights."""

    def __init__(self, sizes, k, alpha, rounds):
        self.n, self.k, self.alpha, self.rounds = len(sizes), k, alpha, rounds
        self.p = [size / sum(sizes) for size in sizes]
        inside = 1 + 4 * (rounds - 1) * math.log(self.n / alpha) / math.log(self.n)
        self.count = math.ceil(0.5 * math.log2(inside)) + 1
        self.theta = [(1 + 1 / self.count) / (e * (e + 1)) for e in range(1, self.count + 1)]
        self.experts = [[1 / self.n] * self.n for _ in range(self.count)]
        self.bound = 0.0

    def law(self, available):
        mixture = [sum(t * q[i] for t, q in zip(self.theta, self.experts)) * available[i] for i in range(self.n)]
        return [q / sum(mixture) for q in mixture]

    def learn(self, draws, norms, law):
        """`draws`: one client per draw; `norms`: client -> |g| of the reports that arrived."""
        n, k, alpha, rounds = self.n, self.k, self.alpha, self.rounds
        a = {i: (self.p[i] * norm) ** 2 for i, norm in norms.items()}
        self.bound = max([self.bound, *a.values()])
        if self.bound == 0:
            return
        gamma = alpha / n * math.sqrt(8 * k / (rounds * self.bound))
        eta = k**2 * alpha**3 / (n**3 * self.bound) * math.sqrt(math.log(n) / (2 * rounds))
        theta, experts = [], []
        for e, q in enumerate(self.experts):
            loss, gradient = 0.0, [0.0] * n
            for i in draws:
                loss += a.get(i, 0.0) / (k**2 * q[i] * law[i])
                gradient[i] -= a.get(i, 0.0) / (k**2 * q[i] ** 2 * law[i])
            theta.append(self.theta[e] * math.exp(-gamma * loss))
            experts.append(on_simplex([x * math.exp(-eta * 2**e * g) for x, g in zip(q, gradient)], alpha / n))
        self.theta, self.experts = [t / sum(theta) for t in theta], experts


@pytest.mark.fast_cases(1)
@pytest.mark.parametrize("alpha,k,absent,paths", [(0.4, 3, 0.0, True), (0.9, 5, 0.4, True), (0.1, 1, 0.0, False)])
def test_states_follow_the_twin(alpha, k, absent, paths):
    """Repeated draws, lost and nonfinite reports. Two clients have long updates: floors bind for alpha=0.9."""
    n, rounds = 7, 60
    rng = np.random.default_rng(k)
    sizes = rng.integers(5, 50, n)
    scale = np.where(np.arange(n) < 2, 30.0, 1.0) * 20
    strategy, env = osmd(alpha=alpha), env_of(sizes, k, rounds)
    select, update = map(jax.jit, (strategy.select, strategy.update))
    state, twin = started(strategy, env), Twin(sizes, k, alpha, rounds)
    assert state.trust.shape == (twin.count,)
    repeated = lost = floors = 0
    for round in range(rounds):
        available = rng.random(n) >= absent
        available[rng.integers(n)] = True
        there = jnp.asarray(available) if absent else None
        now, law = now_of(env, None, round, there), twin.law(available)
        np.testing.assert_allclose(probabilities(state, there), law, rtol=1e-4)
        selection = select(jax.random.key(round), state, now)
        ids = selection.ids.tolist()
        total = sum(twin.p[i] for i in range(n) if available[i])
        for place, (client, mask, weight) in enumerate(zip(ids, selection.mask.tolist(), selection.weights.tolist())):
            assert mask == (client not in ids[:place])
            expected = ids.count(client) * twin.p[client] / total / (k * law[client]) if mask else 0.0
            assert weight == pytest.approx(expected, rel=1e-4)
        updates = rng.normal(size=(k, 3)) * scale[ids][:, None]
        lengths = rng.uniform(0.5, 2, k)
        arrives, finite = rng.random(k) > 0.2, rng.random(k) > 0.1
        updates[~finite] = np.nan
        reported = np.asarray(selection.mask) & arrives
        state = update(state, now, selection, outcome(updates, reported, finite, lengths if paths else np.ones(k)))
        usable = reported & finite
        norms = np.linalg.norm(updates, axis=1) / (lengths if paths else 1.0)
        twin.learn(ids, {ids[j]: norms[j] for j in range(k) if usable[j]}, law)
        np.testing.assert_allclose(state.trust, twin.theta, rtol=1e-3, atol=1e-6)
        np.testing.assert_allclose(state.experts, twin.experts, rtol=1e-4)
        repeated, lost = repeated + (len(set(ids)) < k), lost + (usable.sum() < len(set(ids)))
        floors += (np.array(twin.experts) <= alpha / n).any()
    assert (repeated > 5 or k == 1) and lost > 5 and (floors > 5 or alpha < 0.9)


@pytest.mark.parametrize("absent", [(), (1, 4)])
def test_draws_are_independent_and_unbiased(absent):
    n, k, sizes = 6, 2, np.array([10, 40, 30, 15, 5, 20])
    strategy, env = osmd(), env_of(sizes, k, 50)
    state = started(strategy, env)
    state = state._replace(experts=jnp.tile(jnp.float32([0.3, 0.1, 0.1, 0.2, 0.25, 0.05]), (len(state.trust), 1)))
    available = ~np.isin(np.arange(n), absent)
    now = now_of(env, None, 0, jnp.asarray(available) if absent else None)
    select = jax.jit(jax.vmap(lambda key: strategy.select(key, state, now)))
    found = jax.device_get(select(jax.random.split(jax.random.key(0), DRAWS)))
    law = np.where(available, [0.3, 0.1, 0.1, 0.2, 0.25, 0.05], 0)
    law /= law.sum()
    expected = np.outer(law, law).ravel() * DRAWS
    counts = np.bincount(found.ids[:, 0] * n + found.ids[:, 1], minlength=n * n)
    assert counts[expected == 0].sum() == 0
    assert stats.chisquare(counts[expected > 0], expected[expected > 0]).pvalue > 1e-4
    np.testing.assert_allclose(strategy.inclusion(state, now), k * law, rtol=1e-5)
    weights = np.zeros(n)
    np.add.at(weights, found.ids, np.where(found.mask, found.weights, 0))
    shares = np.where(available, sizes, 0) / sizes[available].sum()
    np.testing.assert_allclose(weights / DRAWS, shares, atol=0.02)


def test_without_available_clients_no_client_is_drawn():
    strategy = osmd()
    env = env_of([5, 9, 7], 2)
    selection = strategy.select(jax.random.key(0), started(strategy, env), now_of(env, None, 0, jnp.zeros(3, bool)))
    assert not selection.mask.any() and not selection.weights.any()


@pytest.mark.fast_cases(2)
@pytest.mark.parametrize("floor", [0.02, 0.1, 0.1999])
@pytest.mark.parametrize("spread", [0.1, 3.0, 60.0])
def test_projection(floor, spread):
    logits = np.random.default_rng(0).normal(size=5) * spread
    found = projected(jnp.float32(logits), floor)
    np.testing.assert_allclose(found, on_simplex(np.exp(logits - logits.max()), floor), rtol=1e-5)


@pytest.mark.slow
def test_probabilities_grow_with_share_and_gradient():
    """Two clients with equal gradients and shares 3 to 1, and one with a gradient of ten times the length."""
    sizes, k, rounds = [30, 10, 10], 2, 400
    strategy, env = osmd(), env_of(sizes, k, rounds)
    select, update = map(jax.jit, (strategy.select, strategy.update))
    state = started(strategy, env)
    for round in range(rounds):
        now = now_of(env, None, round)
        selection = select(jax.random.key(round), state, now)
        updates = np.array([1.0, 1.0, 10.0])[selection.ids][:, None] * np.ones(3)
        state = update(state, now, selection, outcome(updates, selection.mask, np.ones(k, bool), np.ones(k)))
    law = np.asarray(probabilities(state, None))
    assert law[2] > law[0] > law[1] and law[2] > 0.5
