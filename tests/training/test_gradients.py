"""The gradient of a batch is the same in one piece and in many."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_sel.training import client

BATCH, INPUTS = 10, 6
PARAMS = {"w": jax.random.normal(jax.random.key(0), (INPUTS,)), "b": jnp.ones(())}
EXAMPLES = {
    "x": jax.random.normal(jax.random.key(1), (BATCH, INPUTS)),
    "y": jnp.arange(BATCH, dtype=jnp.float32),
    "keep": jax.random.bernoulli(jax.random.key(2), 0.5, (BATCH, INPUTS)),
}


def losses_of(params, examples):
    x = jnp.where(examples["keep"], examples["x"], 0.0)
    return (jnp.tanh(x @ params["w"] + params["b"]) - examples["y"]) ** 2


def passed(params, examples):
    """Their losses, and nothing that the pass carries on."""
    return losses_of(params, examples), ()


@pytest.mark.fast_cases(2)
@pytest.mark.parametrize("counting", [10, 7, 3, 1, 0])
@pytest.mark.parametrize("micro_batch", [1, 3, 4, 5, 9, 10, 100])
def test_pieces_add_up_to_the_gradient_of_the_mean_loss(micro_batch, counting):
    counts = jnp.arange(BATCH) < counting
    found, losses, _ = jax.jit(client.batch_gradient, static_argnums=(0, 4))(
        passed, PARAMS, EXAMPLES, counts, micro_batch
    )
    those = jax.tree.map(lambda leaf: leaf[:counting], EXAMPLES)
    expected = jax.grad(lambda params: losses_of(params, those).sum() / max(counting, 1))(PARAMS)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5), found, expected)
    assert losses.shape == (BATCH,)
    # A prediction may be rounded otherwise by 6e-8, and a loss of 8e-6 is the square of a difference of 3e-3.
    np.testing.assert_allclose(losses[:counting], losses_of(PARAMS, those), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("counting,calls", [(10, 4), (7, 3), (1, 1), (0, 0)])
def test_a_piece_in_which_nothing_counts_is_not_computed(counting, calls):
    seen = []

    def watched(params, examples):
        jax.debug.callback(lambda: seen.append(1))
        return passed(params, examples)

    jax.block_until_ready(client.batch_gradient(watched, PARAMS, EXAMPLES, jnp.arange(BATCH) < counting, 3))
    jax.effects_barrier()
    assert len(seen) == calls
