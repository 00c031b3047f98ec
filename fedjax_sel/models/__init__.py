"""Models by name, as pure functions of their parameters, the built-in networks, and users' models."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import flax.linen as nn
import flax.nnx  # not as `nnx`, the name of a file here
import jax
import jax.numpy as jnp

from fedjax_sel.core import jax_settings
from fedjax_sel.errors import UserError
from fedjax_sel.models import core
from fedjax_sel.models.core import Draws, Flags, Model, Output, Params, PureModule, Weights, reads_key, zeros_of
from fedjax_sel.models.layers import DRAWS, Conv, Dense, Dropout
from fedjax_sel.models.linen import from_linen
from fedjax_sel.models.nnx import from_nnx as from_nnx_module

__all__ = [
    "PLAIN", "TABLE", "Blueprint", "Draws", "Entry", "Model", "Output", "Params", "Weights", "from_flax",
    "from_functions", "from_module", "from_nnx", "make", "make_plain", "names",
]  # fmt: skip


class CharLSTM(nn.Module):
    """An embedding of 8, two LSTM layers of 256 units and a fully-connected layer (LEAF, Caldas et al. 2018).

    The initialization is Flax's default, except that recurrent weights are Glorot-uniform as in TensorFlow's cell.
    Flax's orthogonal initializer decomposes one matrix per gate, which can take minutes for several seeds on a CPU.
    Like LEAF, the model predicts the character after the last position only, unless `every_position` is set.

    P = 817,872 with 80 characters, with one bias per gate as in TensorFlow's cell.
    """

    num_classes: int = 80
    every_position: bool = False
    features: int = 8
    units: int = 256
    layers: int = 2
    cell: Any = nn.OptimizedLSTMCell

    @nn.compact
    def __call__(self, tokens: jax.Array) -> jax.Array:
        """Map tokens, int32 [B, L], to logits of the next character, [B, C], or [B, L, C] for all positions."""
        x: Any = nn.Embed(self.num_classes, self.features)(tokens)
        for _ in range(self.layers):
            x = nn.RNN(self.cell(self.units, recurrent_kernel_init=nn.initializers.glorot_uniform()))(x)
        return nn.Dense(self.num_classes)(x if self.every_position else x[:, -1])


class CharGRU(CharLSTM):
    """An embedding of 8, one GRU layer of 128 units and a fully-connected layer, initialized like CharLSTM.

    P = 63,696 with 80 characters.
    """

    units: int = 128
    layers: int = 1
    cell: Any = nn.GRUCell


class CNN(nn.Module):
    """FedCor's CIFAR-10 network: 3x3 convolutions 32-64-64, pooled after the first two, one hidden layer of 64."""

    num_classes: int
    dropout: float = 0.0
    initializer: str = "pytorch"
    precision: str = "float32"
    convolutions: tuple[tuple[int, int, bool], ...] = ((32, 3, True), (64, 3, True), (64, 3, False))  # pooled or not
    hidden: int = 64

    @nn.compact
    def __call__(self, images: jax.Array, train: bool = False) -> Output:
        """Map images [B, H, W, channels] to logits [B, C] and the first fully-connected layer [B, hidden]."""
        dense = partial(Dense, initializer=self.initializer, precision=self.precision)
        conv = partial(Conv, initializer=self.initializer, precision=self.precision)
        x = images
        for features, size, pooled in self.convolutions:
            x = nn.relu(conv(features, size, pooled=pooled)(x))
        first = dense(self.hidden)(x.reshape(x.shape[0], -1))
        x = nn.relu(Dropout(self.dropout)(first, train))
        return Output(dense(self.num_classes)(x), first)


class SmallCNN(CNN):
    """FL-DP3S's network: 5x5 convolutions 20-50, both pooled, one hidden layer of 500.

    The paper does not specify it; this is flsim's network for MNIST.
    """

    convolutions: tuple[tuple[int, int, bool], ...] = ((20, 5, True), (50, 5, True))
    hidden: int = 500


