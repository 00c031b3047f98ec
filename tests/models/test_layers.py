"""Layers against XLA's own convolution and pooling; initializers and dropout against their laws."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from fedjax_sel import models
from fedjax_sel.errors import UserError
from fedjax_sel.models import layers

SMALL = [(5, 1, 20, 12, 2), (3, 4, 7, 9, 2), (3, 16, 7, 9, 2), (3, 20, 5, 6, 2), (3, 16, 2, 3, 2), (1, 2, 3, 4, 2)]


@pytest.mark.slow
@pytest.mark.parametrize("size,channels,features,side,batch", SMALL)
def test_a_convolution_equals_xlas(size, channels, features, side, batch):
    x = jax.random.normal(jax.random.key(0), (batch, side, side, channels))
    conv = layers.Conv(features, size)
    params = conv.init(jax.random.key(1), x)["params"]["Dense_0"]["Dense_0"]
    # inputs go over columns of the window, then rows, then channels
    kernel = params["kernel"].T.reshape(size, size, channels, features).transpose(1, 0, 2, 3)

    def ours(kernel, x):
        return conv.apply({"params": {"Dense_0": {"Dense_0": {"kernel": kernel, "bias": params["bias"]}}}}, x)

    def xlas(kernel, x):
        out = lax.conv_general_dilated(x, kernel, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        return out + params["bias"]

    np.testing.assert_allclose(ours(params["kernel"], x), xlas(kernel, x), atol=2e-5)
    weights = jax.random.normal(jax.random.key(2), ours(params["kernel"], x).shape)
    mine, mine_x = jax.grad(lambda k, x: (ours(k, x) * weights).sum(), (0, 1))(params["kernel"], x)
    theirs, theirs_x = jax.grad(lambda k, x: (xlas(k, x) * weights).sum(), (0, 1))(kernel, x)
    np.testing.assert_allclose(mine_x, theirs_x, atol=1e-4)
    mine = mine.T.reshape(size, size, channels, features).transpose(1, 0, 2, 3)
    np.testing.assert_allclose(mine, theirs, atol=5e-4 * max(1.0, batch / 8))  # sums over the batch


def by_xla(x, kernel, size):
    window = kernel.reshape(kernel.shape[0], size, size, -1).transpose(2, 1, 3, 0)
    return lax.conv_general_dilated(x, window, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"))


@pytest.mark.slow
@pytest.mark.parametrize(
    "size,channels,side,batch",
    [(3, 3, 10, 2), (3, 3, 9, 2), (5, 1, 12, 2), (3, 16, 9, 2), (3, 16, 15, 9), (3, 16, 10, 64), (2, 2, 7, 2)],
)
def test_a_pooled_convolution_is_one_that_pooling_follows(size, channels, side, batch):
    features = 5
    x = jax.random.normal(jax.random.key(0), (batch, side, side, channels))
    kernel = jax.random.normal(jax.random.key(1), (features, size**2 * channels)) / size

    def pooled(x, kernel):
        return layers.by_patches(x, kernel, size, pooled=True)

    def expected(x, kernel):
        return layers.max_pool(by_xla(x, kernel, size))

    ours, backward = jax.vjp(pooled, x, kernel)
    theirs, their_backward = jax.vjp(expected, x, kernel)
    assert ours.shape == theirs.shape
    np.testing.assert_allclose(ours, theirs, atol=2e-4)
    weights = jax.random.normal(jax.random.key(2), ours.shape)
    for mine, other in zip(backward(weights), their_backward(weights)):
        np.testing.assert_allclose(mine, other, atol=2e-5 * float(jnp.abs(other).max()))


@pytest.mark.slow
def test_equal_pixels_share_the_gradient_of_a_pooled_tile():
    tiles = jax.random.randint(jax.random.key(0), (4, 4, 300), 0, 3).astype(jnp.float32)  # two, three and four alike
    image = tiles.transpose(2, 0, 1)[..., None]
    weights = jax.random.normal(jax.random.key(1), (2, 2, 300))
    pooled, backward = jax.vjp(layers.pool_tiles, tiles)
    np.testing.assert_array_equal(pooled, layers.max_pool(image)[..., 0].transpose(1, 2, 0))
    expected = jax.grad(lambda x: (layers.max_pool(x)[..., 0].transpose(1, 2, 0) * weights).sum())(image)
    np.testing.assert_allclose(backward(weights)[0], expected[..., 0].transpose(1, 2, 0), rtol=1e-6)


@pytest.mark.parametrize("side", [6, 7])
def test_pooling_equals_a_window_maximum(side):
    x = jax.random.normal(jax.random.key(0), (2, side, side, 3))
    expected = lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    np.testing.assert_array_equal(layers.max_pool(x), expected)


@pytest.mark.fast_cases(1)
@pytest.mark.parametrize(
    "name,shape,params,profile",
    [("mlp", (28, 28, 1), 52_500, 64), ("cnn", (32, 32, 3), 122_570, 64), ("cnn_small", (28, 28, 1), 431_080, 500)],
)
def test_sizes_of_the_papers_models(name, shape, params, profile):
    model = models.make(name, shape, 10)
    assert (model.num_params, model.profile_size) == (params, profile)
    output = model.apply(model.init(jax.random.key(0)), jnp.zeros((3, *shape)), None)
    assert output.prediction.shape == (3, 10) and output.profile.shape == (3, profile)


def test_images_too_small_for_a_model_are_refused():
    for name, side in (("cnn_small", 15), ("cnn", 17)):
        with pytest.raises(
            UserError, match=rf"at least {side + 1}x{side + 1} pixels, but an input is \({side}, {side}"
        ):
            models.make(name, (side, side, 1), 10)
        models.make(name, (side + 1, side + 1, 1), 10)


@pytest.mark.parametrize("name", layers.INITIALIZERS)
def test_initializers_have_their_standard_deviation(name):
    fan_in, fan_out = 300, 100
    weights = layers.kernel_initializer(name, fan_in, fan_out)(jax.random.key(0), (fan_in, fan_out), jnp.float32)
    variance = {"pytorch": 1 / (3 * fan_in), "kaiming": 2 / fan_in, "xavier": 2 / (fan_in + fan_out)}[
        name.split("-")[0]
    ]
    np.testing.assert_allclose(weights.std(), np.sqrt(variance), rtol=0.02)
    largest = float(jnp.abs(weights).max()) / np.sqrt(3 * variance)
    assert largest > 1.2 if name.endswith("normal") else 0.99 < largest <= 1.0


def test_initializers_draw_independently():
    """Else FL-DP3S's kernels would be alike because the weights are."""
    drawn = [
        layers.kernel_initializer(name, 300, 100)(jax.random.key(0), (300, 100), jnp.float32).ravel()
        for name in layers.INITIALIZERS
    ]
    correlations = np.corrcoef(np.stack(drawn))[np.triu_indices(len(drawn), 1)]
    assert np.abs(correlations).max() < 5 / np.sqrt(drawn[0].size)


