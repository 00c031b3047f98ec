"""Random selection: the laws of its three variants."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from fedjax_sel import strategies
from fedjax_sel.strategies.base import Env, Information

SIZES = np.array([10, 40, 30, 15, 5])


def cohorts(variant, k=2, count=20_000, available=None, n=5):
    strategy = strategies.make("random", variant=variant)
    sizes = jnp.asarray(np.resize(SIZES, n))
    state = strategy.init(jax.random.key(0), Env(n, k, 10, 2, 1, sizes, sizes / sizes.sum()))
    info = Information("random", {})
    select = jax.jit(jax.vmap(lambda key: strategy.select(key, state, info, jnp.int32(0), available)))
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


@pytest.mark.parametrize("variant", ["uniform-wor", "weighted-wor"])
@pytest.mark.parametrize("k", [1, 4, 5])
def test_distinct_clients(variant, k):
    _, selection = cohorts(variant, k=k, count=300)
    assert all(len(set(ids)) == k for ids in selection.ids)
    assert selection.ids.dtype == np.int32


@pytest.mark.parametrize("variant", ["uniform-wor", "weighted-wor", "md"])
def test_unavailable_clients_do_not_train(variant):
    available = jnp.array([False, True, False, True, False])
    _, selection = cohorts(variant, k=3, count=300, available=available)
    trained = np.where(selection.mask, selection.ids, -1)
    assert set(np.unique(trained)) <= {-1, 1, 3}
    if variant != "md":
        assert (selection.mask.sum(axis=1) == 2).all()
    _, selection = cohorts(variant, k=3, count=10, available=jnp.zeros(5, bool))
    assert not selection.mask.any()
