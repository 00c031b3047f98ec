"""Cyclic participation: turns by hand, and the law of a cohort by enumeration."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from fedjax_sel.errors import UserError
from fedjax_sel.strategies.cyclic import cyclic
from tests.strategies import hooks
from tests.strategies.hooks import env_of, now_of

DRAWS = 20_000


def started(strategy, n, k, seed=0):
    return hooks.started(strategy, now_of(env_of([5] * n, k)), seed)


def drawing(strategy, state, k, available=None):
    """Return a function from a round to its cohorts."""
    env = env_of([5] * len(state.groups), k)
    select = jax.vmap(lambda key, round: strategy.select(key, state, now_of(env, None, round, available)), (0, None))
    return lambda round: jax.jit(select)(jax.random.split(jax.random.key(1), DRAWS), jnp.int32(round))


@pytest.mark.parametrize("n,m,sizes", [(12, 4, [3, 3, 3, 3]), (11, 3, [3, 4, 4]), (4, 4, [1, 1, 1, 1])])
def test_groups_are_random_and_of_equal_size(n, m, sizes):
    strategy = cyclic(num_groups=m)
    groups = np.stack([started(strategy, n, 1, seed).groups for seed in range(400)])
    assert all(sorted(np.bincount(one, minlength=m)) == sizes for one in groups)
    np.testing.assert_allclose(groups.mean(axis=0), groups[0].mean(), atol=5 * m / 2 / np.sqrt(400))


def test_many_groups_of_many_clients_have_equal_sizes():
    """N times the number of groups exceeds 32 bits."""
    groups = np.bincount(started(cyclic(num_groups=25_000), 100_000, 1).groups)
    assert groups.tolist() == [4] * 25_000


def test_groups_take_turns_and_a_cohort_is_uniform_within_its_group():
    strategy = cyclic(num_groups=3)
    state = started(strategy, 12, 2)._replace(groups=jnp.int32([0, 1, 2] * 4))
    cohorts_of = drawing(strategy, state, 2)
    for round in (0, 1, 2, 3, 7):
        found = cohorts_of(round)
        assert np.asarray(found.mask).all() and found.weights is None
        pairs = list(itertools.combinations(range(round % 3, 12, 3), 2))
        cohorts, counts = np.unique(np.sort(found.ids, axis=1), axis=0, return_counts=True)
        assert [tuple(cohort) for cohort in cohorts.tolist()] == pairs
        assert stats.chisquare(counts).pvalue > 1e-4


def test_the_next_groups_fill_a_group_without_enough_clients():
    """Group 1 has one available client, and group 2, the next one, has none."""
    strategy = cyclic(num_groups=3)
    state = started(strategy, 6, 2)._replace(groups=jnp.int32([0, 0, 1, 1, 2, 2]))
    available = jnp.array([True, True, True, False, False, False])
    ids, counts = np.unique(drawing(strategy, state, 2, available)(1).ids, return_counts=True)
    assert ids.tolist() == [0, 1, 2] and counts[2] == DRAWS
    assert stats.binomtest(int(counts[0]), DRAWS).pvalue > 1e-4
    now = now_of(env_of([5] * 6, 2), None, 1, available.at[:2].set(False))
    alone = strategy.select(jax.random.key(0), state, now)
    assert alone.ids[0] == 2 and alone.mask.tolist() == [True, False]


def test_more_groups_than_clients_are_rejected():
    with pytest.raises(UserError, match="num_groups=5 exceeds the 4 clients; give at most 4"):
        started(cyclic(), 4, 1)
