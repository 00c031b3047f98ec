"""Decompositions under vmap: the same numbers, and no standing still where every core is a device."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_sel.core.jax_settings import enable_x64
from fedjax_sel.numerics import decompositions

N, BATCH = 6, 3


@pytest.fixture
def matrices():
    x = jax.random.normal(jax.random.key(0), (BATCH, N, N))
    return x @ x.swapaxes(1, 2) + jnp.eye(N)


def test_a_batch_is_what_each_matrix_is(matrices):
    factors = jax.jit(jax.vmap(decompositions.cholesky))(matrices)
    np.testing.assert_allclose(factors, np.linalg.cholesky(matrices), rtol=1e-5, atol=1e-5)
    inverses = jax.jit(jax.vmap(decompositions.inverse_of_lower))(factors)
    np.testing.assert_allclose(inverses @ factors, np.broadcast_to(np.eye(N), factors.shape), atol=1e-5)
    values, vectors = jax.jit(jax.vmap(decompositions.eigh))(matrices)
    np.testing.assert_allclose(values, np.linalg.eigvalsh(matrices), rtol=1e-4)
    np.testing.assert_allclose(matrices @ vectors, vectors * values[:, None], atol=1e-4)
    values, rows = jax.jit(jax.vmap(decompositions.right_singular_vectors))(matrices)
    np.testing.assert_allclose(values, np.linalg.svd(matrices, compute_uv=False), rtol=1e-4)
    np.testing.assert_allclose(matrices @ rows.swapaxes(1, 2) @ rows, matrices, atol=1e-4)


def test_on_a_cpu_no_batch_reaches_lapack(matrices):
    for function in (decompositions.cholesky, decompositions.eigh, decompositions.right_singular_vectors):
        program = jax.jit(jax.vmap(function)).lower(matrices).as_text()
        assert f"tensor<{N}x{N}xf32>" in program
        calls = [line for line in program.splitlines() if "lapack_" in line and "custom_call" in line]
        assert calls and not any(f"tensor<{BATCH}x" in line for line in calls)


@pytest.mark.parametrize("apart", [None, 1e-6, 0.0])
@pytest.mark.parametrize("n", [1, 2, 5, 50, 101])
def test_rotations_find_what_lapack_finds(n, apart):
    """Similarities of distinct clients, near-duplicates and duplicates, some of them unavailable."""
    rng = np.random.default_rng(n)
    profiles = rng.normal(size=(n, 16))
    if apart is not None:
        profiles = profiles[np.arange(n) % -(-n // 3)] + apart * profiles
    distances = np.linalg.norm(profiles[:, None] - profiles, axis=2)
    matrix = np.where(rng.random(n) < 0.8, 1 - distances / max(distances.max(), 1), 0.0)
    with enable_x64(True):
        values, rows = jax.jit(decompositions.right_singular_vectors_by_rotations)(matrix)
        values, rows = np.asarray(values), np.asarray(rows)
    exact = np.linalg.svd(matrix, compute_uv=False)[::-1]
    largest = max(exact.max(), 1e-300)
    np.testing.assert_allclose(values, np.where(exact > n * 2.0**-46 * largest, exact, 0), rtol=2e-9, atol=0)
    np.testing.assert_allclose(rows @ rows.T, np.eye(n), atol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(matrix @ rows.T, axis=0), values, atol=n * 2.0**-46 * largest)


def test_rotations_of_what_is_not_finite_end():
    assert not np.isfinite(decompositions.right_singular_vectors_by_rotations(jnp.full((4, 4), jnp.nan))[0]).any()


HUNDRED_PICKS = """
from fedjax_sel import devices
devices.use_every_core()
import numpy as np
from fedjax_sel import models, strategies
from studies import selection_cost
setting = selection_cost.Setting(
    strategies.make("fedcor", warmup=1, interval=1, warmup_steps=20, steps=20),
    models.make("mlp", (4, 4, 1), 3), 3, 100, 10, np.full((1, 300), 20, np.int32),
)
print(selection_cost.measure(setting).rounds)
"""


@pytest.mark.slow
def test_fedcor_with_a_hundred_picks_does_not_stand_still():
    done = subprocess.run([sys.executable, "-c", HUNDRED_PICKS], capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "10", done.stderr
