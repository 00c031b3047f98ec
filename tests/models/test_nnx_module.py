"""An NNX module as pure functions: the same numbers as the module's own calls, and one sentence where that fails."""

from functools import partial

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from fedjax_sel.errors import UserError
from fedjax_sel.models.nnx import from_nnx

X = jax.random.normal(jax.random.key(7), (6, 5))
KEY = jax.random.key(3)


def of_client(client, stacked):
    return jax.tree.map(lambda leaf: leaf[client], stacked)


class Regularised(nnx.Module):
    """Batch normalization and dropout, as in Flax's own guides."""

    def __init__(self, features, *, rngs):
        self.first = nnx.Linear(5, features, rngs=rngs)
        self.norm = nnx.BatchNorm(features, rngs=rngs)
        self.drop = nnx.Dropout(0.5, rngs=rngs)
        self.last = nnx.Linear(features, 3, rngs=rngs)

    def __call__(self, x):
        return self.last(self.drop(nnx.relu(self.norm(self.first(x)))))


class Plain(nnx.Module):
    def __init__(self, rngs):
        self.only = nnx.Linear(5, 3, rngs=rngs)

    def __call__(self, x):
        return self.only(x)


class Flagged(nnx.Module):
    def __init__(self, rngs):
        self.rngs = rngs

    def __call__(self, x, train=False):
        return x + jax.random.normal(self.rngs.noise(), x.shape) if train else x


class Stacked(nnx.Module):
    """Layers made by `nnx.vmap`, of which each has a stream of its own."""

    def __init__(self, rngs):
        @partial(nnx.vmap, in_axes=(0,), out_axes=0)
        def make(key):
            return nnx.Dropout(0.5, rngs=nnx.Rngs(dropout=key))

        self.drops = make(jax.random.split(rngs.params(), 6))

    def __call__(self, x):
        return nnx.vmap(lambda drop, row: drop(row), in_axes=(0, 0))(self.drops, x)


def test_weights_and_statistics_have_their_own_names():
    trained, carried = from_nnx(partial(Regularised, 4), X).init(KEY)
    assert {name: set(leaves) for name, leaves in trained.items()} == {
        "first": {"kernel", "bias"}, "norm": {"scale", "bias"}, "last": {"kernel", "bias"}
    }  # fmt: skip
    assert {name: set(leaves) for name, leaves in carried.items()} == {"norm": {"mean", "var"}}
    expected = Regularised(4, rngs=nnx.Rngs(KEY))
    np.testing.assert_array_equal(trained["last"]["kernel"], expected.last.kernel[...])


def test_statistics_move_in_training_and_not_in_evaluation():
    pure = from_nnx(partial(Regularised, 4), jax.ShapeDtypeStruct((1, 5), jnp.float32))
    trained, carried = pure.init(KEY)
    _, after = pure.apply(trained, carried, X, KEY, True)
    module = Regularised(4, rngs=nnx.Rngs(KEY))
    module.train()
    module(X)
    np.testing.assert_allclose(after["norm"]["mean"], module.norm.mean[...], rtol=1e-6)
    np.testing.assert_allclose(after["norm"]["var"], module.norm.var[...], rtol=1e-6)
    assert not np.array_equal(after["norm"]["mean"], carried["norm"]["mean"])
    output, kept = pure.apply(trained, after, X, None, False)
    chex.assert_trees_all_equal(kept, after)
    module.eval()
    np.testing.assert_allclose(output, module(X), rtol=1e-5)


def test_dropout_depends_on_the_key_alone():
    pure = from_nnx(partial(Regularised, 4), X)
    state = pure.init(KEY)
    one, again, other = (pure.apply(*state, X, jax.random.key(i), True)[0] for i in (0, 0, 1))
    np.testing.assert_array_equal(one, again)
    assert (one != other).any()


