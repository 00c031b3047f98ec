"""The output of a named layer of an NNX module: that of the same network in linen, and one sentence where it fails."""

from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import fedjax_sel
from fedjax_sel import Dataset, Experiment, UserError, models
from fedjax_sel.experiment import problem
from fedjax_sel.models.linen import from_linen
from fedjax_sel.models.nnx import from_nnx

KEY = jax.random.key(3)
X = jax.random.normal(KEY, (6, 8, 8, 2))


def of_client(client, stacked):
    return jax.tree.map(lambda leaf: leaf[client], stacked)


def dot_products(apply, weights):
    """How many products an evaluation computes."""
    return str(jax.make_jaxpr(lambda own: apply(*own, X, None, False))(weights)).count(" dot_general[")


class Written(nn.Module):
    """A convolution, and two fully-connected layers with dropout between them."""

    @nn.compact
    def __call__(self, x, train: bool = False):
        x = nn.relu(nn.Conv(3, (3, 3), name="conv")(x)).reshape(x.shape[0], -1)
        x = nn.Dropout(0.5, deterministic=not train)(nn.relu(nn.Dense(5, name="fc1")(x)))
        return nn.Dense(3, name="fc2")(x)


class Network(nnx.Module):
    """The same."""

    def __init__(self, rngs):
        self.fc2 = nnx.Linear(5, 3, rngs=rngs)  # made first, called last
        self.conv = nnx.Conv(2, 3, (3, 3), rngs=rngs)
        self.fc1 = nnx.Linear(8 * 8 * 3, 5, rngs=rngs)
        self.drop = nnx.Dropout(0.5, rngs=rngs)

    def __call__(self, x):
        x = nnx.relu(self.conv(x)).reshape(x.shape[0], -1)
        return self.fc2(self.drop(nnx.relu(self.fc1(x))))


@pytest.mark.parametrize("layer", [None, "fc2", "conv"])
def test_a_layer_has_the_output_that_it_has_in_linen(layer):
    written, network = from_linen(Written(), X), from_nnx(Network, X)
    trained, carried = network.init(KEY)
    (logits, profile), kept = network.apply_with_layer(layer)(trained, carried, X, None, False)
    (expected_logits, expected), _ = written.apply_with_layer(layer)(trained, {}, X, None, False)
    np.testing.assert_allclose(logits, expected_logits, atol=1e-5)
    np.testing.assert_allclose(profile, expected, atol=1e-5)
    assert profile.shape[-1] == {None: 5, "fc2": 3, "conv": 3}[layer]
    assert jax.tree.structure(kept) == jax.tree.structure(carried)  # what was kept for profiles travels nowhere


def test_nothing_is_computed_twice_and_clients_have_weights_of_their_own():
    network = from_nnx(Network, X)
    keys = jax.random.split(KEY, 3)
    trained, carried = jax.vmap(network.init)(keys)
    with_layer = network.apply_with_layer(None)

    def train(trained, carried, key):
        return with_layer(trained, carried, X, key, True)[0]

    logits, profile = jax.jit(jax.vmap(train))(trained, carried, keys)
    for client in range(3):
        own = of_client(client, (trained, carried))
        np.testing.assert_allclose(profile[client], train(*own, keys[client])[1], atol=1e-5)
        np.testing.assert_allclose(logits[client], network.apply(*own, X, keys[client], True)[0], atol=1e-5)
    counts = [dot_products(apply, own) for apply in (with_layer, network.apply)]
    assert counts[0] == counts[1] > 0


DATA = Dataset.from_arrays(
    train=(np.random.default_rng(0).normal(size=(60, 8, 8, 2)).astype(np.float32), np.arange(60) % 3),
    test=(np.random.default_rng(1).normal(size=(12, 8, 8, 2)).astype(np.float32), np.arange(12) % 3),
)
PARTS = [list(range(start, start + 10)) for start in range(0, 60, 10)]


