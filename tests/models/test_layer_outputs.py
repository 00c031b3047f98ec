"""The output of a named layer: equal to what is computed by hand, in the same pass, and refused where there is none."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_sel.errors import UserError
from fedjax_sel.models.layers import faster_convolutions
from fedjax_sel.models.linen import from_linen

X = jax.random.normal(jax.random.key(7), (6, 5))
KEY = jax.random.key(3)


def of_client(client, stacked):
    return jax.tree.map(lambda leaf: leaf[client], stacked)


def applied(module, variables, inputs, layer=None):
    """The output and a layer's in evaluation."""
    apply = from_linen(module, inputs).apply_with_layer(layer)
    carried = {key: variables[key] for key in variables if key != "params"}
    return apply(variables["params"], carried, inputs, None, False)[0]


class Block(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.relu(nn.Conv(2, (3,))(x[..., None])).reshape(len(x), -1)


class Net(nn.Module):
    @nn.compact
    def __call__(self, x, train: bool = False):
        x = nn.remat(Block)(name="block_1")(x)
        hidden = nn.BatchNorm(use_running_average=not train)(nn.Dense(4)(x))
        hidden = nn.Dropout(0.5, deterministic=not train)(hidden)
        return nn.Dense(3, name="head")(nn.Dense(4, name="shared")(nn.relu(hidden)))


class Recurrent(nn.Module):
    """Its cells hold Dense layers inside a scan, whose outputs nobody outside can read."""

    @nn.compact
    def __call__(self, x):
        return nn.Dense(3)(nn.RNN(nn.GRUCell(4))(x[..., None])[:, -1])


@pytest.mark.slow
def test_the_first_fully_connected_layer_is_the_default():
    variables = Net().init(KEY, X)
    output, layer = applied(Net(), variables, X)
    block = Block().apply({"params": variables["params"]["block_1"]}, X)
    dense = variables["params"]["Dense_0"]
    np.testing.assert_allclose(layer, block @ dense["kernel"] + dense["bias"], atol=1e-6)
    np.testing.assert_allclose(output, Net().apply(variables, X), atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name,shape", [("block_1/Conv_0", (6, 5, 2)), ("block_1", (6, 10)), ("shared", (6, 4))])
def test_a_layer_by_its_path(name, shape):
    output, layer = applied(Net(), Net().init(KEY, X), X, name)
    assert layer.shape == shape and output.shape == (6, 3)


@pytest.mark.slow
def test_a_layer_inside_a_scan_is_passed_over():
    variables = Recurrent().init(KEY, X)
    output, layer = jax.jit(lambda v: applied(Recurrent(), v, X))(variables)
    np.testing.assert_allclose(output, layer)  # the last layer is the first that can be read
    with pytest.raises(UserError, match="no layer 'RNN_0/cell/hn'"):
        applied(Recurrent(), variables, X, "RNN_0/cell/hn")


def test_nothing_is_computed_twice():
    variables = Net().init(KEY, X)
    traced = jax.make_jaxpr(lambda v: applied(Net(), v, X, "head"))(variables)
    with faster_convolutions():
        alone = jax.make_jaxpr(lambda v: Net().apply(v, X))(variables)
    assert str(traced).count(" dot_general[") == str(alone).count(" dot_general[") == 4


@pytest.mark.slow
def test_under_jit_and_vmap_over_clients():
    pure = from_linen(Net(), X)
    keys = jax.random.split(KEY, 3)
    trained, carried = jax.vmap(pure.init)(keys)
    apply = pure.apply_with_layer(None)

    def train(trained, carried, key):
        return apply(trained, carried, X, key, True)

    (output, layer), kept = jax.jit(jax.vmap(train))(trained, carried, keys)
    assert output.shape == (3, 6, 3) and layer.shape == (3, 6, 4)
    assert set(kept) == {"batch_stats"}  # what was captured is not carried
    for client in range(3):
        alone = of_client(client, (trained, carried))
        (_, expected), _ = train(*alone, keys[client])
        np.testing.assert_allclose(layer[client], expected, atol=1e-5)
        np.testing.assert_allclose(output[client], pure.apply(*alone, X, keys[client], True)[0], atol=1e-5)


def test_a_layer_that_is_not_there_is_refused_before_anything_is_compiled():
    pure = from_linen(Net(), X)
    with pytest.raises(UserError) as refused:
        pure.apply_with_layer("Dense_7")
    there_are = "block_1, block_1/Conv_0, Dense_0, BatchNorm_0, Dropout_0, shared, head"
    assert f"Net has no layer 'Dense_7' whose output could be the profile; name one of its layers, {there_are}" in str(
        refused.value
    )
    with pytest.raises(UserError, match=r"Block has no fully-connected layer .* name one of its layers, Conv_0"):
        jax.eval_shape(lambda v: applied(Block(), v, X), jax.eval_shape(Block().init, KEY, X))


def test_a_module_without_layers():
    class Bare(nn.Module):
        @nn.compact
        def __call__(self, x):
            return x * self.param("scale", nn.initializers.ones, (5,))

    with pytest.raises(UserError, match="name another model, since it has no layers"):
        from_linen(Bare(), X).apply_with_layer(None)


def test_tokens_as_inputs():
    module = nn.Sequential([nn.Embed(9, 4), lambda x: x.mean(1), nn.Dense(3)])
    tokens = jnp.ones((6, 3), jnp.int32)
    output, layer = applied(module, module.init(KEY, tokens), tokens)
    np.testing.assert_array_equal(output, layer)


class Queries(nn.Module):
    """Its first fully-connected layer sees what is learned, and not the examples."""

    @nn.compact
    def __call__(self, x):
        query = nn.Dense(3, name="of_itself")(self.param("query", nn.initializers.ones, (1, 4)))
        return nn.Dense(2, name="of_examples")(x) + query.mean()


def test_a_layer_that_does_not_see_examples_is_passed_over():
    x = jnp.ones((5, 4))
    variables = Queries().init(jax.random.key(0), x)
    assert applied(Queries(), variables, x)[1].shape == (5, 2)
    with pytest.raises(UserError, match=r"has no layer 'of_itself' whose .*; name .*of_examples"):
        applied(Queries(), variables, x, "of_itself")
