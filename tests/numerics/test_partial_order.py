"""The first of many items against a sort of all of them, and the laws of the draws that are built on it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from fedjax_sel.numerics import sampling

SPECIAL = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, 2e-38, -2e-38, 3.4e38, -3.4e38, 0.5, 0.5], np.float32)


def numbers(seed, size):
    """Floats of all magnitudes with many ties."""
    rng = np.random.default_rng(seed)
    wide = rng.normal(size=size) * 10.0 ** rng.integers(-30, 30, size)
    return np.where(rng.random(size) < 0.3, rng.choice(SPECIAL, size), wide).astype(np.float32)


def test_words_are_in_the_order_of_numbers():
    values = np.concatenate([numbers(0, 2000), SPECIAL])
    up, down = np.asarray(sampling.ascending(values)), np.asarray(sampling.descending(values))
    i, j = np.random.default_rng(1).integers(0, len(values), (2, 20_000))
    np.testing.assert_array_equal(up[i] < up[j], values[i] < values[j])
    np.testing.assert_array_equal(up[i] == up[j], values[i] == values[j])
    np.testing.assert_array_equal(down[i] < down[j], values[i] > values[j])
    assert (sampling.ascending(jnp.float32([jnp.nan, -jnp.nan])) > up.max()).all()
    assert (up < sampling.LAST).all() and (down < sampling.LAST).all()


def test_a_value_is_that_of_the_sorted_list():
    values = numbers(2, 1001)
    found = jax.jit(jax.vmap(lambda place: sampling.selected_value_at(values, place)))(jnp.arange(1001))
    np.testing.assert_array_equal(found, np.sort(values))


@pytest.mark.parametrize("n,k", [(1, 1), (7, 7), (500, 1), (500, 37), (500, 499)])
def test_the_first_items_are_those_of_a_sort(n, k):
    rng = np.random.default_rng(n + k)
    found = jax.jit(lambda words: (sampling.first(words, k), sampling.among_first(words, k)))
    for _ in range(20):
        high, low = rng.integers(0, 5, n), rng.integers(0, 2**32, n)  # ties in the first word, seldom in the second
        low[rng.random(n) < 0.2] = 2**32 - 1
        words = (jnp.asarray(high, jnp.uint32), jnp.asarray(low.astype(np.uint32)))
        order = np.lexsort((np.arange(n), low, high))
        first, among = found(words)
        np.testing.assert_array_equal(first, order[:k])
        np.testing.assert_array_equal(np.flatnonzero(among), np.sort(order[:k]))


def test_counts_of_none_all_and_more():
    words = (jnp.arange(10, dtype=jnp.uint32)[::-1],)
    for count, expected in ((0, 0), (10, 10), (99, 10)):
        assert np.asarray(jax.jit(sampling.among_first)(words, count)).sum() == expected


@pytest.fixture
def many(monkeypatch):
    """Every number of items counts as many."""
    monkeypatch.setattr(sampling, "SORTED", 0)
    monkeypatch.setattr(sampling, "_BLOCK", 2)


def drawn(function, count=20_000):
    return np.asarray(jax.jit(jax.vmap(function))(jax.random.split(jax.random.key(5), count)))


def test_top_k_of_many(many):
    scores = jnp.float32([3, 1, 2, 2, 2, -jnp.inf])
    picked = drawn(lambda key: sampling.top_k(key, scores, 3))
    assert (picked[:, 0] == 0).all()
    pairs = np.unique(picked[:, 1:], axis=0, return_counts=True)
    assert len(pairs[0]) == 6 and stats.chisquare(pairs[1]).pvalue > 1e-4
    everything = drawn(lambda key: sampling.top_k(key, scores, 6), 100)
    assert (everything[:, 4] == 1).all() and (everything[:, 5] == 5).all()


def test_uniform_draws_from_many(many):
    pairs = np.unique(drawn(lambda key: sampling.uniform_without_replacement(key, 5, 2)), axis=0, return_counts=True)
    assert len(pairs[0]) == 20 and stats.chisquare(pairs[1]).pvalue > 1e-4
    there = jnp.array([True, False, True, True, False])
    picked = drawn(lambda key: sampling.uniform_without_replacement(key, 5, 4, there), 500)
    assert (np.sort(picked[:, :3], axis=1) == [0, 2, 3]).all()


@pytest.mark.slow
def test_weighted_draws_from_many(many):
    weights = np.array([0.5, 0.0, 0.15, 0.3, 0.05])
    picked = drawn(lambda key: sampling.without_replacement(key, jnp.float32(weights), 2))
    for first in (0, 2, 3, 4):
        share = (picked[:, 0] == first).mean()
        assert abs(share - weights[first]) < 4 * np.sqrt(weights[first] / len(picked))
        second = np.bincount(picked[picked[:, 0] == first, 1], minlength=5)
        law = np.where(np.arange(5) == first, 0, weights)
        assert second[law == 0].sum() == 0
        assert stats.chisquare(second[law > 0], law[law > 0] / law.sum() * second.sum()).pvalue > 1e-4
    there = jnp.array([True, True, True, False, False])
    picked = drawn(lambda key: sampling.without_replacement(key, jnp.float32(weights), 4, there), 500)
    assert (np.sort(picked[:, :2], axis=1) == [0, 2]).all() and (picked[:, 2] == 1).all()


def test_draws_with_replacement_from_many(many):
    weights = np.array([0.5, 0.0, 0.15, 0.3, 0.05])
    picked = drawn(lambda key: sampling.with_replacement(key, jnp.float32(weights), 2))
    counts = np.zeros((5, 5))
    np.add.at(counts, tuple(picked.T), 1)
    law = np.outer(weights, weights)
    assert counts[law == 0].sum() == 0
    assert stats.chisquare(counts[law > 0], law[law > 0] * len(picked)).pvalue > 1e-4


def test_among_largest_of_many_breaks_ties_at_random(many):
    scores = jnp.float32([2, 5, 2, 2, 1])
    among = drawn(lambda key: sampling.among_largest(key, scores, 2))
    assert (among.sum(axis=1) == 2).all() and among[:, 1].all() and not among[:, 4].any()
    assert stats.chisquare(among[:, [0, 2, 3]].sum(axis=0)).pvalue > 1e-4