class LeNet(nn.Module):
    """LeNet-5 (LeCun et al. 1998, section II.B) with ReLU, max-pooling and Flax's default initialization.

    Images smaller than 32 pixels per side are padded by two at each edge, as MNIST's are in the paper. P = 61,706 with
    10 classes on 28x28x1 or 32x32x1, 62,006 on 32x32x3.
    """

    num_classes: int

    @nn.compact
    def __call__(self, images: jax.Array) -> jax.Array:
        """Map images [B, H, W, channels] to logits [B, C]; H and W are at least 12."""
        padding = 2 if min(images.shape[1:3]) < 32 else 0
        x = nn.relu(nn.Conv(6, (5, 5), padding=padding)(images))
        x = nn.max_pool(x, (2, 2), (2, 2))
        x = nn.relu(nn.Conv(16, (5, 5), padding="VALID")(x))
        x = nn.max_pool(x, (2, 2), (2, 2))
        x = x.reshape(x.shape[0], -1)
        x = nn.relu(nn.Dense(84)(nn.relu(nn.Dense(120)(x))))
        return nn.Dense(self.num_classes)(x)


class Logistic(nn.Module):
    """One fully-connected layer with Flax's default initialization.

    P = inputs * C + C, which is 7,850 on 28x28 images of 10 classes.
    """

    num_classes: int

    @nn.compact
    def __call__(self, inputs: jax.Array) -> jax.Array:
        """Map inputs [B, ...] to logits [B, C]."""
        return nn.Dense(self.num_classes)(inputs.reshape(inputs.shape[0], -1))


class MLP(nn.Module):
    """Fully-connected layers 64-30, with dropout before each ReLU as in FedCor's code."""

    num_classes: int
    dropout: float = 0.0
    initializer: str = "pytorch"
    precision: str = "float32"
    hidden: tuple[int, ...] = (64, 30)

    @nn.compact
    def __call__(self, inputs: jax.Array, train: bool = False) -> Output:
        """Map inputs [B, ...], such as images [B, H, W, channels], to logits [B, C] and the first layer [B, hidden]."""
        dense = partial(Dense, initializer=self.initializer, precision=self.precision)
        x = first = dense(self.hidden[0])(inputs.reshape(inputs.shape[0], -1).astype(jnp.float32))
        x = nn.relu(Dropout(self.dropout)(x, train))
        for units in self.hidden[1:]:
            x = nn.relu(Dropout(self.dropout)(dense(units)(x), train))
        return Output(dense(self.num_classes)(x), first)


# The residual networks follow He et al., "Deep Residual Learning for Image Recognition" (2016), with Flax's default
# initialization. Group normalization (Wu and He 2018) replaces batch normalization, whose statistics differ between
# clients with heterogeneous data (Hsieh et al. 2020).
class ResidualBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut, which is a 1x1 convolution if the shape changes."""

    features: int
    stride: int
    groups: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Map [B, H, W, channels] to [B, H / stride, W / stride, features]."""
        conv = partial(nn.Conv, self.features, use_bias=False)
        y = nn.relu(nn.GroupNorm(self.groups)(conv((3, 3), strides=self.stride, padding=1)(x)))
        y = nn.GroupNorm(self.groups)(conv((3, 3), padding=1)(y))
        if x.shape != y.shape:
            x = nn.GroupNorm(self.groups)(conv((1, 1), strides=self.stride)(x))
        return nn.relu(x + y)


class ResNet(nn.Module):
    """A 3x3 stem, stages of residual blocks that each except the first halve the sides, and global average pooling."""

    num_classes: int
    features: tuple[int, ...]
    blocks: int
    groups: int

    @nn.compact
    def __call__(self, images: jax.Array) -> jax.Array:
        """Map images [B, H, W, channels] to logits [B, C]."""
        x = nn.Conv(self.features[0], (3, 3), padding=1, use_bias=False)(images)
        x = nn.relu(nn.GroupNorm(self.groups)(x))
        for stage, features in enumerate(self.features):
            for block in range(self.blocks):
                x = ResidualBlock(features, 2 if stage > 0 and block == 0 else 1, self.groups)(x)
        return nn.Dense(self.num_classes)(x.mean((1, 2)))


