"""A flax.linen module as pure functions: the same numbers as Flax's own calls, and one sentence where that fails."""

from functools import partial

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_sel.errors import UserError
from fedjax_sel.models.core import stream_key
from fedjax_sel.models.linen import from_linen

X = jax.random.normal(jax.random.key(7), (6, 5))
KEY = jax.random.key(3)


def of_client(client, stacked):
    return jax.tree.map(lambda leaf: leaf[client], stacked)


class Regularised(nn.Module):
    """Batch normalization and dropout, as in Flax's own guides."""

    @nn.compact
    def __call__(self, x, train: bool = False):
        x = nn.BatchNorm(use_running_average=not train)(nn.Dense(4)(x))
        return nn.Dense(3)(nn.Dropout(0.5, deterministic=not train)(nn.relu(x)))


class Plain(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dense(3)(x)


def dropout_called(flag, meaning):
    """A module whose flag has a given name; `meaning` is what the flag says in training."""
    space = {}
    exec(f"def __call__(self, x, *, {flag}): return self.drop(x, deterministic={flag} is not {meaning})", space)
    body = {"setup": lambda self: setattr(self, "drop", nn.Dropout(0.5)), "__call__": space["__call__"]}
    return type("Named", (nn.Module,), body)()


def test_the_weights_are_those_of_flaxs_own_init():
    trained, carried = from_linen(Regularised(), X).init(KEY)
    variables = Regularised().init(KEY, X)
    chex.assert_trees_all_equal(trained, dict(variables["params"]))
    chex.assert_trees_all_equal(carried, {"batch_stats": variables["batch_stats"]})


def test_statistics_move_in_training_and_not_in_evaluation():
    pure = from_linen(Regularised(), jax.ShapeDtypeStruct((1, 5), jnp.float32))  # another size of the batch
    trained, carried = pure.init(KEY)
    output, after = pure.apply(trained, carried, X, KEY, True)
    rngs = {"dropout": stream_key(KEY, "dropout")}
    expected, updated = Regularised().apply(
        {"params": trained, **carried}, X, train=True, rngs=rngs, mutable=["batch_stats"]
    )
    np.testing.assert_array_equal(output, expected)
    chex.assert_trees_all_equal(after, dict(updated))
    assert not np.array_equal(
        after["batch_stats"]["BatchNorm_0"]["mean"], carried["batch_stats"]["BatchNorm_0"]["mean"]
    )
    output, kept = pure.apply(trained, after, X, None, False)
    chex.assert_trees_all_equal(kept, after)
    np.testing.assert_array_equal(output, Regularised().apply({"params": trained, **after}, X))


def test_dropout_depends_on_the_key():
    pure = from_linen(Regularised(), X)
    state = pure.init(KEY)
    one, again, other = (pure.apply(*state, X, jax.random.key(i), True)[0] for i in (0, 0, 1))
    np.testing.assert_array_equal(one, again)
    assert (one != other).any()


def test_a_module_without_a_flag():
    pure = from_linen(Plain(), X)
    trained, carried = pure.init(KEY)
    assert carried == {}
    for key, train in ((KEY, True), (None, True), (None, False)):
        output, carried = pure.apply(trained, carried, X, key, train)
        np.testing.assert_array_equal(output, Plain().apply({"params": trained}, X))
        assert carried == {}


@pytest.mark.parametrize(
    "flag,meaning",
    [("train", True), ("training", True), ("is_training", True), ("deterministic", False),
     ("use_running_average", False)],
)  # fmt: skip
def test_flags_by_their_usual_names(flag, meaning):
    pure = from_linen(dropout_called(flag, meaning), X)
    state = pure.init(KEY)
    np.testing.assert_array_equal(pure.apply(*state, X, None, False)[0], X)
    assert (pure.apply(*state, X, KEY, True)[0] == 0).any()


def test_a_flag_that_is_a_field_of_the_module():
    pure = from_linen(nn.Dropout(0.5), X)  # has both: the argument is told
    assert (pure.apply({}, {}, X, KEY, True)[0] == 0).any()

    class Field(nn.Module):
        train: bool = True

        @nn.compact
        def __call__(self, x):
            return nn.Dropout(0.5, deterministic=not self.train)(x)

    pure = from_linen(Field(), X)
    np.testing.assert_array_equal(pure.apply({}, {}, X, None, False)[0], X)
    assert (pure.apply({}, {}, X, KEY, True)[0] == 0).any()


class ByMode(nn.Module):
    """Its flag has a name and values of its own."""

    rate: float = 0.5
    normalizes: bool = True
    phase: str = "eval"

    @nn.compact
    def __call__(self, x, mode="eval"):
        trains = "train" in (mode, self.phase)
        if self.normalizes:
            x = nn.BatchNorm(use_running_average=not trains)(x)
        return nn.Dropout(self.rate, deterministic=not trains)(x)


@pytest.mark.parametrize(
    "module,words",
    [(ByMode(rate=0.0), "ByMode has batch statistics that do not change in a training pass"),
     (ByMode(normalizes=False), "ByMode has an inactive Dropout layer in a training pass"),
     (nn.Sequential([nn.Dense(4), nn.BatchNorm(use_running_average=True)]), "Sequential has batch statistics")],
)  # fmt: skip
def test_a_flag_of_another_name_is_refused_and_can_be_named(module, words):
    with pytest.raises(UserError, match=words) as refused:
        from_linen(module, X)
    for known in (
        "train,",
        "use_running_average,",
        "training_flags={'name': (in training, in evaluation)}",
        "pass training_flags={}, which disables this check",
    ):
        assert known in str(refused.value) and "\n" not in str(refused.value)
    pure = from_linen(module, X, training_flags={})
    state = pure.init(KEY)
    chex.assert_trees_all_equal(pure.apply(*state, X, KEY, True), pure.apply(*state, X, None, False))


def test_statistics_of_the_batch_are_not_for_evaluation():
    class Always(nn.Module):
        @nn.compact
        def __call__(self, x):
            return nn.remat(nn.BatchNorm)(use_running_average=False)(x)

    with pytest.raises(UserError, match="Always uses each batch's own statistics in evaluation; give its __call__ a"):
        from_linen(Always(), X)
    pure = from_linen(Always(), X, training_flags={})
    assert np.abs(pure.apply(*pure.init(KEY), X, None, False)[0].mean(axis=0)).max() < 1e-4


def test_an_inverted_flag_is_named():
    class Inverted(nn.Module):
        @nn.compact
        def __call__(self, x, train=False):
            return nn.BatchNorm(use_running_average=train)(x)

    with pytest.raises(UserError, match=r"Inverted has batch statistics that do not change .* with train=True"):
        from_linen(Inverted(), X)
    from_linen(Inverted(), X, training_flags={"train": (False, True)})


@pytest.mark.parametrize("name", ["mode", "phase"], ids=["argument", "field"])
def test_a_flag_that_is_named_is_told(name):
    pure = from_linen(ByMode(), X, training_flags={name: ("train", "eval")})
    trained, carried = pure.init(KEY)
    output, after = pure.apply(trained, carried, X, KEY, True)
    mean = "batch_stats", "BatchNorm_0", "mean"
    assert (output == 0).any() and (after[mean[0]][mean[1]][mean[2]] != carried[mean[0]][mean[1]][mean[2]]).all()
    np.testing.assert_array_equal(pure.apply(trained, carried, X, None, False)[0], ByMode().apply(
        {"params": trained, **carried}, X))  # fmt: skip


@pytest.mark.parametrize(
    "flags,words",
    [({"mood": ("train", "eval")}, "no argument of __call__ and no attribute 'mood'"),
     ({"train": True}, "does not map names to pairs")],
)  # fmt: skip
def test_flags_that_are_named_wrongly(flags, words):
    with pytest.raises(UserError, match=words):
        from_linen(Regularised(), X, training_flags=flags)


@pytest.mark.parametrize("boxed", [nn.with_partitioning, nn.with_logical_partitioning])
def test_what_says_how_arrays_lie_on_devices_is_taken_off(boxed):
    class Sharded(nn.Module):
        @nn.compact
        def __call__(self, x):
            return nn.Dense(3, kernel_init=boxed(nn.initializers.lecun_normal(), (None, "model")))(x)

    pure = from_linen(Sharded(), X)
    trained, carried = pure.init(KEY)
    assert isinstance(trained["Dense_0"]["kernel"], jax.Array)
    expected = nn.Dense(3).init(KEY, X)
    assert jax.tree.structure(trained["Dense_0"]) == jax.tree.structure(dict(expected["params"]))
    output, _ = pure.apply(trained, carried, X, KEY, True)
    np.testing.assert_allclose(output, X @ trained["Dense_0"]["kernel"], rtol=1e-5, atol=1e-6)
    pure.apply_with_layer(None)


def test_every_stream_has_a_key_by_its_name():
    class Noisy(nn.Module):
        @nn.compact
        def __call__(self, x, train: bool = False):
            if not train:
                return x, x
            return tuple(jax.random.normal(self.make_rng(name), x.shape) for name in ("noise", "dropout"))

    class OnlyDropout(nn.Module):
        @nn.compact
        def __call__(self, x, train: bool = False):
            return jax.random.normal(self.make_rng("dropout"), x.shape) if train else x

    noise, dropout = from_linen(Noisy(), X).apply({}, {}, X, KEY, True)[0]
    assert (noise != dropout).all()
    np.testing.assert_array_equal(dropout, from_linen(OnlyDropout(), X).apply({}, {}, X, KEY, True)[0])


@pytest.mark.slow
def test_it_works_with_weights_for_every_client():
    pure = from_linen(Regularised(), X)
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


def test_inputs_may_be_a_pytree_and_tokens():
    class Joined(nn.Module):
        @nn.compact
        def __call__(self, inputs):
            return nn.Embed(9, 4)(inputs["tokens"]).mean(1) + nn.Dense(4)(inputs["features"])

    inputs = {"tokens": jnp.ones((6, 3), jnp.int32), "features": X}
    pure = from_linen(Joined(), inputs)
    assert pure.apply(*pure.init(KEY), inputs, None, True)[0].shape == (6, 4)


class NeedsMore(nn.Module):
    @nn.compact
    def __call__(self, x, mask):
        return x * mask


class AlwaysDrops(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dropout(0.5, deterministic=False)(x)


class Sows(nn.Module):
    @nn.compact
    def __call__(self, x):
        self.sow("losses", "size", jnp.square(x).mean())
        return nn.Dense(4)(x)


@pytest.mark.parametrize(
    "module,words",
    [
        (Sows(), "a training pass of Sows changes the shape of its collection 'losses', .*; sow to 'intermediates'"),
        (NeedsMore(), "NeedsMore.__call__ requires an argument 'mask'"),
        (AlwaysDrops(), "AlwaysDrops draws from the stream 'dropout' in evaluation"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_nobody_can_give_is_refused_in_one_sentence(module, words):
    with pytest.raises(UserError, match=words) as refused:
        from_linen(module, X)
    assert "\n" not in str(refused.value) and str(refused.value).startswith("model: ")