def test_a_module_without_a_flag_and_one_with_its_own():
    pure = from_nnx(Plain, X)
    trained, carried = pure.init(KEY)
    assert carried == {}
    expected = X @ trained["only"]["kernel"] + trained["only"]["bias"]
    for key, train in ((KEY, True), (None, True), (None, False)):
        np.testing.assert_allclose(pure.apply(trained, carried, X, key, train)[0], expected, atol=1e-6)
    pure = from_nnx(Flagged, X)
    np.testing.assert_array_equal(pure.apply({}, {}, X, None, False)[0], X)
    one, other = (pure.apply({}, {}, X, jax.random.key(i), True)[0] for i in (0, 1))
    assert (one != X).all() and (one != other).all()


class ByAttribute(nnx.Module):
    """Its flag is an attribute of a module inside it, as its author left it."""

    def __init__(self, rngs, name="training", value=False, in_training=True):
        self.inside = Inside(rngs, name, value, in_training)

    def __call__(self, x):
        return self.inside(x)


class Inside(nnx.Module):
    def __init__(self, rngs, name, value, in_training):
        self.norm, self.drop = nnx.BatchNorm(5, rngs=rngs), nnx.Dropout(0.5, rngs=rngs)
        self.name, self.in_training = name, in_training
        setattr(self, name, value)

    def __call__(self, x):
        train = getattr(self, self.name) == self.in_training
        return self.drop(self.norm(x, use_running_average=not train), deterministic=not train)


def statistics_move(pure):
    trained, carried = pure.init(KEY)
    output, after = pure.apply(trained, carried, X, KEY, True)
    np.testing.assert_allclose(pure.apply(trained, carried, X, None, False)[0], X, rtol=1e-4)
    return bool((output == 0).any()) and (after["inside"]["norm"]["mean"] != carried["inside"]["norm"]["mean"]).any()


@pytest.mark.parametrize("name,value,in_training", [("training", False, True), ("train", None, True)])
def test_a_flag_that_is_an_attribute(name, value, in_training):
    assert statistics_move(from_nnx(partial(ByAttribute, name=name, value=value, in_training=in_training), X))


def test_a_flag_of_another_name_is_refused_and_can_be_named():
    make = partial(ByAttribute, name="mode", value="eval", in_training="train")
    with pytest.raises(UserError, match=r"ByAttribute has an inactive Dropout layer in a training pass; for a flag"):
        from_nnx(make, X)
    assert not statistics_move(from_nnx(make, X, training_flags={}))
    assert statistics_move(from_nnx(make, X, training_flags={"mode": ("train", "eval")}))
    with pytest.raises(UserError, match="ByAttribute has no argument of __call__ and no attribute 'mood'"):
        from_nnx(make, X, training_flags={"mood": ("train", "eval")})


def test_statistics_that_no_training_pass_changes_are_refused():
    class Frozen(nnx.Module):
        def __init__(self, rngs):
            self.norm = nnx.BatchNorm(5, rngs=rngs)

        def __call__(self, x, fitting=False):
            return self.norm(x, use_running_average=not fitting)

    with pytest.raises(UserError, match="Frozen has batch statistics that do not change in a training pass"):
        from_nnx(Frozen, X)
    pure = from_nnx(Frozen, X, training_flags={"fitting": (True, False)})
    trained, carried = pure.init(KEY)
    assert (pure.apply(trained, carried, X, KEY, True)[1]["norm"]["mean"] != carried["norm"]["mean"]).any()


def test_an_inverted_flag_is_named():
    class Inverted(nnx.Module):
        def __init__(self, rngs):
            self.norm = nnx.BatchNorm(5, rngs=rngs)

        def __call__(self, x, train=False):
            return self.norm(x, use_running_average=train)

    with pytest.raises(UserError, match=r"with train=True; .* pass training_flags={'train': \(True, False\)}"):
        from_nnx(Inverted, X)
    from_nnx(Inverted, X, training_flags={"train": (False, True)})


def test_stacked_streams_differ():
    pure = from_nnx(Stacked, X)
    kept = pure.apply(*pure.init(KEY), jnp.ones((6, 40)), KEY, True)[0] != 0
    assert len(np.unique(kept, axis=0)) == 6


