"""Models by name, as pure functions of their parameters."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from fedjax_sel.errors import UserError
from fedjax_sel.models.cnn import CNN, SmallCNN
from fedjax_sel.models.layers import DEFAULT_CONVOLUTION
from fedjax_sel.models.mlp import MLP
from fedjax_sel.models.output import Output

Params = Any  # a pytree of float32 arrays


class Entry(NamedTuple):
    """A model as listed."""

    module: Callable[..., nn.Module]
    about: str
    smallest_image: int  # pixels a side, below which a layer would be empty
    cpu_block: int  # images that a CPU core evaluates at once: what keeps the activations in its cache


TABLE: dict[str, Entry] = {
    "mlp": Entry(MLP, "fully-connected 64-30 (FedCor, Fashion-MNIST)", 1, 1000),
    "cnn": Entry(CNN, "3x3 convolutions 32-64-64, FC 64 (FedCor, CIFAR-10)", 18, 50),
    "cnn_small": Entry(SmallCNN, "5x5 convolutions 20-50, FC 500 (FL-DP3S)", 16, 50),
}


class Model(NamedTuple):
    """A model for one image shape. Static.

    Attributes:
        name: one of TABLE.
        init: key -> params.
        apply: (params, images [B, H, W, channels] normalised, dropout key or None outside training) -> Output.
        num_params: P.
        profile_size: Q, units of the first fully-connected layer.
        cpu_block: images that a CPU core evaluates at once.
    """

    name: str
    init: Callable[[jax.Array], Params]
    apply: Callable[[Params, jax.Array, jax.Array | None], Output]
    num_params: int
    profile_size: int
    cpu_block: int


def make(
    name: str,
    image_shape: tuple[int, int, int],
    num_classes: int,
    dropout: float = 0.0,
    initializer: str = "pytorch",
    convolution: str = DEFAULT_CONVOLUTION,
) -> Model:
    """Builds a model.

    Args:
        name: one of TABLE.
        image_shape: (height, width, channels).
        num_classes: C.
        dropout: probability that a hidden unit is set to zero in training.
        initializer: one of `layers.INITIALIZERS`.
        convolution: one of `layers.CONVOLUTIONS`; which is fast depends on the machine, the results do not.

    Returns:
        The model.

    Raises:
        UserError: the images are too small for the model.
    """
    entry = TABLE[name]
    if min(image_shape[:2]) < entry.smallest_image:
        side = entry.smallest_image
        raise UserError(
            f"model: {name!r} needs images of at least {side}x{side} pixels and these have "
            f"{image_shape[0]}x{image_shape[1]}; choose --model mlp or another --dataset"
        )
    given = {"num_classes": num_classes, "dropout": dropout, "initializer": initializer}
    module = entry.module(**given, **({} if entry.module is MLP else {"convolution": convolution}))
    example = jax.ShapeDtypeStruct((1, *image_shape), jnp.float32)

    def init(key: jax.Array) -> Params:
        return module.init(key, jnp.zeros(example.shape, example.dtype))["params"]

    def apply(params: Params, images: jax.Array, dropout_key: jax.Array | None = None) -> Output:
        rngs = None if dropout_key is None else {"dropout": dropout_key}
        return module.apply({"params": params}, images, train=dropout_key is not None, rngs=rngs)  # pyright: ignore

    shapes = jax.eval_shape(init, jax.random.key(0))
    output = jax.eval_shape(apply, shapes, example)
    num_params = sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(shapes))
    return Model(name, init, apply, num_params, output.first_dense.shape[-1], entry.cpu_block)
