"""Float64 inside programs of 32-bit types: what goes in, and what a loop over replicates makes of it."""

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_sel.core.jax_settings import enable_x64
from fedjax_sel.numerics import decompositions, kdpp


def test_two_floats_hold_forty_eight_bits():
    numbers = np.random.default_rng(0).normal(size=1000) * 10.0 ** np.arange(-10, 10).repeat(50)
    with enable_x64(True):
        rounded, rest = decompositions.split(jnp.asarray(numbers))
        assert rounded.dtype == rest.dtype == np.float32
        back = decompositions.joined(rounded, rest)
        assert back.dtype == np.float64
        np.testing.assert_allclose(back, numbers, rtol=2.0**-48, atol=0)
    np.testing.assert_array_equal(rounded, numbers.astype(np.float32))


def test_a_program_of_32_bit_types_decomposes_in_float64():
    """Under scan, cond and vmap, with constants of every kind on the way."""
    matrices = np.random.default_rng(0).normal(size=(3, 6, 6))
    matrices = matrices + matrices.swapaxes(1, 2)
    matrices[:, 5], matrices[:, :, 5] = matrices[:, 4] * (1 + 1e-10), matrices[:, :, 4] * (1 + 1e-10)
    available = np.ones((3, 6), bool)
    available[1, 2] = False
    with enable_x64(True):
        parts = jax.device_get(decompositions.split(jnp.asarray(matrices)))

    def eigenvalues(rounded, rest, available):
        def decompose():
            with enable_x64(True):
                values, _ = kdpp.eigendecompose_subset(decompositions.joined(rounded, rest), available)
                return values.astype(jnp.float32)

        return jax.lax.cond(available.any(), decompose, lambda: jnp.zeros(6))

    def step(count, _):
        return count + 1.0, jax.vmap(eigenvalues)(*parts, available)

    count, found = jax.jit(lambda: jax.lax.scan(step, 0.0, length=2))()
    assert count.dtype == found.dtype == np.float32
    with enable_x64(True):
        held = np.asarray(decompositions.joined(*map(jnp.asarray, parts)))
    exact = np.sort(np.linalg.svd(np.where(available[:, None], held, 0.0), compute_uv=False) ** 2)
    np.testing.assert_allclose(found[1], exact, rtol=1e-4, atol=1e-28)
