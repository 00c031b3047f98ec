"""Draws of K of N against enumeration of their laws."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from fedjax_sel.numerics import sampling

DRAWS = 40_000


def draws(function, seed=0, count=DRAWS):
    return np.asarray(jax.jit(jax.vmap(function))(jax.random.split(jax.random.key(seed), count)))


def plackett_luce(weights, picks):
    """Probability of an ordered draw without replacement, in float64."""
    left, probability = weights.sum(), 1.0
    for item in picks:
        probability *= weights[item] / left
        left -= weights[item]
    return probability


def chi_square(picked, n, law):
    """p-value of ordered draws against a law over all ordered draws."""
    orders = list(itertools.permutations(range(n), picked.shape[1]))
    codes = picked @ n ** np.arange(picked.shape[1])
    counts = np.array([(codes == np.array(order) @ n ** np.arange(picked.shape[1])).sum() for order in orders])
    expected = np.array([law(order) for order in orders]) * len(picked)
    assert counts[expected == 0].sum() == 0
    return stats.chisquare(counts[expected > 0], expected[expected > 0]).pvalue


def test_weighted_draws_follow_plackett_and_luce():
    weights = np.array([0.5, 0.1, 0.05, 0.3, 0.05])
    picked = draws(lambda key: sampling.without_replacement(key, jnp.float32(weights), 2))
    assert chi_square(picked, 5, lambda order: plackett_luce(weights, order)) > 1e-4


def test_items_of_weight_zero_fill_up_uniformly_and_unavailable_ones_come_last():
    weights = jnp.array([0.0, 2.0, 0.0, 0.0, 1.0])
    picked = draws(lambda key: sampling.without_replacement(key, weights, 3))
    assert (np.sort(picked[:, :2], axis=1) == [1, 4]).all()
    fill = np.bincount(picked[:, 2], minlength=5)[[0, 2, 3]]
    assert stats.chisquare(fill).pvalue > 1e-4
    available = jnp.array([True, False, True, False, False])
    picked = draws(lambda key: sampling.without_replacement(key, weights, 3, available), count=2000)
    assert (np.sort(picked[:, :2], axis=1) == [0, 2]).all()


def test_uniform_draws():
    picked = draws(lambda key: sampling.uniform_without_replacement(key, 5, 2))
    assert chi_square(picked, 5, lambda order: 1 / 20) > 1e-4
    available = jnp.array([True, False, True, True, False])
    picked = draws(lambda key: sampling.uniform_without_replacement(key, 5, 2, available))
    assert chi_square(picked, 5, lambda order: 1 / 6 * all(available[i] for i in order)) > 1e-4


def test_equal_scores_are_ranked_at_random_and_larger_ones_first():
    scores = jnp.array([1.0, 3.0, 1.0, 1.0, -jnp.inf])
    picked = draws(lambda key: sampling.top_k(key, scores, 2))
    assert (picked[:, 0] == 1).all()
    assert stats.chisquare(np.bincount(picked[:, 1], minlength=5)[[0, 2, 3]]).pvalue > 1e-4
    assert np.bincount(picked[:, 1], minlength=5)[4] == 0


@pytest.mark.slow
@pytest.mark.parametrize("size", [8, sampling.SORTED + 1])
def test_zero_and_minus_zero_are_equal(size):
    scores = jnp.tile(jnp.array([0.0, -0.0], jnp.float32), size)[:size]
    keys = jax.random.split(jax.random.key(0), 60)
    chosen = jax.vmap(lambda key: sampling.top_k(key, scores, 2))(keys)
    assert 0.3 < (np.asarray(chosen) % 2).mean() < 0.7


@pytest.mark.parametrize("shift", [0.0, 3e7, -1e30])
def test_draws_by_logits_keep_their_law_wherever_these_lie(shift):
    logits = jnp.float32([0.0, 1.0, 2.0, 0.0]) * (shift == 0) + shift
    among = jnp.array([True, True, True, False])
    keys = jax.random.split(jax.random.key(1), 6000)
    first = np.asarray(jax.vmap(lambda key: sampling.by_logits(key, logits, 2, among))(keys))[:, 0]
    expected = np.exp([0.0, 1.0, 2.0]) if shift == 0 else np.ones(3)
    assert stats.chisquare(np.bincount(first, minlength=3), 6000 * expected / expected.sum()).pvalue > 1e-4


@pytest.mark.slow
def test_of_many_items_the_same_are_drawn_by_logits():
    scores = jax.random.normal(jax.random.key(0), (sampling.SORTED + 1,)) * 1e6
    among = jnp.arange(sampling.SORTED + 1) % 3 != 0
    found = sampling.by_logits(jax.random.key(1), scores, 5, among)
    np.testing.assert_array_equal(found, jnp.argsort(jnp.where(among, -scores, jnp.inf))[:5])  # no noise is so large
    infinite = jnp.array([jnp.inf, 1.0, -jnp.inf])
    assert sampling.by_logits(jax.random.key(1), infinite, 3, jnp.ones(3, bool)).tolist() == [0, 1, 2]


def test_first_occurrence():
    np.testing.assert_array_equal(
        sampling.first_occurrence(jnp.array([4, 2, 4, 4, 2, 7])), [True, True, False, False, False, True]
    )


def conditional_law(probabilities, places):
    """Return the probability of each subset under independent draws, given at most `places` items."""
    law = {
        bits: np.prod(np.where(bits, probabilities, 1 - probabilities))
        for bits in itertools.product((False, True), repeat=len(probabilities))
        if sum(bits) <= places
    }
    return {bits: chance / sum(law.values()) for bits, chance in law.items()}


@pytest.mark.parametrize("places", [1, 2, 5])
def test_independent_draws_follow_their_conditional_law(places):
    probabilities = np.array([0.5, 0.1, 0.0, 0.35, 1.0 if places > 2 else 0.7])

    def draw(key):
        ids, mask = sampling.independent(key, jnp.float32(probabilities), places)
        return jnp.zeros((5,), bool).at[ids].max(mask), mask.sum()

    keys = jax.random.split(jax.random.key(0), DRAWS)
    drawn, counts = map(np.asarray, jax.jit(jax.vmap(draw))(keys))
    assert (drawn.sum(axis=1) == counts).all()
    law = conditional_law(probabilities, places)
    codes = drawn @ 2 ** np.arange(5)
    observed = np.array([(codes == np.array(bits) @ 2 ** np.arange(5)).sum() for bits in law])
    assert observed.sum() == DRAWS
    expected = np.array(list(law.values())) * DRAWS
    assert observed[expected == 0].sum() == 0
    assert stats.chisquare(observed[expected > 0], expected[expected > 0]).pvalue > 1e-4


@pytest.mark.parametrize("n,k", [(30, 1), (40, 3), (100, 10), (1000, 100)])
def test_the_places_change_independent_draws_by_less_than_the_bound(n, k):
    """d = e^-K (e K / M)^M bounds the rejected mass, and (1 - d) p_i <= inclusion <= p_i; by dynamic programming."""
    places = sampling.independent_places(n, k)
    bound = np.exp(-k + places * (1 + np.log(k / places)))
    assert bound <= {1: 0.018, 10: 0.0022, 100: 0.0009}.get(k, 1.0)
    rng = np.random.default_rng(k)
    for spread in (0.0, 2.0):
        probabilities = np.exp(spread * rng.normal(size=n))
        for _ in range(50):
            probabilities = np.minimum(1.0, probabilities * k / probabilities.sum())

        def counts(p):
            law = np.eye(1, n + 1)[0]
            for one in p:
                law[1:], law[0] = law[1:] * (1 - one) + law[:-1] * one, law[0] * (1 - one)
            return law

        kept = counts(probabilities)[: places + 1].sum()
        assert 1 - kept <= bound
        for item in (0, int(probabilities.argmax()), int(probabilities.argmin())):
            inclusion = counts(np.delete(probabilities, item))[:places].sum() / kept  # over p_i
            assert 1 - bound <= inclusion <= 1 + 1e-12


def test_places_of_independent_draws():
    rule = {(100, 1): 5, (100, 4): 12, (100, 10): 23, (20, 10): 20, (10**6, 100): 140}
    assert {sizes: sampling.independent_places(*sizes) for sizes in rule} == rule


@pytest.mark.parametrize("k", [1, 3, 7, 8])
def test_capped_proportional_probabilities(k):
    """p = min(1, c u) with the stated sum; the optimality is tested with the strategy `ocs`."""
    sizes = np.exp(3 * np.random.default_rng(0).normal(size=(100, 8))).astype(np.float32)
    sizes[:50, :3] = 0
    found = np.asarray(jax.jit(jax.vmap(lambda u: sampling.capped_proportional(u, k)))(sizes))
    assert ((found == 0) == (sizes == 0)).all() and found.max() <= 1
    np.testing.assert_allclose(found.sum(axis=1), np.minimum(k, (sizes > 0).sum(axis=1)), rtol=1e-5)
    for p, u in zip(found, sizes):
        factors = p[(p < 1) & (u > 0)] / u[(p < 1) & (u > 0)]
        np.testing.assert_allclose(factors, factors.mean() if len(factors) else 0, rtol=1e-5)
        assert not len(factors) or (u[p == 1] * factors.mean() >= 1 - 1e-5).all()


@pytest.mark.slow
def test_independent_draws_resolve_small_probabilities():
    probability, n, repeats = 2.0**-30, 2**22, 2**4
    draws = jax.jit(lambda key: sampling.independent(key, jnp.full((n,), probability), 100)[1].sum())
    total = sum(int(draws(key)) for key in jax.random.split(jax.random.key(3), repeats))
    assert total <= 3  # 0.06 are expected; 8 with uniform numbers of 23 bits
