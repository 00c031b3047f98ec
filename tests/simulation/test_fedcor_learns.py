"""FedCor on real training: what its Gaussian process learns of the clients, and what its selection makes of it."""

import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_sel.experiment.problem import pose
from fedjax_sel.papers import preset
from fedjax_sel.simulation import run


@pytest.fixture(scope="module")
def after_warmup():
    """Digits, 50 clients of one label each; the 15 rounds of the warm-up, the fit after them, five rounds more."""
    config = preset("quickstart").replace(algo="fedcor", rounds=20, chunk=20, seeds=2, eval_every=20)
    program = run.prepare(pose(config))
    return program.chunk(program.carry, jnp.int32(0), program.federation, program.streams), program.federation


@pytest.mark.slow
def test_embeddings_put_clients_of_one_label_together(after_warmup):
    """The label of the nearest neighbor is one's own for nearly all clients; by chance for one in twelve."""
    (carry, _), federation = after_warmup
    for embeddings, counts in zip(np.asarray(carry.strategy.embeddings), np.asarray(federation.label_counts)):
        labels = counts.argmax(axis=1)
        directions = embeddings / np.linalg.norm(embeddings, axis=0)
        cosines = directions.T @ directions
        np.fill_diagonal(cosines, -np.inf)
        purity = np.mean(labels[cosines.argmax(axis=1)] == labels)
        chance = np.mean([(labels == label).sum() - 1 for label in labels]) / (len(labels) - 1)
        assert chance < 0.1
        assert purity > 0.9


@pytest.mark.slow
def test_cohorts_are_more_diverse_than_random_ones(after_warmup):
    (_, records), _ = after_warmup
    gemd = np.asarray(records.measured["gemd"])  # [rounds, seeds]
    assert gemd[15:].mean() < gemd[:15].mean() - 0.1
