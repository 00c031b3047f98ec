"""Loss changes under random cohorts: what a round with such a cohort would have done."""

import dataclasses

import jax
import numpy as np
import pytest

from fedjax_sel.experiment.problem import pose
from fedjax_sel.simulation import run
from fedjax_sel.strategies.facts import ALL, Request, always
from studies.papers.loss_changes import Meter
from tests.simulation.test_information import ONE_FULL_BATCH_STEP, SMALL, K, N, direct_losses, watcher

M = 7


def measured(config, at_once, cohorts=M, round=0, **choices):
    program = run.prepare(pose(config.replace(algo="random")))
    pieces = list(Meter(program, at_once, **choices).measure(program.carry, round, cohorts))
    return program, *(np.concatenate(parts, axis=1) for parts in zip(*pieces))


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {"seeds": 2},
        {"partition": "dirichlet", "alpha": 0.5, "aggregation": "samples"},
        {"optimizer": "fedavgm", "loss_on": "train"},
        {"optimizer": "fednova", "local_steps": None, "local_epochs": 2},
    ],
)
def test_a_round_with_a_cohort_ends_with_its_losses(changes):
    config = SMALL.replace(**changes)
    _, cohorts, found = measured(config, at_once=3)
    seeds = len(config.run.seeds)
    assert cohorts.shape == (seeds, M, K) and found.shape == (seeds, M, N)
    assert all(len(set(cohort)) == K for cohort in cohorts.reshape(-1, K))
    part = config.data.loss_on
    for number in (0, M - 1):
        ids = tuple(int(k) for k in cohorts[0, number])
        alone = config.replace(rounds=1, chunk=1, seeds=1)
        problem = dataclasses.replace(pose(alone.replace(algo="random")), strategy=watcher(ids=ids))
        program = run.prepare(problem)
        before = jax.device_get(program.carry)
        after, _ = program.chunk(program.carry, np.int32(0), program.federation, program.streams)
        was, now = (direct_losses(program, params, part) for params in (before.params, jax.device_get(after.params)))
        expected = [b.mean() - a.mean() for a, b in zip(was, now)]
        np.testing.assert_allclose(found[0, number], expected, atol=2e-6)
        assert np.abs(expected).max() > 1e-3


@pytest.mark.slow
def test_the_number_of_cohorts_at_once_does_not_matter():
    one, other = (measured(SMALL, at_once)[1:] for at_once in (2, M))
    np.testing.assert_array_equal(one[0], other[0])
    np.testing.assert_allclose(one[1], other[1], atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"aggregation": "global-samples", "partition": "dirichlet", "alpha": 0.5}, id="rest_on_old_model"),
        {"seeds": 2, "loss_on": "train"},
    ],
)
def test_shared_outputs_of_the_first_layer_give_the_same_losses(changes):
    config = SMALL.replace(**changes)
    (_, cohorts, found), (_, others, expected) = (measured(config, 2, 45, shares_first_layer=s) for s in (True, False))
    np.testing.assert_array_equal(cohorts, others)
    np.testing.assert_allclose(found, expected, atol=2e-6)
    assert np.abs(expected).max() > 1e-3


@pytest.mark.slow
def test_a_strategys_probes_are_such_cohorts():
    """Of the same keys, and with nothing drawn in training: the probes that FedCor asks for, each of its own cohort."""
    config = SMALL.replace(**ONE_FULL_BATCH_STEP).replace(rounds=1, chunk=1)
    _, cohorts, expected = measured(config, 2, cohorts=2)
    strategy = watcher(Request("loss_change", ALL, always(), (("probes", 2),)))
    program = run.prepare(dataclasses.replace(pose(config.replace(algo="random")), strategy=strategy))
    carry, _ = program.chunk(program.carry, np.int32(0), program.federation, program.streams)
    found = jax.device_get(carry.info.loss_change.value)[0]  # [N, probes]
    np.testing.assert_allclose(found.T, expected[0], atol=2e-6)
    assert set(cohorts[0, 0]) != set(cohorts[0, 1]) and (found[:, 0] != found[:, 1]).any()


@pytest.mark.slow
def test_another_round_has_other_cohorts():
    assert (measured(SMALL, M)[1] != measured(SMALL, M, round=1)[1]).any()


@pytest.mark.slow
def test_every_client_is_drawn_equally_often():
    _, cohorts, _ = measured(SMALL, 100, cohorts=1200)
    counts = np.bincount(cohorts.ravel(), minlength=N)
    assert np.abs(counts - 1200 * K / N).max() < 4 * np.sqrt(1200 * K / N * (1 - K / N))