@pytest.mark.slow
def test_a_strategy_that_buys_profiles_selects_as_with_linen():
    weights = from_nnx(Network, X).init(KEY)[0]

    def experiment(model):
        return Experiment.of(
            dataset=DATA, partition=PARTS, algo="fl_dp3s", num_selected=2, rounds=2, chunk=2, local_steps=2,
            batch_size=5, selection_seed=7, model=model,
        )  # fmt: skip

    posed = problem.pose(experiment(Written()))
    written = posed.model._replace(init=lambda key: models.Weights(weights, ()))
    results = [fedjax_sel.run(experiment(model)) for model in (written, Network(nnx.Rngs(KEY)))]
    assert [result.model.profile_size for result in results] == [5, 5]
    np.testing.assert_array_equal(*[result.cohorts for result in results])
    np.testing.assert_array_equal(*[result.ledger.bytes_up for result in results])
    chosen = problem.pose(experiment(models.from_nnx(Network, profile_layer="conv")))
    assert chosen.model.profile_size == 8 * 8 * 3


class Deep(nnx.Module):
    """A stack of layers in `nnx.scan`, one layer in `nnx.remat`, one in `nnx.jit` that runs twice."""

    def __init__(self, rngs):
        @nnx.split_rngs(splits=4)
        @nnx.vmap
        def stacked(rngs):
            return nnx.Linear(8, 8, rngs=rngs)

        self.stack = stacked(rngs)
        self.kept = nnx.Linear(8, 7, rngs=rngs)
        self.twice = nnx.Linear(7, 7, rngs=rngs)
        self.layers = getattr(nnx, "List", list)([nnx.LayerNorm(7, rngs=rngs), nnx.Linear(7, 3, rngs=rngs)])

    def __call__(self, x):
        @nnx.scan(in_axes=(0, nnx.Carry), out_axes=nnx.Carry)
        def through(layer, x):
            return jnp.tanh(layer(x))

        x = through(self.stack, x.mean((1, 2)).repeat(4, axis=1))
        x = nnx.remat(lambda layer, x: layer(x))(self.kept, x)
        twice = nnx.jit(lambda layer, x: layer(x))
        x = twice(self.twice, twice(self.twice, x))
        for layer in self.layers:
            x = layer(x)
        return x


@pytest.mark.slow
def test_a_layer_inside_a_transform_is_read_and_one_inside_a_scan_passed_over():
    pure = from_nnx(Deep, X)
    trained, carried = pure.init(KEY)
    module = Deep(nnx.Rngs(KEY))
    seen = {}
    for layer in (None, "kept", "twice", "layers/0"):
        (output, seen[layer]), _ = jax.jit(pure.apply_with_layer(layer), static_argnums=4)(
            trained, carried, X, None, False
        )
        np.testing.assert_allclose(output, module(X), atol=1e-5)
    np.testing.assert_array_equal(seen[None], seen["kept"])
    np.testing.assert_allclose(seen["twice"], module.twice(seen["kept"]), atol=1e-5)  # of its first call
    np.testing.assert_allclose(module.layers[1](seen["layers/0"]), output, atol=1e-5)
    with pytest.raises(UserError) as refused:
        pure.apply_with_layer("stack")
    assert str(refused.value) == (
        "profile_layer: Deep has no layer 'stack' whose output could be the profile; name one of its layers, kept, "
        "twice, layers/0, layers/1"
    )


class Convolved(nnx.Module):
    def __init__(self, rngs):
        self.conv = nnx.Conv(2, 3, (3, 3), rngs=rngs)

    def __call__(self, x):
        return self.conv(x).mean((1, 2))


class Bare(nnx.Module):
    def __init__(self, rngs):
        self.scale = nnx.Param(jnp.ones(2))

    def __call__(self, x):
        return (x * self.scale[...]).mean((1, 2))


@pytest.mark.parametrize(
    "module,layer,words",
    [
        (Convolved, None, r"Convolved has no fully-connected layer \(nnx.Linear\) whose .* its layers, conv$"),
        (Network, "fc3", "Network has no layer 'fc3' whose output .* name one of its layers, conv, fc1, drop, fc2$"),
        (Bare, None, "Bare has no fully-connected layer .* name another model, since it has no layers"),
    ],
)
def test_a_layer_that_is_not_there_is_refused_in_one_sentence(module, layer, words):
    with pytest.raises(UserError, match=words) as refused:
        from_nnx(module, X).apply_with_layer(layer)
    assert str(refused.value).startswith("profile_layer: ") and "\n" not in str(refused.value)


def test_a_strategy_is_refused_where_no_layer_was_found():
    with pytest.raises(UserError, match=r"fl_dp3s: it requests profiles, but no .* in Convolved; .*models.from_nnx\("):
        problem.pose(
            Experiment.of(dataset=DATA, partition=PARTS, algo="fl_dp3s", num_selected=2, model=partial(Convolved))
        )
