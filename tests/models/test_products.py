"""The precision of a model's multiplications, and that nothing else is in it."""

import typing

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedjax_sel
from fedjax_sel import config, models, strategies
from fedjax_sel.errors import UserError
from fedjax_sel.experiment import Experiment
from fedjax_sel.experiment.checking import check
from fedjax_sel.experiment.problem import pose
from fedjax_sel.models import core, layers
from fedjax_sel.simulation import run

BF16 = jnp.bfloat16
HIGHEST = (jax.lax.Precision.HIGHEST,) * 2
SMALL = fedjax_sel.Config().replace(
    num_clients=10, num_selected=3, rounds=6, chunk=6, local_steps=3, batch_size=16, learning_rate=0.2, seeds=1
)


def multiplications(jaxpr):
    """Every product and convolution, inner programs included."""
    for equation in jaxpr.eqns:
        if equation.primitive.name in ("dot_general", "conv_general_dilated"):
            yield equation
        for value in jax.tree.leaves(equation.params, is_leaf=lambda leaf: hasattr(leaf, "eqns")):
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                yield from multiplications(inner)


def is_narrow(equation):
    types = {variable.aval.dtype for variable in (*equation.invars, *equation.outvars)}
    return types == {jnp.dtype(BF16)}


def is_float32(equation):
    types = {variable.aval.dtype for variable in equation.invars}
    return types == {jnp.dtype(jnp.float32)} and equation.params["precision"] == HIGHEST


def test_the_flag_offers_what_there_is():
    flat = config.flat_types()
    assert typing.get_args(flat["precision"]) == core.PRECISIONS
    assert typing.get_args(flat["initializer"]) == layers.INITIALIZERS


@pytest.mark.parametrize("product", [layers.matmul, layers.transposed_product])
def test_bfloat16_rounds_factors_and_results_and_sums_in_more(product):
    x = jax.random.normal(jax.random.key(0), (4, 300))
    kernel = jax.random.normal(jax.random.key(1), (7, 300) if product is layers.matmul else (300, 7))
    rounded = [np.asarray(each.astype(BF16), np.float64) for each in (x, kernel)]
    exact = rounded[0] @ (rounded[1].T if product is layers.matmul else rounded[1])
    found = product(x, kernel, precision="bfloat16")
    assert found.dtype == jnp.float32
    np.testing.assert_allclose(found, exact, rtol=2**-8, atol=1e-3)  # one rounding of the result
    np.testing.assert_array_equal(found, found.astype(BF16).astype(jnp.float32))
    assert abs(found - product(x, kernel)).max() > 1e-3


@pytest.mark.slow
def test_convolutions_in_bfloat16_are_those_of_float32_up_to_rounding():
    x = jax.random.normal(jax.random.key(0), (64, 12, 12, 16))
    narrow, plain = (layers.Conv(8, 3, precision=precision) for precision in ("bfloat16", "float32"))
    params = plain.init(jax.random.key(1), x)
    y, expected = narrow.apply(params, x), plain.apply(params, x)
    scale = float(jnp.std(expected))
    assert 1e-4 * scale < float(jnp.abs(y - expected).max()) < 0.04 * scale


@pytest.mark.parametrize("precision", core.PRECISIONS)
@pytest.mark.parametrize("name", models.TABLE)
def test_every_multiplication_of_a_model_and_of_its_gradient_is_in_it(name, precision):
    shape = (28, 28, 1)
    model = models.make(name, shape, 10, precision=precision)
    params, images = jax.eval_shape(model.init, jax.random.key(0)), jax.ShapeDtypeStruct((4, *shape), jnp.float32)
    loss = jax.grad(lambda params, images: model.apply(params, images, None).prediction.sum())
    found = list(multiplications(jax.make_jaxpr(loss)(params, images).jaxpr))
    layers_ = {"mlp": 3, "cnn": 5, "cnn_small": 4}[name]
    assert len(found) == 3 * layers_ - 1  # forward, and the gradients by weights and, but for the first, by inputs
    for equation in found:
        if precision == "bfloat16":
            assert is_narrow(equation)
        else:
            assert not is_narrow(equation)
            assert equation.params["precision"] == (core.LEVELS[precision],) * 2


@pytest.mark.parametrize("name", ["logistic", "lenet", pytest.param("resnet8", marks=pytest.mark.slow)])
def test_what_a_module_of_plain_flax_leaves_open_is_float32(name):
    images = jax.ShapeDtypeStruct((4, 28, 28, 1), jnp.float32)
    model = models.make_plain(name, images, 10)
    weights = jax.eval_shape(model.init, jax.random.key(0))

    def loss(trained, images):
        draws = model.draw(jax.random.key(1), 4)
        return model.apply(weights._replace(trained=trained), images, draws).prediction.sum()

    found = list(multiplications(jax.make_jaxpr(jax.grad(loss))(weights.trained, images).jaxpr))
    assert len(found) >= 2
    assert {equation.params["precision"] for equation in found} == {(core.LEVELS["float32"],) * 2}


@pytest.mark.slow
@pytest.mark.parametrize("algo", strategies.names())
def test_strategies_and_the_server_multiply_in_float32_whatever_the_model_does(algo):
    timing = "tiers" if strategies.make(algo).needs_clock else "none"
    program = run.prepare(pose(SMALL.replace(algo=algo, precision="bfloat16", timing=timing)))
    given = program.carry, np.int32(0), program.federation, program.streams
    found = list(multiplications(program.chunk.trace(*given).jaxpr.jaxpr))
    assert {leaf.dtype for leaf in jax.tree.leaves(program.carry.params)} == {jnp.dtype(jnp.float32)}
    narrow = [equation for equation in found if is_narrow(equation)]
    assert len(narrow) >= 3 * 3 - 1 + 3  # a step of the MLP, and its evaluation
    others = [equation for equation in found if not is_narrow(equation)]
    assert all(
        is_float32(equation) or not jnp.issubdtype(equation.invars[0].aval.dtype, jnp.floating) for equation in others
    )


@pytest.mark.slow
def test_a_run_in_bfloat16_learns_as_well(tmp_path):
    results = {}
    for precision in ("float32", "bfloat16"):
        out = str(tmp_path / precision)
        results[precision] = fedjax_sel.run(SMALL.replace(algo="random", rounds=30, precision=precision, out=out))
    plain, narrow = (np.asarray(result.test_loss)[0] for result in results.values())
    assert plain[-1] < 0.7 * plain[0] and abs(narrow[-1] - plain[-1]) < 0.1 * plain[-1]
    assert (plain != narrow).any()


def test_a_cpu_has_no_tf32():
    with pytest.raises(UserError, match="--precision: CPUs have no 'tf32' multiplications; choose float32 or bfloat16"):
        check(Experiment(SMALL.replace(algo="random", precision="tf32")))
