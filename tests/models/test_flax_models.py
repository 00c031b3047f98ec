"""The models that are written in plain flax.linen: sizes by hand, learning, weights for every client."""

import math

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from fedjax_sel import models
from fedjax_sel.models import CharLSTM, LeNet, Logistic, ResNet, resnet8, resnet18
from fedjax_sel.models.linen import from_linen

KEY = jax.random.key(3)


def of_resnet(channels, classes, features, blocks):
    """The number of parameters, layer by layer: a normalization has two for each channel, convolutions have no bias."""
    total = 9 * channels * features[0] + 2 * features[0]
    before = features[0]
    for width in features:
        for block in range(blocks):
            total += 9 * before * width + 2 * width + 9 * width**2 + 2 * width
            if before != width and block == 0:
                total += before * width + 2 * width
            before = width
    return total + before * classes + classes


@pytest.mark.slow
@pytest.mark.parametrize(
    "module,shape,expected",
    [
        (Logistic(10), (28, 28, 1), 784 * 10 + 10),
        (LeNet(10), (28, 28, 1), (25 * 6 + 6) + (25 * 6 * 16 + 16) + (400 * 120 + 120) + (120 * 84 + 84) + 850),
        (LeNet(10), (32, 32, 1), 61_706),
        (LeNet(10), (32, 32, 3), 62_006),
        (resnet8(10), (32, 32, 3), of_resnet(3, 10, (16, 32, 64), 1)),
        (resnet8(10), (32, 32, 3), 78_042),
        (resnet8(10), (28, 28, 1), 77_754),
        (resnet18(10), (32, 32, 3), of_resnet(3, 10, (64, 128, 256, 512), 2)),
        (resnet18(10), (32, 32, 3), 11_173_962),  # as the CIFAR variant in PyTorch's hands
        (resnet18(100), (32, 32, 3), 11_220_132),
        (CharLSTM(), (80,), 80 * 8 + 4 * 256 * (8 + 256 + 1) + 4 * 256 * (256 + 256 + 1) + 80 * 257),
        (CharLSTM(), (80,), 817_872),
    ],
)  # fmt: skip
def test_numbers_of_parameters_and_shapes(module, shape, expected):
    inputs = jax.ShapeDtypeStruct((3, *shape), jnp.int32 if isinstance(module, CharLSTM) else jnp.float32)
    pure = from_linen(module, inputs)
    trained, carried = jax.eval_shape(pure.init, KEY)
    assert sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(trained)) == expected
    assert carried == {}
    (logits, layer), _ = jax.eval_shape(
        lambda *state: pure.apply_with_layer(None)(*state, None, False), trained, carried, inputs
    )
    classes = 80 if isinstance(module, CharLSTM) else module.num_classes
    assert logits.shape == (3, classes) and len(layer.shape) == 2


def images(side, channels, classes=3, count=24):
    """Images with a bright band whose place is the class."""
    labels = jnp.arange(count) % classes
    band = jnp.arange(side) * classes // side == labels[:, None]
    noise = jax.random.normal(jax.random.key(1), (count, side, side, channels))
    return noise + 2.0 * band[:, :, None, None], labels


def losses(module, inputs, targets, steps, rate, clients=2):
    """The mean loss of clients with weights of their own, before and after steps of SGD on all they have."""
    pure = from_linen(module, inputs)

    def train(key):
        def loss(trained, carried):
            logits, carried = pure.apply(trained, carried, inputs, None, True)
            return optax.softmax_cross_entropy_with_integer_labels(logits, targets).mean(), carried

        def step(state, _):
            (value, carried), gradient = jax.value_and_grad(loss, has_aux=True)(*state)
            return (jax.tree.map(lambda w, g: w - rate * g, state[0], gradient), carried), value

        return jax.lax.scan(step, pure.init(key), None, steps)[1]

    values = np.asarray(jax.jit(jax.vmap(train))(jax.random.split(KEY, clients)))
    assert (values[0] != values[1]).all()  # clients began with different weights
    return values[:, 0], values[:, -1]