def resnet8(num_classes: int) -> ResNet:
    """Return a ResNet with three stages of one block, 16-32-64 channels and 8 groups.

    P = 78,042 with 10 classes on color images, 77,754 on gray images.
    """
    return ResNet(num_classes, (16, 32, 64), blocks=1, groups=8)


def resnet18(num_classes: int) -> ResNet:
    """Return the ResNet-18 for CIFAR: a 3x3 stem without pooling, four stages of two blocks, 64-128-256-512 channels.

    It has 32 groups. P = 11,173,962 with 10 classes on color images, 11,220,132 with 100 classes.
    """
    return ResNet(num_classes, (64, 128, 256, 512), blocks=2, groups=32)


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

    module: Callable[..., nn.Module]  # number of classes -> module
    about: str
    smallest_image: int | None = None  # pixels per side; None: no images required


PLAIN: dict[str, Plain] = {
    "logistic": Plain(Logistic, "one fully-connected layer"),
    "lenet": Plain(LeNet, "5x5 convolutions 6-16, FC 120-84 (LeCun et al. 1998)", 12),
    "resnet8": Plain(resnet8, "8 layers, 16-32-64 channels, group normalization (He et al. 2016)", 8),
    "resnet18": Plain(resnet18, "18 layers, 64-128-256-512 channels, group normalization (He et al. 2016)", 8),
    "char_lstm": Plain(CharLSTM, "2 LSTM layers of 256 over characters (LEAF, Shakespeare)"),
    "char_gru": Plain(CharGRU, "1 GRU layer of 128 over characters"),
}


def names() -> tuple[str, ...]:
    """Return the names that `--model` accepts."""
    return (*TABLE, *PLAIN)


OF_CHARACTERS = ("char_lstm", "char_gru")  # models of PLAIN that read integers [B, L]


def make_plain(name: str, inputs: Any, num_classes: int, every_position: bool = False) -> Model:
    """Build a model of PLAIN for inputs [B, ...], given by shape and dtype.

    A model of characters predicts after each position if `every_position` is set, else after the last.

    Raises:
        UserError: the model does not accept these inputs.
    """
    entry, shape = PLAIN[name], inputs.shape[1:]
    _check_images(name, shape, entry.smallest_image)
    of_characters = name in OF_CHARACTERS
    if of_characters and (len(shape) != 1 or not jnp.issubdtype(inputs.dtype, jnp.integer)):
        raise UserError(
            f"model: {name!r} reads sequences of characters, but inputs are {inputs.dtype} of shape {tuple(shape)}; "
            "choose another --model, or --dataset shakespeare or leaf:FOLDER"
        )
    module = entry.module(num_classes, **({"every_position": every_position} if of_characters else {}))
    return from_flax(module).build(inputs)._replace(name=name)


def make(
    name: str,
    input_shape: tuple[int, ...],
    num_classes: int,
    dropout: float = 0.0,
    initializer: str = "pytorch",
    precision: str = "float32",
    hidden: tuple[int, ...] = (),
) -> Model:
    """Build a model of TABLE.

    Args:
        name: a name in TABLE.
        input_shape: shape of one input, (height, width, channels) for images.
        num_classes: C.
        dropout: probability that a hidden unit is set to zero in training.
        initializer: one of `layers.INITIALIZERS`.
        precision: one of `core.PRECISIONS`.
        hidden: units of each hidden layer of `mlp`; empty: the default.

    Raises:
        UserError: the model needs images, or larger ones.
    """
    entry = TABLE[name]
    _check_images(name, input_shape, entry.smallest_image)
    options = {"num_classes": num_classes, "dropout": dropout, "initializer": initializer, "precision": precision}
    own = {"hidden": hidden or MLP.hidden} if entry.module is MLP else {}
    module = entry.module(**options, **own)
    return from_module(name, module, input_shape, entry.cpu_block, entry.cpu_micro_batch)


