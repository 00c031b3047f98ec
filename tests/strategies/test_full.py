"""Full participation equals a run whose cohorts are all clients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedjax_sel
from fedjax_sel.strategies.full import full
from tests.strategies.hooks import env_of, now_of

SMALL = fedjax_sel.Config().replace(
    dataset="synthetic:train_size=120,test_size=40,num_classes=4,image_size=4", num_clients=6, num_selected=2,
    local_steps=2, rounds=3, chunk=3,
)  # fmt: skip


def test_all_available_clients_are_selected():
    strategy, env = full(), env_of([3] * 5, 2)
    selection = strategy.select(jax.random.key(1), (), now_of(env))
    assert selection.ids.tolist() == [0, 1, 2, 3, 4] and selection.mask.all() and selection.weights is None
    available = jnp.array([True, False, True, True, False])
    masked = strategy.select(jax.random.key(1), (), now_of(env, None, 0, available))
    assert masked.mask.tolist() == available.tolist()


@pytest.mark.slow
def test_a_run_equals_random_selection_of_all_clients():
    """The same models but for the order of the sums."""
    found = fedjax_sel.run(SMALL.replace(algo="full"))
    every = fedjax_sel.run(SMALL.replace(algo="random", num_selected=6))
    assert (np.sort(every.cohorts) == found.cohorts).all() and (found.cohorts == np.arange(6)).all()
    np.testing.assert_array_equal(found.ledger.models_down, every.ledger.models_down)
    for one, other in zip(jax.tree.leaves(found.params), jax.tree.leaves(every.params)):
        np.testing.assert_allclose(one, other, atol=1e-5)
    assert dict(found.summary())["Gini index of selections"].tolist() == [0.0]


@pytest.mark.slow
def test_lost_reports_and_unavailable_clients_are_left_out():
    result = fedjax_sel.run(SMALL.replace(algo="full", available=0.5, report_failure_rate=0.3, rounds=12))
    trained = (result.cohorts >= 0).sum(axis=2)
    assert 0 < trained.mean() < 6 and (result.ledger.models_down == trained).all()
    assert (result.ledger.reports_lost > 0).any()
