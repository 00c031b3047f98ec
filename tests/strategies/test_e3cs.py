"""E3CS against a twin in float64 loops, and the laws of its two draws by enumeration."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from fedjax_sel.errors import UserError
from fedjax_sel.numerics import sampling
from fedjax_sel.strategies.e3cs import allocate, allocation, e3cs
from tests.strategies import hooks
from tests.strategies.hooks import env_of, now_of, outcome_of
from tests.strategies.laws import without_replacement

DRAWS = 20_000


def prob_alloc(k, sigma, weights):
    """ProbAlloc: try each number of capped clients, and solve p = 1 for the cap."""
    n, total = len(weights), sum(weights)
    if sigma + (k - n * sigma) * max(weights) / total <= 1:
        return [sigma + (k - n * sigma) * w / total for w in weights], [n <= k] * n
    ratio = (1 - sigma) / (k - n * sigma)  # alpha / sum of the capped weights
    for count in range(1, n):
        ranked = sorted(weights, reverse=True)
        alpha = ratio * sum(ranked[count:]) / (1 - ratio * count)
        if ranked[count] <= alpha < ranked[count - 1]:
            break
    capped = [min(w, alpha) for w in weights]
    return [sigma + (k - n * sigma) * w / sum(capped) for w in capped], [w > alpha * (1 - 1e-9) for w in weights]


class Twin:
    """Algorithm 1 over the available clients."""

    def __init__(self, n, k, quota, start, rate):
        self.weights, self.k, self.quota, self.start, self.rate = [1.0] * n, k, quota, start, rate

    def open(self, round, available):
        self.here = [i for i in range(len(self.weights)) if available[i]]
        self.n, self.now = len(self.here), min(self.k, len(self.here))
        self.sigma = (self.quota if round >= self.start else 0.0) * self.now / self.n
        found, capped = prob_alloc(self.now, self.sigma, [self.weights[i] for i in self.here])
        self.p, self.capped = dict(zip(self.here, found)), dict(zip(self.here, capped))

    def close(self, cohort, reported):
        for i, x in zip(cohort, reported):
            if x and i in self.p and not self.capped[i]:
                estimate = x / self.p[i]
                self.weights[i] *= math.exp((self.now - self.n * self.sigma) * self.rate * estimate / self.n)


def started(strategy, env):
    return hooks.started(strategy, now_of(env))


@pytest.mark.fast_cases(1)
@pytest.mark.parametrize("quota,start,draw,absent", [
    (0.5, 0.0, "sequential", 0.6), (0.0, 0.0, "sequential", 0.0), (0.3, 0.0, "systematic", 0.6),
    (1.0, 0.25, "sequential", 0.0),
])  # fmt: skip
def test_states_follow_the_twin(quota, start, draw, absent):
    """Half of the clients report seldom; the learning rate is large, so that weights are capped."""
    n, k, rounds, rate = 9, 3, 40, 2.0
    rng = np.random.default_rng(3)
    strategy = e3cs(quota=quota, quota_start=start, learning_rate=rate, draw=draw)
    allocated, select, update = map(jax.jit, (allocation, strategy.select, strategy.update))
    env = env_of([5] * n, k, rounds)
    state, twin = started(strategy, env), Twin(n, k, quota, start * rounds, rate)
    capped = few = 0
    for round in range(rounds):
        available = rng.random(n) >= absent
        available[rng.integers(n)] = True
        now = now_of(env, None, round, jnp.asarray(available) if absent else None)
        twin.open(round, available)
        found = allocated(state, now, quota if round >= start * rounds else 0.0)[0]
        expected = [twin.p.get(i, 0.0) for i in range(n)]
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)
        capped, few = capped + sum(twin.capped.values()), few + (twin.n < k)
        selection = select(jax.random.key(round), state, now)
        assert len(set(selection.ids.tolist())) == k and int(selection.mask.sum()) == min(k, twin.n)
        reported = selection.mask & (rng.random(k) < np.where(np.asarray(selection.ids) < 5, 0.2, 0.9))
        state = update(state, now, selection, outcome_of(reported))
        twin.close(selection.ids.tolist(), reported.tolist())
        logs = np.log(twin.weights)
        np.testing.assert_allclose(state.log_weights, logs - logs.max(), rtol=1e-4, atol=1e-4)
    assert capped > 5 or quota == 1.0
    assert few > 0 or not absent


@pytest.mark.parametrize("fraction", [0.0, 0.3, 0.9, 1.0])
@pytest.mark.parametrize("n,k", [(8, 3), (8, 1), (5, 5), (6, 5)])
def test_probabilities_sum_to_k_between_the_quota_and_one(n, k, fraction):
    """Also for weights of any magnitude, where the sum of the smaller ones vanishes in float32."""
    here = jnp.ones(n, bool)
    rng = np.random.default_rng(0)
    allocated = jax.jit(allocate)
    for scale in (0.0, 1.0, 30.0, 1e4, 1e30):
        logs = jnp.float32(rng.uniform(-scale, 0, n))
        p = np.asarray(allocated(logs, here, float(k), fraction))
        assert p.sum() == pytest.approx(k, rel=1e-5) and p.max() <= 1 + 1e-6 and p.min() >= fraction * k / n - 1e-6
        assert (np.diff(p[np.argsort(logs)]) >= 0).all()


def cohorts_of(draw):
    ids = jax.jit(jax.vmap(draw))(jax.random.split(jax.random.key(2), DRAWS))
    cohorts, counts = np.unique(np.sort(ids, axis=1), axis=0, return_counts=True)
    return {tuple(cohort): int(count) for cohort, count in zip(cohorts.tolist(), counts)}


def assert_follows(seen, law):
    possible = {cohort: q for cohort, q in law.items() if q > 1e-12}
    assert set(seen) <= set(possible) and sum(possible.values()) == pytest.approx(1)
    assert stats.chisquare([seen.get(one, 0) for one in possible], [DRAWS * q for q in possible.values()]).pvalue > 1e-4


def systematic_law(p, k):
    """All orders; between two neighboring fractional parts of the cumulative sums, u draws the same items."""
    law, orders = {}, list(itertools.permutations(range(len(p))))
    for order in orders:
        ends = np.cumsum([p[i] for i in order])
        cuts = sorted({0.0, 1.0, *(ends % 1)})
        for low, high in itertools.pairwise(cuts):
            points = (low + high) / 2 + np.arange(k)
            cohort = tuple(sorted(order[int(np.searchsorted(ends, point))] for point in points))
            law[cohort] = law.get(cohort, 0.0) + (high - low) / len(orders)
    return law


def inclusion_of(law, n):
    return [sum(q for cohort, q in law.items() if i in cohort) for i in range(n)]


@pytest.mark.parametrize("draw", ["sequential", "systematic"])
def test_cohorts_have_the_enumerated_law(draw):
    p = [0.9, 0.25, 0.35, 0.125, 0.375]
    strategy, now = e3cs(quota=0.0, draw=draw), now_of(env_of([5] * 5, 2))
    state = started(strategy, now.env)._replace(log_weights=jnp.log(jnp.float32(p)))  # their sum is k: p_i = w_i
    law = {"sequential": without_replacement, "systematic": systematic_law}[draw](p, 2)
    assert_follows(cohorts_of(lambda key: strategy.select(key, state, now).ids), law)


def test_only_the_systematic_draw_has_the_allocated_probabilities():
    """The example of the documentation, and a case with a large spread."""
    assert inclusion_of(without_replacement([1, 0.5, 0.5], 2), 3) == pytest.approx([5 / 6, 7 / 12, 7 / 12])
    p = [0.9, 0.25, 0.35, 0.125, 0.375]
    assert inclusion_of(systematic_law(p, 2), 5) == pytest.approx(p)
    assert inclusion_of(without_replacement(p, 2), 5)[0] < 0.8
    strategy, now = e3cs(quota=0.1, draw="systematic"), now_of(env_of([5] * 5, 2))
    state = started(strategy, now.env)._replace(log_weights=jnp.log(jnp.float32(p) - 0.04))  # sigma = 0.04
    np.testing.assert_allclose(strategy.inclusion(state, now), p, rtol=1e-6)
    assert e3cs().inclusion is None


def test_a_systematic_draw_fills_its_places_with_items_of_positive_probability_first():
    seen = cohorts_of(lambda key: sampling.systematic(key, jnp.float32([0, 1, 0.1, 0, 0]), 3))
    assert len(seen) == 3 and all({1, 2} < set(cohort) for cohort in seen)


def test_reliable_clients_are_selected_more_often():
    """Client 0 never reports; the quota keeps its probability at half of k / N."""
    strategy, now = e3cs(quota=0.5, learning_rate=0.5), now_of(env_of([5] * 4, 2))

    def step(state, key):
        cohort = strategy.select(key, state, now)
        return strategy.update(state, now, cohort, outcome_of(cohort.ids != 0)), allocation(state, now, 0.5)[0]

    _, found = jax.lax.scan(step, started(strategy, now.env), jax.random.split(jax.random.key(0), 200))
    np.testing.assert_allclose(found[0], 0.5)
    assert float(found[-1, 0]) == pytest.approx(0.25, abs=1e-3)


def test_a_start_without_a_quota_is_rejected():
    with pytest.raises(UserError, match=r"^e3cs: quota_start=0.5 has no effect with quota=0"):
        e3cs(quota=0.0, quota_start=0.5)