def _check_images(name: str, shape: tuple[int, ...], side: int | None) -> None:
    if side is None or (len(shape) == 3 and min(shape[:2]) >= side):
        return
    advice = "choose --model mlp or logistic, which accept inputs of any shape"
    if len(shape) == 2:
        advice = f"add an axis of channels with inputs[..., None], or {advice}"
    if len(shape) == 3 and shape[0] in (1, 3) and min(shape[1:]) >= side:
        advice = "move channels last with np.moveaxis(inputs, 1, -1)"
    raise UserError(f"model: {name!r} needs images of at least {side}x{side} pixels, but an input is {shape}; {advice}")


def from_module(
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
    profile_size = output.profile.shape[-1]
    return Model(name, init, draws_of, apply, _count(shapes), 0, profile_size, cpu_block, cpu_micro_batch, layer)


# Users' models, and the listed ones in plain Flax.

CPU_BLOCK = 100  # examples per evaluation on a CPU core
CPU_MICRO_BATCH = 50  # examples per gradient on a CPU core, if the pass may be split
CPU_MICRO_IMAGES = 5  # with convolutions, whose activations exceed the core's cache sooner
WHOLE_BATCH = 2**30


class Blueprint(NamedTuple):
    """A model whose input shapes are not known yet."""

    name: str  # in messages and tables
    build: Callable[[Any], Model]  # shapes and dtypes of inputs [B, ...] -> model


def from_flax(module: nn.Module, *, profile_layer: str | None = None, training_flags: Flags | None = None) -> Blueprint:
    """Return the blueprint of an unmodified `flax.linen` module.

    Random streams such as dropout's receive keys by name. Batch statistics and other collections travel with the
    weights and are averaged like them.

    Args:
        module: module that returns predictions, each of its own example alone (apart from batch statistics), because
            batches are computed in parts. It may take a training flag: an argument of `__call__` or a field
            named `train`, `training`, `is_training`, `deterministic` or `use_running_average`.
        profile_layer: path of the layer whose mean output is a client's profile, such as "Dense_0". None: the first
            fully-connected layer.
        training_flags: flags with other names, and their values in training and in evaluation: `{"mode": ("train",
            "eval")}`. If given, the usual names are not searched, and the training pass is not checked for frozen
            batch statistics or inactive dropout. Pass `{}` for a module without flags.
    """
    name = type(module).__name__
    return Blueprint(
        name, lambda inputs: _model(name, from_linen(module, inputs, training_flags), inputs, profile_layer)
    )


def from_nnx(
    module: flax.nnx.Module | Callable[..., flax.nnx.Module],
    *,
    profile_layer: str | None = None,
    training_flags: Flags | None = None,
) -> Blueprint:
    """Return the blueprint of a Flax NNX module; other arguments as in `from_flax`.

    Args:
        module: function or class that makes a module from `nnx.Rngs`, separately for each seed; or an instance, whose
            weights are the initial weights of all seeds.
        profile_layer: path of the profile layer, such as "blocks/0/conv".
        training_flags: arguments of `__call__`, or attributes of the module and its submodules. `train()` and `eval()`
            are always called.
    """
    factory = module.func if isinstance(module, partial) else module
    name = type(module).__name__ if isinstance(module, flax.nnx.Module) else getattr(factory, "__name__", "module")
    return Blueprint(
        name, lambda inputs: _model(name, from_nnx_module(module, inputs, training_flags), inputs, profile_layer)
    )


def from_functions(
    init: Callable[[jax.Array], Any], apply: Callable[[Any, Any], jax.Array], name: str = "functions"
) -> Blueprint:
    """Return the blueprint of two functions.

    Args:
        init: key -> params, a pytree of float32 arrays.
        apply: (params, inputs [B, ...]) -> predictions [B, ...], each of its own example alone.
        name: name of the model in messages.
    """

    def applied(trained: Any, carried: Any, inputs: Any, key: jax.Array | None, train: bool) -> tuple[Any, Any]:
        return apply(trained, inputs), carried

    def no_layer(layer: str | None) -> Any:
        raise UserError(f"model: {name} consists of functions, without a profile layer{f' {layer}' if layer else ''}")

    pure = PureModule(lambda key: (init(key), {}), applied, no_layer)
    return Blueprint(name, lambda inputs: _model(name, pure, inputs, None))


def blueprint_of(value: Any) -> Blueprint | None:
    """Return the blueprint of a user's model, or None if the value is not a model."""
    if isinstance(value, Blueprint):
        return value
    if isinstance(value, Model):
        return Blueprint(value.name, lambda inputs: value)
    if isinstance(value, nn.Module):
        return from_flax(value)
    factory = value.func if isinstance(value, partial) else value
    if isinstance(value, flax.nnx.Module) or (isinstance(factory, type) and issubclass(factory, flax.nnx.Module)):
        return from_nnx(value)
    return None


def _model(name: str, pure: PureModule, inputs: Any, profile_layer: str | None) -> Model:
    """Make a model from pure functions, for inputs of given shapes [B, ...]."""
    trained, carried = jax.eval_shape(pure.init, jax_settings.key(0))
    for path, leaf in jax.tree_util.tree_leaves_with_path((trained, carried)):
        if leaf.dtype != jnp.float32:
            raise UserError(
                f"model: {name} keeps {leaf.dtype} at {jax.tree_util.keystr(path[1:])}, but only float32 can be "
                "averaged over clients; convert it to float32"
            )
    has_carried = bool(jax.tree.leaves(carried))
    try:
        apply, has_profile = pure.apply_with_layer(profile_layer), True
    except UserError:
        if profile_layer is not None:
            raise
        apply, has_profile = pure.apply, False
    draws_numbers, _ = reads_key(
        lambda key: pure.apply(zeros_of(trained), zeros_of(carried), zeros_of(inputs), key, True)
    )

    def init(key: jax.Array) -> Weights:
        trained, carried = pure.init(key)
        return Weights(trained, carried if has_carried else ())

    def draw(key: jax.Array, size: int) -> Any:
        # The draws are one key for the whole batch.
        return {"key": jax.random.key_data(key)} if draws_numbers else {}

    def applied(weights: Weights, inputs: Any, draws: Any | None) -> Output:
        train = draws is not None
        key = jax_settings.key(0) if train else None
        if draws:
            key = jax.random.wrap_key_data(draws["key"], impl=jax_settings.PRNG)
        carried_now = weights.carried if has_carried else carried
        # Layers without a precision of their own multiply in float32; accelerators default to less.
        with jax.default_matmul_precision("highest"):
            output, after = apply(weights.trained, carried_now, inputs, key, train)
        prediction, layer = output if has_profile else (output, None)
        profile = None if layer is None else layer.reshape(layer.shape[0], -1)
        return Output(_in_float32(prediction), _in_float32(profile), after if has_carried else ())

    shapes = jax.eval_shape(init, jax_settings.key(0))
    fixed = shapes._replace(carried=zeros_of(shapes.carried))
    output, layer = core.find_output_layer(
        lambda trained: applied(fixed._replace(trained=trained), zeros_of(inputs), None), trained
    )
    profile_size = 0 if output.profile is None else output.profile.shape[-1]
    convolves = any(leaf.ndim == 4 for leaf in jax.tree.leaves(trained))
    piece = CPU_MICRO_IMAGES if convolves else CPU_MICRO_BATCH
    micro_batch = WHOLE_BATCH if draws_numbers or has_carried else piece
    if not _count(trained):
        raise UserError(f"model: {name} has no parameters, so there is nothing to train; give it at least one weight")
    sizes = (_count(trained), _count(carried), profile_size, CPU_BLOCK, micro_batch)
    return Model(name, init, draw, applied, *sizes, layer)


def _in_float32(tree: Any) -> Any:
    """Convert floats to float32, since sums over many examples are inaccurate in half precision."""
    return jax.tree.map(lambda x: x.astype(jnp.float32) if jnp.issubdtype(x.dtype, jnp.floating) else x, tree)


def _count(arrays: Any) -> int:
    return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(arrays))
