"""Numerical functions are pure: equal batched and alone; they reject arrays of other shapes."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_sel.numerics import clustering, facility_location, gaussian_process, kdpp, sampling

N, K, D, S = 9, 4, 3, 5
RNG = np.random.default_rng(0)
ROWS = jnp.asarray(RNG.normal(size=(S, N, D)), jnp.float32)  # S problems of N points
KERNELS = jnp.exp(-jnp.square(ROWS[:, :, None] - ROWS[:, None]).sum(-1)).astype(jnp.float32)
SHARES = jnp.asarray(RNG.dirichlet(np.ones(N), size=S), jnp.float32)
NOISE = 0.3


def drawn(key, kernel):
    return kdpp.sample(key, *kdpp.eigendecompose(kernel), K)


def picked(key, rows, shares):
    return gaussian_process.select_greedily(rows.T, shares, jnp.ones(N), K, NOISE, key)


CASES = {
    "kdpp.sample": (drawn, KERNELS),
    "kdpp.inclusion": (lambda key, kernel: kdpp.inclusion_probabilities(*kdpp.eigendecompose(kernel), K), KERNELS),
    "gaussian_process.select": (picked, ROWS, SHARES),
    "facility_location": (lambda key, kernel: facility_location.select_greedily(1 - kernel, K, key), KERNELS),
    "clustering": (lambda key, kernel: clustering.cut_into(clustering.linkage(1 - kernel), K), KERNELS),
    "without replacement": (lambda key, shares: sampling.without_replacement(key, shares, K), SHARES),
    "systematic": (lambda key, shares: sampling.systematic(key, K * shares / shares.sum(), K), SHARES),
}


@pytest.mark.parametrize("name", CASES)
def test_alone_and_in_a_batch(name):
    function, *inputs = CASES[name]
    keys = jax.random.split(jax.random.key(1), S)
    together = jax.jit(jax.vmap(function))(keys, *inputs)
    one = jax.jit(function)
    alone = [one(*(each[s] for each in (keys, *inputs))) for s in range(S)]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *alone)
    chex.assert_trees_all_close(together, stacked, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    "call",
    [
        lambda: kdpp.eigendecompose(ROWS[0]),
        lambda: kdpp.sample(jax.random.key(0), SHARES[0], ROWS[0], K),
        lambda: kdpp.inclusion_probabilities(SHARES[0, :-1], KERNELS[0], K),
        lambda: gaussian_process.select_greedily(ROWS[0], SHARES[0], SHARES[0], K, NOISE),  # not transposed
        lambda: gaussian_process.posterior_gains(ROWS[0], SHARES[0], SHARES[0], jnp.arange(K), NOISE),
        lambda: gaussian_process.fit_embeddings(ROWS[0].T, SHARES.T, jnp.ones(S), NOISE, 1, 0.1),
        lambda: gaussian_process.posterior(SHARES[0], ROWS[0], 0, 1.0),
        lambda: facility_location.select_greedily(ROWS[0], K),
        lambda: clustering.linkage(ROWS[0]),
    ],
)
def test_arrays_of_other_shapes_are_rejected(call):
    with pytest.raises(AssertionError, match="assert_shape failed"):
        call()
