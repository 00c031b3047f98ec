"""Aggregation identities."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedjax_sel.training import server

SIZES = jnp.array([10, 30, 60])
UPDATES = {"w": jnp.array([[[1.0, 2.0]], [[3.0, -1.0]], [[0.5, 0.0]]]), "b": jnp.array([1.0, 2.0, 4.0])}


def sums(updates, weights):
    """Weighted sums over the cohort, which the devices make in a run."""
    return jax.tree.map(lambda leaf: jnp.tensordot(weights, leaf, 1), updates)


@pytest.mark.parametrize("rule", ["uniform", "samples"])
@pytest.mark.parametrize("mask", [(1, 1, 1), (1, 0, 1), (0, 0, 1)])
def test_weights_are_a_distribution_over_those_who_trained(rule, mask):
    weights = np.asarray(server.cohort_weights(rule, SIZES, jnp.array(mask, bool), 400))
    assert (weights >= 0).all() and abs(weights.sum() - 1) < 1e-6
    raw = np.array(mask) * (np.asarray(SIZES) if rule == "samples" else 1.0)
    np.testing.assert_allclose(weights, raw / raw.sum(), rtol=1e-6)


def test_an_empty_cohort_has_no_weights_and_leaves_the_model():
    weights = server.cohort_weights("samples", SIZES, jnp.zeros(3, bool), 400)
    np.testing.assert_array_equal(weights, 0)
    everyone = jnp.ones(3, bool)
    for leaf in jax.tree.leaves(server.mean_of_reports((sums(UPDATES, weights), ()), weights, everyone)):
        np.testing.assert_array_equal(leaf, 0)


def test_the_mean_update_is_the_mean_model_minus_the_old():
    old = {"w": jnp.array([[5.0, -3.0]]), "b": jnp.array(0.5)}
    models = jax.tree.map(lambda u, w: u + w, UPDATES, old)
    weights = server.cohort_weights("samples", SIZES, jnp.ones(3, bool), 400)
    optimizer = optax.sgd(1.0)
    new, _ = server.step(optimizer, optimizer.init(old), old, sums(UPDATES, weights))
    for name in ("w", "b"):
        expected = sum(float(weights[k]) * np.asarray(models[name][k]) for k in range(3))
        np.testing.assert_allclose(new[name], expected, rtol=1e-6)


def test_the_server_learning_rate_scales_the_step():
    old = {"b": jnp.array(1.0)}
    optimizer = optax.sgd(0.25)
    new, _ = server.step(optimizer, optimizer.init(old), old, {"b": jnp.array(2.0)})
    assert float(new["b"]) == 1.5


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 3e38])
@pytest.mark.parametrize("size", [1, 130, 64 * 288])
def test_a_single_number_that_is_not_finite_is_found(value, size):
    find = jax.jit(server.is_finite)
    for place in np.random.default_rng(0).integers(size, size=10):
        leaf = np.full(size, value if np.isfinite(value) else 1.0, np.float32)  # of the largest, no sum may overflow
        leaf[place] = value
        assert find({"a": leaf, "b": np.ones(3, np.float32)}) == np.isfinite(value)


@pytest.mark.parametrize("weights", [(1 / 3, 1 / 3, 1 / 3), (0.2, 0.3, 0.5), (0.4, 0.4, 0.4), (0.5, 0.0, 0.5)])
def test_an_update_that_is_not_finite_is_left_out(weights):
    broken = {"w": UPDATES["w"].at[1, 0, 0].set(jnp.nan), "b": UPDATES["b"]}
    finite = jax.vmap(server.is_finite)(broken)
    np.testing.assert_array_equal(finite, [True, False, True])
    weights = jnp.array(weights, jnp.float32)
    of_finite = sums(jax.vmap(server.finite_part)(broken, finite), weights)
    mean, _ = server.mean_of_reports((of_finite, ()), weights, finite)
    others = np.array([weights[0], 0.0, weights[2]])
    others *= float(weights.sum()) / others.sum()
    np.testing.assert_allclose(mean["w"], [[others[0] + others[2] * 0.5, 2 * others[0]]], rtol=1e-6)


def test_a_cohort_without_a_finite_update_leaves_the_model():
    weights, finite = jnp.full(3, 1 / 3), jnp.zeros(3, bool)
    nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape[1:]), UPDATES)
    for leaf in jax.tree.leaves(server.mean_of_reports((nothing, nothing), weights, finite)):
        np.testing.assert_array_equal(leaf, 0)


@pytest.mark.parametrize("weights", [(0.9, 0.8, 1.1), (0.2, 0.1, 0.3), (2.5, 0.0, 0.0)])
@pytest.mark.parametrize("finite", [(1, 1, 1), (1, 0, 1)])
def test_what_models_carry_stays_between_the_old_and_the_reported(weights, finite):
    old, reported, finite = 4.0, np.array([0.5, 0.25, 1.0]), np.array(finite, bool)
    weights = jnp.array(weights, jnp.float32)
    total = float(jnp.tensordot(jnp.where(finite, weights, 0.0), reported - old, 1))
    averaged, carried = server.mean_of_reports((total, total), weights, jnp.array(finite))
    kept = np.where(finite, weights, 0.0)
    kept *= float(weights.sum()) / kept.sum()
    shares = kept / max(1.0, kept.sum())
    np.testing.assert_allclose(old + carried, old * (1 - shares.sum()) + shares @ reported, rtol=1e-5)
    np.testing.assert_allclose(averaged, kept @ (reported - old), rtol=1e-6)


@pytest.mark.parametrize("number", [3, 7, 10, 100, 1000])
def test_weights_that_sum_to_one_but_for_rounding_change_no_bit(number):
    everyone = jnp.ones(number, bool)
    for rule in ("uniform", "samples"):
        weights = server.cohort_weights(rule, jnp.arange(1, number + 1), everyone, 1)
        assert server.mean_of_reports(((), jnp.float32(0.1)), weights, everyone)[1] == jnp.float32(0.1)
