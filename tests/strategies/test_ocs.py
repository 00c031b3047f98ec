"""Optimal client sampling against NumPy twins of its closed form and of AOCS, and the law of its cohorts."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from fedjax_sel.errors import UserError
from fedjax_sel.strategies.facts import ALL, CANDIDATES
from fedjax_sel.strategies.ocs import ocs
from tests.strategies.hooks import env_of, info_of, now_of


def known(sizes, k, norms, ages=0, available=None):
    return now_of(env_of(sizes, k), info_of("ocs", update_norm=(norms, ages)), 0, available)


def optimal(u, m):
    """The closed form: p_i = (m + l - n) u_i / (u_(1) + ... + u_(l)) for the l smallest, with the largest such l."""
    n, order = len(u), np.argsort(u)
    sums = np.cumsum(u[order])
    best = max(i for i in range(1, n + 1) if 0 < m + i - n <= sums[i - 1] / u[order[i - 1]])
    p = np.ones(n)
    p[order[:best]] = (m + best - n) * u[order[:best]] / sums[best - 1]
    return p


def approximate(u, m, j_max):
    """AOCS: clients send (1, p_i) if p_i < 1; the server answers with the factor of the next rescaling."""
    n, p = len(u), np.minimum(m * u / u.sum(), 1)
    for _ in range(j_max):
        below = p < 1
        if not below.any():
            break
        factor = (m - n + below.sum()) / p[below].sum()
        p[below] = np.minimum(factor * p[below], 1)
        if factor <= 1:
            break
    return p


@pytest.mark.parametrize("rescalings,differs", [(None, False), (0, True), (1, True), (4, False)])
def test_probabilities_equal_the_twins(rescalings, differs):
    rng, strategy, k = np.random.default_rng(0), ocs(rescalings=rescalings), 5
    sizes, norms = rng.integers(5, 50, 12), np.exp(2 * rng.normal(size=(200, 12)))
    inclusion = jax.jit(jax.vmap(lambda norms: strategy.inclusion((), known(sizes, k, norms))))
    found = np.asarray(inclusion(jnp.float32(norms)))
    u = sizes / sizes.sum() * norms
    closed = np.array([optimal(row, k) for row in u])
    expected = closed if rescalings is None else np.array([approximate(row, k, rescalings) for row in u])
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    assert (np.abs(found.sum(axis=1) - k).max() > 0.01) == differs  # four rescalings suffice here


def test_no_other_probabilities_have_a_smaller_variance():
    rng, k = np.random.default_rng(1), 4
    u = np.exp(2 * rng.normal(size=9))
    p = optimal(u, k)
    assert (p == 1).any()
    for _ in range(2000):
        other = np.clip(p + rng.normal(scale=10 ** rng.uniform(-4, -1), size=9), 1e-6, 1)
        other = np.where(other < 1, np.minimum(1, other * (k - (other == 1).sum()) / other[other < 1].sum()), other)
        if other.sum() <= k:
            assert (u**2 / p).sum() <= (u**2 / other).sum() + 1e-9


@pytest.mark.parametrize("absent", [(), (2, 5)])
def test_cohorts_follow_the_probabilities_and_are_unbiased(absent):
    sizes, norms, k = [10, 20, 30, 40, 50, 60, 70], [3.0, 1.0, 0.1, 2.0, 0.5, 4.0, 1.0], 3
    strategy, reachable = ocs(rescalings=None), ~np.isin(np.arange(7), absent)
    now = known(sizes, k, norms, np.where(reachable, 0, 4), jnp.asarray(reachable) if absent else None)

    def draw(key):
        answer = strategy.select(key, (), now)
        return jnp.zeros((7,)).at[answer.ids].add(answer.weights), jnp.zeros((7,), int).at[answer.ids].add(answer.mask)

    weights, chosen = map(np.asarray, jax.jit(jax.vmap(draw))(jax.random.split(jax.random.key(0), 20_000)))
    shares = np.where(reachable, sizes, 0) / np.array(sizes)[reachable].sum()
    p = np.zeros(7)
    p[reachable] = optimal((shares * norms)[reachable], k)
    assert chosen.max() == 1 and (chosen[:, p == 0] == 0).all() and (chosen[:, p == 1] == 1).all()
    random = (p > 0) & (p < 1)
    for count, one in zip(chosen.sum(axis=0)[random], p[random]):
        assert stats.binomtest(int(count), len(chosen), one).pvalue > 1e-5
    np.testing.assert_allclose(weights, chosen * (shares / np.where(p > 0, p, 1)), rtol=1e-4)


def test_only_candidates_that_answered_are_selected():
    strategy = ocs(num_candidates=4)
    sizes = [10] * 8
    there = jnp.arange(8) != 3
    draw, select = jax.jit(strategy.candidates), jax.jit(strategy.select)
    for game in range(20):
        key = jax.random.key(game)
        named = np.asarray(draw(key, (), known(sizes, 2, np.zeros(8), 1, there)))
        assert len(set(named.tolist())) == 4 and 3 not in named
        ages = np.where(np.isin(np.arange(8), named), 0, 1)
        answer = select(key, (), known(sizes, 2, np.full(8, 2.0), ages, there))
        assert np.isin(answer.ids[answer.mask], named).all()
        np.testing.assert_allclose(answer.weights[answer.mask], 0.25 / 0.5, rtol=1e-5)  # shares among the candidates


def test_a_norm_that_is_not_finite_or_zero_is_never_selected():
    strategy = ocs()
    inclusion = jax.jit(lambda norms: strategy.inclusion((), known([10] * 5, 2, norms)))
    np.testing.assert_allclose(inclusion(jnp.array([np.nan, np.inf, 1.0, 0.0, 1.0])), [0, 0, 1, 0, 1])
    np.testing.assert_allclose(inclusion(jnp.zeros(5)), 0)


def test_what_it_buys():
    for strategy, who in ((ocs(), ALL), (ocs(num_candidates=5), CANDIDATES)):
        (request,) = strategy.requests
        assert (request.kind, request.who, request.when.in_every_round) == ("update_norm", who, True)


@pytest.mark.parametrize("count,message", [(2, "is below the cohort size 3"), (9, "exceeds the 8 clients")])
def test_the_number_of_candidates_is_checked(count, message):
    with pytest.raises(UserError, match=f"ocs: num_candidates={count} {message}"):
        ocs(num_candidates=count).candidates(jax.random.key(0), (), known([10] * 8, 3, np.ones(8)))


def test_negative_noisy_norms_have_probability_zero():
    now = known([5] * 5, 2, [0.5, -0.4, 0.3, -0.2, 0.1])
    now = now._replace(env=dataclasses.replace(now.env, noise={"update_norm": jnp.ones(5)}))
    inclusion = ocs().inclusion
    assert inclusion is not None
    chances = np.asarray(inclusion((), now))
    assert chances.sum() == pytest.approx(2) and (chances[[1, 3]] == 0).all()
