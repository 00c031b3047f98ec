"""Weights that are stepped in place: nothing changes but that no copies are made."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from fedjax_sel.training import client

INPUTS, HIDDEN, STEPS = 40, 24, 3


def train(waits, weights, x):
    """A few steps of two layers."""

    def loss(weights):
        return jnp.sum(jnp.tanh(jnp.tanh(x @ weights[0]) @ weights[1]) ** 2)

    def step(_, weights):
        gradient = jax.grad(loss)(weights)
        rate = client.depend_on(jnp.float32(0.1), gradient) if waits else jnp.float32(0.1)
        return jax.tree.map(lambda w, g: w - rate * g, weights, gradient)

    return lax.fori_loop(0, STEPS, step, weights)


@pytest.fixture
def arguments():
    keys = jax.random.split(jax.random.key(0), 3)
    return (
        (jax.random.normal(keys[0], (INPUTS, HIDDEN)), jax.random.normal(keys[1], (HIDDEN, 7))),
        jax.random.normal(keys[2], (5, INPUTS)),
    )


def copies(waits, arguments):
    """Of the second layer's weights, in the whole program."""
    program = jax.jit(train, static_argnums=0).lower(waits, *arguments).compile().as_text()
    return len(re.findall(rf"f32\[{HIDDEN},7\]\S* copy\(", program))


def test_the_only_copy_is_that_of_what_the_loop_begins_with(arguments):
    assert copies(False, arguments) == 2, "XLA copies no more by itself: buffer_reuse.py may go"
    assert copies(True, arguments) == 1


def test_the_weights_are_the_same_to_the_bit(arguments):
    for waiting, plain in zip(*(jax.jit(train, static_argnums=0)(waits, *arguments) for waits in (True, False))):
        np.testing.assert_array_equal(waiting, plain)


@pytest.mark.parametrize("value", [0.1, -0.0, np.inf, np.nan, 1e-42])
@pytest.mark.parametrize("other", [-1.0, 3.5, np.nan, -np.inf])
def test_a_value_is_what_it_was_whatever_it_waits_for(value, other):
    tree = {"one": jnp.full((2, 3), other, jnp.bfloat16), "two": jnp.full((), other)}
    found = jax.jit(client.depend_on)(jnp.float32(value), tree)
    np.testing.assert_array_equal(np.asarray(found).view(np.uint32), np.float32(value).view(np.uint32))


def test_a_parameter_without_numbers_delays_nothing():
    assert client.depend_on(jnp.float32(0.5), {"none": jnp.zeros((0, 3)), "some": jnp.ones(2)}) == 0.5
