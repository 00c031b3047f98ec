"""What a round finds wrong: names that are nobody's, names that stand twice, and a server that is not finite."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_sel.experiment import checking
from fedjax_sel.simulation import round as rounds
from fedjax_sel.simulation.state import UncheckedIds
from fedjax_sel.training import optimizers

N = 5
FINE = ([0, 1, 4], [True, True, True])


def find(ids, mask, candidates=None, weights=(0.5, 0.25, 0.25), held=1.0):
    """Of one replicate, compiled, beside another that is fine."""

    def both(one, other):
        return jnp.stack([jnp.asarray(one), jnp.asarray(other)])

    named = UncheckedIds(
        both(ids, FINE[0]),
        both(mask, FINE[1]),
        None if candidates is None else both(candidates, range(len(candidates))),
    )
    held = {"w": both(jnp.full(3, 2.0).at[1].set(held), jnp.ones(3)), "count": jnp.array([3, 3])}
    found = jax.jit(rounds.find_faults, static_argnums=1)(named, N, both(weights, (1.0, 0.0, 0.0)), held)
    assert not found.invalid_ids[1] and not found.step[1] and not found.weights[1]
    np.testing.assert_array_equal(found.ids[0], ids)
    return found


@pytest.mark.parametrize(
    "ids,mask,wrong",
    [
        (*FINE, False),
        ([0, 1, 1], [True, True, False], False),  # as `md` marks who was drawn twice
        ([0, 1, 1], [True, True, True], True),
        ([0, 1, 5], [True, True, True], True),
        ([0, 1, 5], [True, True, False], True),
        ([0, 1, -1], [True, True, True], True),
        ([0, -1, -1], [True, False, False], True),
        ([4, -1, 2], [True, True, True], True),  # which wraps to another of them
        ([2**31 - 1, -(2**31), 0], [False, False, False], True),
    ],
)
def test_names(ids, mask, wrong):
    assert find(ids, mask).invalid_ids[0] == wrong


@pytest.mark.parametrize(
    "candidates,wrong", [([0, 2], False), ([2, 2], True), ([0, 5], True), ([-1, 0], True), ([4, -1], True)]
)
def test_candidates(candidates, wrong):
    found = find(*FINE, candidates=candidates)
    assert found.invalid_ids[0] == wrong
    np.testing.assert_array_equal(found.candidates[0], candidates)


@pytest.mark.parametrize("value,wrong", [(1e38, False), (np.nan, True), (np.inf, True), (-np.inf, True)])
def test_what_the_server_holds_and_weighs(value, wrong):
    assert find(*FINE, held=value).step[0] == wrong
    assert find(*FINE, weights=(0.5, value, 0.0)).weights[0] == wrong
    assert not find(*FINE).invalid_ids[0]


@pytest.mark.slow
def test_every_optimizer_begins_with_what_is_finite():
    """So that a state which is not can only come of a step."""
    params = {"w": jnp.ones((2, 3))}
    assert checking.optax_names()
    for name in checking.optax_names():
        state = checking.make_optax("--server-optimizer", name, {}, 0.1).init(params)
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(state)), name
    for name in optimizers.names():
        made = optimizers.make(name)
        held = (made.server(0.1).init(params), made.init_shared(params))
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(held)), name
