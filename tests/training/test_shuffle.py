"""The order in which a client takes its data: a bijection, and as good as uniform."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from fedjax_sel.training import schedule


def orders(size, count, seed=0):
    def one(key, n):
        return schedule.position(schedule.order(key, n), jnp.arange(size), n)

    many = jax.jit(jax.vmap(one, in_axes=(0, None)))
    return np.asarray(many(jax.random.split(jax.random.key(seed), count), jnp.int32(size)))


@pytest.mark.fast_cases(4)
@pytest.mark.parametrize("size", [1, 2, 3, 63, 64, 65, 600, 4099])
def test_every_example_once(size):
    assert (np.sort(orders(size, 20), axis=1) == np.arange(size)).all()


@pytest.mark.slow
def test_all_orders_of_three_and_four_are_equally_likely():
    for size, total in ((3, 6), (4, 24)):
        _, counts = np.unique(orders(size, 48_000) @ size ** np.arange(size), return_counts=True)
        assert len(counts) == total
        assert stats.chisquare(counts).pvalue > 1e-4


@pytest.mark.parametrize("size", [10, 48])
def test_single_positions_pairs_and_neighbors_are_uniform(size):
    drawn = orders(size, 40_000)
    for index in (0, 1, size // 2, size - 1):
        assert stats.chisquare(np.bincount(drawn[:, index], minlength=size)).pvalue > 1e-5
    for first, second in ((0, 1), (0, size - 1), (3, 4)):
        pairs = np.bincount(drawn[:, first] * size + drawn[:, second], minlength=size**2).reshape(size, size)
        assert (np.diag(pairs) == 0).all()
        assert stats.chisquare(pairs[~np.eye(size, dtype=bool)]).pvalue > 1e-5
    steps = np.bincount((drawn[:, 1] - drawn[:, 0]) % size, minlength=size)
    assert stats.chisquare(steps[1:]).pvalue > 1e-5


def test_a_position_alone_equals_the_same_position_of_the_whole_order():
    order = schedule.order(jax.random.key(3), jnp.int32(50))
    whole = schedule.position(order, jnp.arange(50), jnp.int32(50))
    for index in (0, 17, 49):
        assert schedule.position(order, jnp.int32(index), jnp.int32(50)) == whole[index]
