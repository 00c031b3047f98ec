"""What a client's steps draw is the same ahead of them and in them, and is drawn ahead where it is little."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_sel import models
from fedjax_sel.models import MLP
from fedjax_sel.training import client, schedule

BATCH, STEPS = 5, 4


def of(dropout=0.5, **changes):
    model = models.make("mlp", (4, 4, 1), 3, dropout=dropout)
    work = schedule.plan(
        np.array([9, 12]), **({"batch_size": BATCH, "steps": STEPS, "epochs": None, "full_batch": False} | changes)
    )
    return model, work


def drawn_in_a_loop(model, work):
    """How many times the random generator is in the body of a loop over the steps."""

    def loop(key):
        at = client.draws_by_step(model, work, key)
        return jax.lax.map(lambda index: jax.tree.leaves(at(index)), jnp.arange(STEPS))

    loops = [e for e in jax.make_jaxpr(loop)(jax.random.key(0)).eqns if e.primitive.name == "scan"]
    return str(loops[-1].params["jaxpr"]).count("random_bits")


@pytest.mark.slow
@pytest.mark.parametrize("dropout", [0.5, 0.3])
def test_drawn_ahead_or_step_by_step_the_numbers_are_the_models_own(dropout, monkeypatch):
    model, work = of(dropout)
    key = jax.random.key(3)
    ahead = client.draws_by_step(model, work, key)
    monkeypatch.setattr(client, "MOST_BYTES", 0)
    in_turn = client.draws_by_step(model, work, key)
    for index in range(STEPS):
        own = model.draw(jax.random.fold_in(key, index), BATCH)
        for one in (ahead(jnp.int32(index)), in_turn(jnp.int32(index))):
            chex.assert_trees_all_equal(one, own)
    assert jax.tree.leaves(own)[0].dtype == bool


def test_only_what_is_little_and_as_much_for_all_is_drawn_ahead(monkeypatch):
    assert drawn_in_a_loop(*of()) == 0
    assert drawn_in_a_loop(*of(steps=None, epochs=2)) > 0  # 2 and 3 batches a pass
    monkeypatch.setattr(client, "MOST_BYTES", 10)
    assert drawn_in_a_loop(*of()) > 0


def test_a_model_without_dropout_draws_nothing():
    model, work = of(dropout=0.0)
    assert jax.tree.leaves(client.draws_by_step(model, work, jax.random.key(0))(jnp.int32(0))) == []


@pytest.mark.slow
def test_a_pass_with_given_draws_is_the_one_that_draws_them_itself():
    model, _ = of()
    params, x, key = model.init(jax.random.key(0)), jnp.ones((BATCH, 4, 4, 1)), jax.random.key(7)
    given = model.apply(params, x, model.draw(key, BATCH)).prediction
    own = MLP(3, 0.5).apply({"params": params.trained}, x, train=True, rngs={"dropout": key}).prediction
    np.testing.assert_array_equal(given, own)
    assert (given != model.apply(params, x, model.draw(jax.random.key(8), BATCH)).prediction).any()