@pytest.mark.parametrize("rate", [0.5, 0.25, 0.3, 0.9])
def test_dropout_rate_scale_and_independence(rate):
    dropout = layers.Dropout(rate)
    x = jnp.ones((400, 501))
    out = np.asarray(dropout.apply({}, x, True, rngs={"dropout": jax.random.key(0)}))
    assert abs((out == 0).mean() - rate) < 4 * np.sqrt(rate * (1 - rate) / out.size)
    np.testing.assert_allclose(out[out != 0], 1 / (1 - rate), rtol=1e-6)
    dropped = out == 0
    for shift in (1, 7, 125, 250):  # neighbors that share a word of random bits
        together = (dropped[:, shift:] & dropped[:, :-shift]).mean()
        assert abs(together - rate**2) < 5 * np.sqrt(rate**2 * (1 - rate**2) / out.size)
    np.testing.assert_array_equal(dropout.apply({}, x, False), x)


@pytest.mark.slow
def test_dropout_comes_before_the_activation_and_only_in_training():
    model = models.make("mlp", (4, 4, 1), 3, dropout=0.5)
    params = model.init(jax.random.key(0))
    x = jax.random.normal(jax.random.key(1), (5, 4, 4, 1))
    np.testing.assert_array_equal(model.apply(params, x, None).prediction, model.apply(params, x, None).prediction)
    one, two = (model.apply(params, x, model.draw(jax.random.key(i), len(x))) for i in (1, 2))
    assert (one.prediction != two.prediction).any()
    np.testing.assert_array_equal(one.profile, two.profile)
