"""Large fully-connected layers: the plain product and its gradient, of which nothing is written to memory."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from fedjax_sel.models import layers

INPUTS, FEATURES = 2048, 512


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(1,), (layers.FEW_EXAMPLES,), (layers.FEW_EXAMPLES + 1,), (3, 4), (5, 7)], ids=str)
def test_the_product_and_its_gradient_are_the_plain_ones(shape):
    keys = jax.random.split(jax.random.key(0), 3)
    x, kernel = jax.random.normal(keys[0], (*shape, 30)), jax.random.normal(keys[1], (30, 20))
    weights = jax.random.normal(keys[2], (*shape, 20))

    def value_and_gradient(product, x, kernel):
        return jax.value_and_grad(lambda x, kernel: jnp.sum(weights * product(x, kernel)), (0, 1))(x, kernel)

    found = jax.jit(value_and_gradient, static_argnums=0)(layers.transposed_product, x, kernel)
    expected = jax.jit(value_and_gradient, static_argnums=0)(jnp.matmul, x, kernel)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected)):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)
    clients = jnp.stack([kernel, -kernel])
    together = jax.vmap(jax.grad(lambda k: jnp.sum(weights * layers.transposed_product(x, k))))(clients)
    np.testing.assert_allclose(together, jnp.stack([expected[1][1]] * 2), rtol=1e-4, atol=1e-4)


def test_a_layer_is_stored_inputs_first_when_it_is_large_and_begins_with_the_same_weights(monkeypatch):
    def kernel_of(inputs, features):
        params = layers.Dense(features).init(jax.random.key(0), jnp.zeros((1, inputs)))["params"]
        return params["Dense_0"]["kernel"]

    assert kernel_of(INPUTS, FEATURES).shape == (INPUTS, FEATURES)
    assert kernel_of(INPUTS, FEATURES - 1).shape == (FEATURES - 1, INPUTS)
    small = kernel_of(40, 30)
    monkeypatch.setattr(layers, "MIN_WEIGHTS", 1200)
    np.testing.assert_array_equal(kernel_of(40, 30), small.T)


@pytest.mark.parametrize("product,written", [(layers.transposed_product, 1), (jnp.matmul, 2)], ids=["wide", "plain"])
def test_a_step_writes_the_weights_and_not_their_gradient(product, written):
    def train(kernel, x):
        def step(_, kernel):
            return kernel - 0.1 * jax.grad(lambda k: jnp.sum(jnp.tanh(product(x, k))))(kernel)

        return lax.fori_loop(0, 3, step, kernel)

    shapes = jnp.zeros((INPUTS, FEATURES)), jnp.zeros((10, INPUTS))
    text = jax.jit(train).lower(*shapes).compile().as_text()
    body = re.search(r"\n%\S*while\S*body.*?\n}", text, re.DOTALL) or re.search(r"\n%region_0.*?\n}", text, re.DOTALL)
    assert body is not None
    results = re.findall(rf"= f32\[{INPUTS},{FEATURES}\]\S* (\w[\w-]*)\(", body.group())
    assert len([name for name in results if name not in ("get-tuple-element", "parameter", "bitcast")]) == written, (
        results
    )