@pytest.mark.fast_cases(1)
@pytest.mark.parametrize(
    "module,side,channels,steps,rate",
    [
        (Logistic(3), 8, 1, 20, 0.1),
        (LeNet(3), 12, 1, 25, 0.1),
        (ResNet(3, (8, 16), blocks=1, groups=4), 8, 3, 15, 0.1),
        pytest.param(resnet8(3), 16, 3, 10, 0.1, marks=pytest.mark.slow),
        pytest.param(resnet18(3), 16, 3, 10, 0.003, marks=pytest.mark.slow),
    ],
    ids=["logistic", "lenet", "resnet", "resnet8", "resnet18"],
)
def test_images_are_learned_with_weights_for_every_client(module, side, channels, steps, rate):
    before, after = losses(module, *images(side, channels), steps, rate)
    assert (after < before / 2).all(), (before, after)


@pytest.mark.parametrize("name,examples", [("resnet8", 5), ("lenet", 5), ("logistic", 50)])
def test_gradients_of_convolutions_are_taken_of_few_images_at_once(name, examples):
    assert models.make_plain(name, jnp.zeros((2, 28, 28, 1)), 10).cpu_micro_batch == examples


@pytest.mark.slow
@pytest.mark.parametrize("every_position", [False, True])
@pytest.mark.parametrize("units,steps,rate", [(24, 60, 3.0), (256, 20, 3.0)], ids=["small", "LEAF's"])
def test_text_is_learned_with_weights_for_every_client(every_position, units, steps, rate):
    text = jnp.arange(12 + 7)[None] + jnp.arange(12)[:, None]
    tokens = text % 5  # each character follows from the one before
    inputs, following = tokens[:, :12], tokens[:, 1:13]
    module = CharLSTM(5, every_position=every_position, units=units)
    targets = following if every_position else following[:, -1]
    before, after = losses(module, inputs, targets, steps, rate)
    assert (after < before / 2).all(), (before, after)


@pytest.mark.slow
def test_logits_of_every_position_end_in_those_of_the_last():
    tokens = jax.random.randint(KEY, (3, 7), 0, 80)
    last, every = CharLSTM(units=8), CharLSTM(units=8, every_position=True)
    variables = last.init(KEY, tokens)
    logits = every.apply(variables, tokens)
    assert logits.shape == (3, 7, 80)
    np.testing.assert_allclose(logits[:, -1], last.apply(variables, tokens), atol=1e-6)
    changed = every.apply(variables, tokens.at[:, -1].set(0))
    np.testing.assert_array_equal(changed[:, :-1], logits[:, :-1])  # no position sees what comes after it


class Headless(nn.Module):
    """Without an output layer: its prediction is an activation."""

    @nn.compact
    def __call__(self, inputs):
        return nn.relu(nn.Dense(3)(inputs))


class Bent(nnx.Module):
    """Two layers in a list."""

    def __init__(self, rngs):
        layers = [nnx.Linear(4, 6, rngs=rngs), nnx.Linear(6, 3, rngs=rngs)]
        self.layers = nnx.List(layers) if hasattr(nnx, "List") else layers  # Flax before 0.12 takes a list

    def __call__(self, inputs):
        return self.layers[1](nnx.relu(self.layers[0](inputs)))


def _of_functions(apply):
    return models.from_functions(lambda key: {"b": jnp.zeros(3), "w": jnp.zeros((4, 3))}, apply)


@pytest.mark.parametrize(
    "blueprint,expected",
    [
        (models.from_flax(Headless()), None),
        (models.from_nnx(Bent), (("layers", "1", "kernel"), ("layers", "1", "bias"))),
        (_of_functions(lambda params, x: params["b"] + x @ params["w"]), (("w",), ("b",))),
        (_of_functions(lambda params, x: x @ params["w"] + 0.0 * params["b"].sum()), None),
        (_of_functions(lambda params, x: x @ params["w"]), (("w",), None)),
        (_of_functions(lambda params, x: (x @ params["w"] + params["b"])[:, :2]), None),
    ],
    ids=["headless", "nnx", "functions", "another sum", "no bias", "fewer outputs"],
)
def test_the_output_layer_is_found_in_any_model(blueprint, expected):
    assert blueprint.build(jax.ShapeDtypeStruct((1, 4), jnp.float32)).output_layer == expected


def test_the_output_layer_of_our_models():
    image = jax.ShapeDtypeStruct((1, 28, 28, 1), jnp.float32)
    for model in (
        *(models.make(name, image.shape[1:], 10) for name in models.TABLE),
        models.make_plain("lenet", image, 10),
    ):
        weight, bias = model.output_layer
        node = jax.eval_shape(model.init, jax.random.key(0)).trained
        for part in bias:
            node = node[part]
        assert node.shape == (10,) and weight[:-1] == bias[:-1]
