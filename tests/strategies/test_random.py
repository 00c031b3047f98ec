"""Random selection: the laws of its variants."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from fedjax_sel import strategies
from tests.strategies.hooks import env_of, now_of

SIZES = np.array([10, 40, 30, 15, 5])


def cohorts(variant, k=2, count=20_000, available=None, n=5):
    strategy = strategies.make("random", variant=variant)
    now = now_of(env_of(np.resize(SIZES, n), k), None, 0, available)
    select = jax.jit(jax.vmap(lambda key: strategy.select(key, (), now)))
    return strategy, jax.device_get(select(jax.random.split(jax.random.key(1), count)))


def test_uniform_inclusion():
    _, selection = cohorts("uniform-wor")
    assert selection.weights is None and selection.mask.all()
    counts = np.bincount(selection.ids.reshape(-1), minlength=5)
    assert stats.chisquare(counts).pvalue > 1e-4


def test_multinomial_draws_have_the_clients_shares_and_weights_count_repetitions():
    strategy, selection = cohorts("md", k=3)
    assert strategy.with_replacement
    counts = np.bincount(selection.ids.reshape(-1), minlength=5)
    assert stats.chisquare(counts, SIZES / SIZES.sum() * counts.sum()).pvalue > 1e-4
    shares, pairs = SIZES / SIZES.sum(), np.bincount(selection.ids[:, 0] * 5 + selection.ids[:, 1], minlength=25)
    assert stats.chisquare(pairs, np.outer(shares, shares).ravel() * pairs.sum()).pvalue > 1e-4  # independent
    np.testing.assert_allclose(selection.weights.sum(axis=1), 1.0, rtol=1e-6)
    for ids, weights, mask in zip(selection.ids[:200], selection.weights[:200], selection.mask[:200]):
        assert sorted(ids[mask]) == sorted(set(ids))
        for client, weight in zip(ids[mask], weights[mask]):
            assert weight == pytest.approx((ids == client).sum() / 3)
        assert (weights[~mask] == 0).all()
    # E sum of weights of a client = p_k: the expected model is the weighted mean of all
    expected = np.zeros(5)
    np.add.at(expected, selection.ids, selection.weights)
    np.testing.assert_allclose(expected / len(selection.ids), SIZES / SIZES.sum(), atol=0.01)


def test_weighted_first_pick_has_the_clients_shares():
    strategy, selection = cohorts("weighted-wor")
    assert not strategy.with_replacement
    counts = np.bincount(selection.ids[:, 0], minlength=5)
    assert stats.chisquare(counts, SIZES / SIZES.sum() * counts.sum()).pvalue > 1e-4


@pytest.mark.fast_cases(2)
@pytest.mark.parametrize("k,expected", [
    (1, [0.1, 0.4, 0.3, 0.15, 0.05]), (2, [0.2, 0.8, 0.6, 0.3, 0.1]),
    (3, [1 / 3, 1, 1, 0.5, 1 / 6]), (4, [2 / 3, 1, 1, 1, 1 / 3]), (5, [1, 1, 1, 1, 1]),
])  # fmt: skip
def test_sampling_by_size_without_replacement(k, expected):
    """min(1, c p_k): for K = 3, clients 1 and 2 are certain, and the others share one place by 10, 15 and 5."""
    strategy, selection = cohorts("pps-wor", k=k)
    counts = np.bincount(selection.ids.reshape(-1), minlength=5)
    np.testing.assert_allclose(counts / len(selection.ids), expected, atol=0.015)
    weights, shares = np.zeros(5), SIZES / SIZES.sum()
    np.add.at(weights, selection.ids, selection.weights)
    np.testing.assert_allclose(weights / len(selection.ids), shares, atol=0.01)
    np.testing.assert_allclose(selection.weights, (shares / expected)[selection.ids], rtol=1e-5)
    np.testing.assert_allclose(selection.weights.sum(axis=1), 1.0, rtol=1e-5)
    np.testing.assert_allclose(strategy.inclusion((), now_of(env_of(SIZES, k))), expected, rtol=1e-5)


def test_pairs_of_sampling_by_size():
    """Systematic sampling in random order, by enumeration of the orders."""
    _, selection = cohorts("pps-wor", k=2)
    law = {}
    for order in itertools.permutations(range(5)):
        ends = np.cumsum(2 * SIZES[list(order)] / SIZES.sum())
        cuts = np.unique(np.concatenate([[0.0, 1.0], ends % 1]).round(9))
        for low, high in itertools.pairwise(cuts):
            pair = tuple(sorted(order[i] for i in np.searchsorted(ends, (low + high) / 2 + np.arange(2))))
            law[pair] = law.get(pair, 0.0) + (high - low) / 120
    pairs, counts = np.unique(np.sort(selection.ids, axis=1), axis=0, return_counts=True)
    found = {tuple(pair): int(count) for pair, count in zip(pairs.tolist(), counts)}
    assert set(found) <= set(law)
    expected = [q * len(selection.ids) for q in law.values()]
    assert stats.chisquare([found.get(pair, 0) for pair in law], expected).pvalue > 1e-4


@pytest.mark.parametrize("variant", ["uniform-wor", "weighted-wor", "pps-wor"])
@pytest.mark.parametrize("k", [1, 4, 5])
def test_distinct_clients(variant, k):
    _, selection = cohorts(variant, k=k, count=300)
    assert all(len(set(ids)) == k for ids in selection.ids)
    assert selection.ids.dtype == np.int32


@pytest.mark.parametrize("variant", ["uniform-wor", "weighted-wor", "md", "pps-wor"])
def test_unavailable_clients_do_not_train(variant):
    available = jnp.array([False, True, False, True, False])
    _, selection = cohorts(variant, k=3, count=300, available=available)
    trained = np.where(selection.mask, selection.ids, -1)
    assert set(np.unique(trained)) <= {-1, 1, 3}
    if variant != "md":
        assert (selection.mask.sum(axis=1) == 2).all()
    _, selection = cohorts(variant, k=3, count=10, available=jnp.zeros(5, bool))
    assert not selection.mask.any()
