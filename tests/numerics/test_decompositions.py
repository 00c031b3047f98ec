"""Decompositions under vmap: the same numbers, and no standing still where every core is a device."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

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
