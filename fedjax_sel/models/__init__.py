"""Models by name, as pure functions of their parameters."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from fedjax_sel.core import jax_settings
from fedjax_sel.errors import UserError
from fedjax_sel.models import core
from fedjax_sel.models.blueprint import Blueprint, from_flax, from_functions, from_nnx
from fedjax_sel.models.core import Draws, Model, Output, Params, Weights
from fedjax_sel.models.layers import DEFAULT_CONVOLUTION, DRAWS
from fedjax_sel.models.modules import zeros_of
from fedjax_sel.models.zoo import CNN, MLP, CharLSTM, LeNet, Logistic, SmallCNN, resnet8, resnet18

__all__ = [
    "PLAIN", "TABLE", "Blueprint", "Draws", "Entry", "Model", "Output", "Params", "Weights", "from_flax",
    "from_functions", "from_nnx", "make", "make_plain", "names", "of_module",
]  # fmt: skip


class Entry(NamedTuple):
    """A listed model built from the layers of this package."""

    module: Callable[..., nn.Module]
    about: str
    smallest_image: int | None  # pixels per side, below which a layer would be empty; None: inputs of any shape
    cpu_block: int  # images per evaluation on a CPU core, few enough to keep the activations in its cache
    cpu_micro_batch: int  # images per gradient on a CPU core


TABLE: dict[str, Entry] = {
    "mlp": Entry(MLP, "fully-connected 64-30 (FedCor, Fashion-MNIST)", None, 1000, 1000),
    "cnn": Entry(CNN, "3x3 convolutions 32-64-64, FC 64 (FedCor, CIFAR-10)", 18, 50, 10),
    "cnn_small": Entry(SmallCNN, "5x5 convolutions 20-50, FC 500 (FL-DP3S)", 16, 50, 50),
}


class Plain(NamedTuple):
    """A listed model written in plain Flax, like a user's own model."""

    module: Callable[[int], nn.Module]  # number of classes -> module
    about: str
    smallest_image: int | None = None  # pixels per side; None: no images required


PLAIN: dict[str, Plain] = {
    "logistic": Plain(Logistic, "one fully-connected layer"),
    "lenet": Plain(LeNet, "5x5 convolutions 6-16, FC 120-84 (LeCun et al. 1998)", 12),
    "resnet8": Plain(resnet8, "8 layers, 16-32-64 channels, group normalization (He et al. 2016)", 8),
    "resnet18": Plain(resnet18, "18 layers, 64-128-256-512 channels, group normalization (He et al. 2016)", 8),
    "char_lstm": Plain(CharLSTM, "2 LSTM layers of 256 over characters (LEAF, Shakespeare)"),
}


def names() -> tuple[str, ...]:
    """Return the names that `--model` accepts."""
    return (*TABLE, *PLAIN)


def make_plain(name: str, inputs: Any, num_classes: int) -> Model:
    """Build a model of PLAIN for inputs [B, ...], given by shape and dtype.

    Raises:
        UserError: the model does not accept these inputs.
    """
    entry, shape = PLAIN[name], inputs.shape[1:]
    _check_images(name, shape, entry.smallest_image)
    if name == "char_lstm" and (len(shape) != 1 or not jnp.issubdtype(inputs.dtype, jnp.integer)):
        raise UserError(
            f"model: 'char_lstm' reads sequences of characters, but inputs are {inputs.dtype} of shape {tuple(shape)}; "
            "choose another --model, or --dataset leaf:FOLDER"
        )
    return from_flax(entry.module(num_classes)).build(inputs)._replace(name=name)


def make(
    name: str,
    input_shape: tuple[int, ...],
    num_classes: int,
    dropout: float = 0.0,
    initializer: str = "pytorch",
    precision: str = "float32",
    convolution: str = DEFAULT_CONVOLUTION,
) -> Model:
    """Build a model of TABLE.

    Args:
        name: a name in TABLE.
        input_shape: shape of one input, (height, width, channels) for images.
        num_classes: C.
        dropout: probability that a hidden unit is set to zero in training.
        initializer: one of `layers.INITIALIZERS`.
        precision: one of `core.PRECISIONS`.
        convolution: one of `layers.CONVOLUTIONS`, which differ in speed but not in results.

    Raises:
        UserError: the model needs images, or larger ones.
    """
    entry = TABLE[name]
    _check_images(name, input_shape, entry.smallest_image)
    options = {"num_classes": num_classes, "dropout": dropout, "initializer": initializer, "precision": precision}
    module = entry.module(**options, **({} if entry.module is MLP else {"convolution": convolution}))
    return of_module(name, module, input_shape, entry.cpu_block, entry.cpu_micro_batch)


def _check_images(name: str, shape: tuple[int, ...], side: int | None) -> None:
    if side is None or (len(shape) == 3 and min(shape[:2]) >= side):
        return
    advice = "choose --model mlp or logistic, which accept inputs of any shape"
    if len(shape) == 2:
        advice = f"add an axis of channels with inputs[..., None], or {advice}"
    if len(shape) == 3 and shape[0] in (1, 3) and min(shape[1:]) >= side:
        advice = "move channels last with np.moveaxis(inputs, 1, -1)"
    raise UserError(f"model: {name!r} needs images of at least {side}x{side} pixels, but an input is {shape}; {advice}")


def of_module(
    name: str, module: nn.Module, input_shape: tuple[int, ...], cpu_block: int, cpu_micro_batch: int
) -> Model:
    """Make a model from a Flax module of this package's layers.

    The module maps (inputs, train) to an Output; only its `layers.Dropout` may draw random numbers. `input_shape` is
    the shape of one input; the blocks are as in `Entry`.
    """

    def inputs(size: int) -> jax.Array:
        return jnp.zeros((size, *input_shape), jnp.float32)

    def init(key: jax.Array) -> Weights:
        return Weights(module.init(key, inputs(1))["params"])

    def apply(weights: Weights, inputs: jax.Array, draws: Draws | None = None) -> Output:
        variables = {"params": weights.trained, DRAWS: draws or {}}
        return module.apply(variables, inputs, train=draws is not None)  # pyright: ignore

    def draw(key: jax.Array, size: int) -> Draws:
        params = zeros_of(shapes.trained)  # the draws do not depend on them
        _, drawn = module.apply({"params": params}, inputs(size), train=True, rngs={"dropout": key}, mutable=[DRAWS])
        return drawn.get(DRAWS, {})  # pyright: ignore

    shapes = jax.eval_shape(init, jax_settings.key(0))
    example = inputs(1)
    output, layer = core.find_output_layer(lambda trained: apply(Weights(trained), example), shapes.trained)
    drawn = jax.eval_shape(lambda key: draw(key, 1), jax_settings.key(0))
    draws_of = draw if jax.tree.leaves(drawn) else lambda key, size: {}  # avoids tracing the network without need
    num_params = sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(shapes))
    profile_size = output.profile.shape[-1]
    return Model(name, init, draws_of, apply, num_params, 0, profile_size, cpu_block, cpu_micro_batch, layer)