def test_a_list_of_layers_is_named_by_places():
    class Deep(nnx.Module):
        def __init__(self, rngs):
            self.layers = getattr(nnx, "List", list)(nnx.Linear(5, 5, rngs=rngs) for _ in range(11))

        def __call__(self, x):
            for layer in self.layers:
                x = layer(x)
            return x

    pure = from_nnx(Deep, X)
    trained, carried = pure.init(KEY)
    assert set(trained["layers"]) == {str(place) for place in range(11)}
    module = Deep(nnx.Rngs(KEY))
    np.testing.assert_allclose(pure.apply(trained, carried, X, None, False)[0], module(X), atol=1e-5)


def test_an_instance_gives_every_seed_its_weights():
    module = Plain(nnx.Rngs(11))
    pure = from_nnx(module, X)
    for seed in (0, 1):
        trained, carried = pure.init(jax.random.key(seed))
        np.testing.assert_array_equal(trained["only"]["kernel"], module.only.kernel[...])
    jax.block_until_ready(jax.vmap(pure.init)(jax.random.split(KEY, 2)))
    pure.apply(trained, carried, X, KEY, True)
    np.testing.assert_allclose(module(X), pure.apply(trained, carried, X, None, False)[0], rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("make", [lambda: partial(Regularised, 4), lambda: Regularised(4, rngs=nnx.Rngs(0))])
def test_it_works_with_weights_for_every_client(make):
    pure = from_nnx(make(), X)
    keys = jax.random.split(KEY, 3)
    trained, carried = jax.vmap(pure.init)(keys)

    def loss(trained, carried, key):
        output, carried = pure.apply(trained, carried, X, key, True)
        return (output**2).mean(), carried

    def step(state, key):
        gradient, carried = jax.grad(loss, has_aux=True)(*state, key)
        return (jax.tree.map(lambda w, g: w - 0.1 * g, state[0], gradient), carried), None

    def train(trained, carried, key):
        return jax.lax.scan(step, (trained, carried), jax.random.split(key, 5))[0]

    together = jax.jit(jax.vmap(train))(trained, carried, keys)
    for client in range(3):
        alone = train(*of_client(client, (trained, carried)), keys[client])
        jax.tree.map(partial(np.testing.assert_allclose, atol=1e-5), of_client(client, together), alone)


@pytest.mark.parametrize("cell", [nnx.GRUCell, nnx.LSTMCell])
def test_a_recurrent_layer_takes_a_key_and_does_not_use_it(cell):
    class Recurrent(nnx.Module):
        def __init__(self, rngs):
            self.hidden, self.out = nnx.RNN(cell(5, 4, rngs=rngs)), nnx.Linear(4, 2, rngs=rngs)

        def __call__(self, x):
            return self.out(self.hidden(x)[:, -1])

    pure, inputs = from_nnx(Recurrent, jnp.ones((3, 6, 5))), jax.random.normal(KEY, (3, 6, 5))
    weights = pure.init(KEY)
    outputs = [pure.apply(*weights, inputs, key, True)[0] for key in (None, jax.random.key(7))]
    assert outputs[0].shape == (3, 2) and np.array_equal(*outputs)


class AlwaysDraws(nnx.Module):
    def __init__(self, rngs):
        self.rngs = rngs

    def __call__(self, x):
        return x + jax.random.normal(self.rngs.noise(), x.shape)


class NeedsMore(Plain):
    def __call__(self, x, mask):
        return self.only(x) * mask


class Grows(nnx.Module):
    def __init__(self, rngs):
        self.seen = nnx.BatchStat(jnp.zeros((0, 5)))

    def __call__(self, x):
        self.seen = nnx.BatchStat(jnp.concatenate([self.seen[...], x]))
        return x


@pytest.mark.parametrize(
    "module,words",
    [
        (AlwaysDraws, "AlwaysDraws draws random numbers in evaluation"),
        (NeedsMore, "NeedsMore.__call__ requires an argument 'mask'"),
        (Grows, "Grows changes the shape of the state"),
    ],
    ids=["draws", "argument", "grows"],
)
def test_what_nobody_can_give_is_refused_in_one_sentence(module, words):
    with pytest.raises(UserError, match=words) as refused:
        from_nnx(module, X)
    assert "\n" not in str(refused.value) and str(refused.value).startswith("model: ")
