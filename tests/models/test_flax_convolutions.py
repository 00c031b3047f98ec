"""The convolution that stands in for XLA's: equal to it, in whatever a Flax module asks for, and much faster."""

import contextlib
import time
from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jax import lax

from fedjax_sel.models.layers import faster_convolutions
from fedjax_sel.models.linen import from_linen
from fedjax_sel.models.nnx import from_nnx

KEY = jax.random.key(3)
CASES = [
    # spatial sizes, channels, features, window, options of flax.linen.Conv
    ((9, 8), 2, 3, (3, 3), {}),
    ((9, 8), 20, 18, (3, 3), {}),
    ((12, 13), 16, 5, (3, 3), {"padding": 1}),
    ((9, 8), 16, 5, (3, 3), {"padding": "VALID"}),
    ((9, 8), 16, 5, (3, 3), {"strides": 2}),
    ((9, 8), 3, 4, (3, 3), {"strides": (2, 3), "padding": ((0, 2), (3, 1))}),
    ((9, 8), 3, 4, (5, 2), {"padding": "SAME", "strides": (1, 2)}),
    ((9, 8), 3, 4, (1, 1), {"strides": 2, "use_bias": False}),
    ((9, 8), 17, 4, (3, 3), {"kernel_dilation": 2}),
    ((9, 8), 3, 4, (2, 3), {"kernel_dilation": (3, 2), "strides": 2, "padding": 2}),
    ((9, 8), 16, 4, (3, 3), {"padding": "CIRCULAR"}),
    ((9, 8), 3, 4, (3, 3), {"padding": "REFLECT", "kernel_dilation": 2}),
    ((7, 7), 3, 4, (7, 7), {"padding": "VALID"}),
    ((9,), 3, 4, (3,), {"padding": "CAUSAL", "kernel_dilation": 2}),
    ((4, 5, 6), 2, 3, (3, 2, 3), {"strides": (1, 2, 1)}),
]
LEFT_TO_XLA = [
    ((9, 8), 4, 6, (3, 3), {"feature_group_count": 2}),
    ((9, 8), 3, 4, (3, 3), {"input_dilation": 2, "padding": 1}),
    ((9, 8), 16, 4, (3, 3), {"padding": ((-1, 0), (0, 2))}),
    ((2, 2), 3, 4, (3, 3), {"padding": "VALID"}),  # an empty output
]


@pytest.mark.slow
@pytest.mark.parametrize("sides,channels,features,window,options", CASES + LEFT_TO_XLA)
def test_it_equals_xlas(sides, channels, features, window, options):
    x = jax.random.normal(KEY, (2, 4, *sides, channels))  # two clients
    conv = nn.Conv(features, window, **options)
    variables = jax.vmap(lambda key: conv.init(key, x[0]))(jax.random.split(KEY, 2))

    def output_and_gradient(variables, x):
        output, backward = jax.vjp(conv.apply, variables, x)
        return output, backward(jax.random.normal(jax.random.key(5), output.shape))

    expected = jax.jit(jax.vmap(output_and_gradient))(variables, x)
    first = jax.tree.map(lambda leaf: leaf[0], (variables, x))
    with faster_convolutions():
        ours = jax.jit(jax.vmap(lambda *given: output_and_gradient(*given)))(variables, x)
        alone = jax.jit(conv.apply)(*first)
        shape = jax.eval_shape(conv.apply, *first).shape
    np.testing.assert_allclose(ours[0], expected[0], atol=5e-5)
    np.testing.assert_allclose(alone, expected[0][0], atol=5e-5)
    assert shape == expected[0].shape[1:]
    jax.tree.map(partial(np.testing.assert_allclose, atol=5e-4), ours[1], expected[1])


def operations(function, *arguments):
    return str(jax.make_jaxpr(function)(*arguments))


@pytest.mark.fast_cases(5)
@pytest.mark.parametrize("sides,channels,features,window,options", CASES)
def test_what_is_supported_is_not_left_to_xla(sides, channels, features, window, options):
    x = jnp.zeros((1, *sides, channels))
    conv = nn.Conv(features, window, **options)
    variables = conv.init(KEY, x)
    assert "conv_general_dilated" in operations(conv.apply, variables, x)
    with faster_convolutions():
        assert "conv_general_dilated" not in operations(conv.apply, variables, x)
    assert "conv_general_dilated" in operations(conv.apply, variables, x)  # and all is as it was


class Inner(nn.Module):
    own: object = None

    @nn.compact
    def __call__(self, x):
        return nn.Conv(4, (3, 3), conv_general_dilated=self.own)(nn.remat(nn.Conv)(4, (3, 3))(x))


def test_convolutions_inside_other_modules_and_a_function_of_ones_own():
    x = jnp.zeros((1, 8, 8, 2))

    def own(*arguments, **options):
        return lax.conv_general_dilated(*arguments, **options)

    variables = Inner().init(KEY, x)
    with faster_convolutions():
        assert "conv_general_dilated" not in operations(Inner().apply, variables, x)
        assert operations(Inner(own).apply, variables, x).count(" conv_general_dilated[") == 1


@pytest.mark.slow
def test_it_is_on_in_what_the_simulator_trains():
    class Net(nnx.Module):
        def __init__(self, rngs):
            self.conv = nnx.Conv(2, 3, (3, 3), rngs=rngs)

        def __call__(self, x):
            return self.conv(x)

    x = jax.random.normal(KEY, (1, 8, 8, 2))
    for make, module in ((from_linen, Inner()), (from_nnx, Net)):
        pure = make(module, x)
        state = pure.init(KEY)
        found = operations(lambda state, pure=pure: pure.apply(*state, x, None, True)[0], state)
        assert "conv_general_dilated" not in found


def test_narrow_numbers_stay_narrow():
    x = jax.random.normal(KEY, (2, 9, 8, 16))
    conv = nn.Conv(4, (3, 3), dtype=jnp.bfloat16)
    variables = conv.init(KEY, x)
    expected = conv.apply(variables, x)
    with faster_convolutions():
        ours = conv.apply(variables, x)
    assert ours.dtype == expected.dtype == jnp.bfloat16
    np.testing.assert_allclose(ours.astype(np.float32), expected.astype(np.float32), atol=0.03)


@pytest.mark.slow
def test_a_training_step_with_weights_for_every_client_is_much_faster():
    """A ResNet's 3x3 convolution. Measured 10 to 60 times; what is asked for leaves room for a busy machine."""
    x = jax.random.normal(KEY, (4, 4, 16, 16, 16))
    conv = nn.Conv(16, (3, 3), use_bias=False)
    variables = jax.vmap(conv.init)(jax.random.split(KEY, 4), x)

    def train(variables, x):
        def step(_, variables):
            gradient = jax.grad(lambda v: (conv.apply(v, x) ** 2).mean())(variables)
            return jax.tree.map(lambda w, g: w - 0.1 * g, variables, gradient)

        return lax.fori_loop(0, 3, step, variables)

    seconds = []
    for enabled in (False, True):
        with faster_convolutions() if enabled else contextlib.nullcontext():
            run = jax.jit(jax.vmap(train)).lower(variables, x).compile()
        run(variables, x)
        times = []
        for _ in range(3):
            started = time.perf_counter()
            jax.block_until_ready(run(variables, x))
            times.append(time.perf_counter() - started)
        seconds.append(min(times))
    assert seconds[1] < seconds[0] / 2, seconds
