"""Measures of a run: pure functions of its arrays."""

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike


def group_earth_movers_distance(label_counts: jax.Array, population_counts: jax.Array) -> jax.Array:
    """Return the GEMD: how far a cohort's pooled labels are from the population's (FL-DP3S, Eq. 15); lower is better.

    G(S) = sum_j | sum_{c in S} n_c P_c(j) / sum_{c in S} n_c - P_g(j) |, over labels j.

    Args:
        label_counts: examples of each label held by each client of the cohort, [K, C].
        population_counts: examples of each label in the whole federation, [C].

    Returns:
        A scalar in [0, 2); NaN for a cohort without examples, which has no distribution of labels.
    """
    label_counts, population_counts = jnp.asarray(label_counts), jnp.asarray(population_counts)
    pooled = label_counts.sum(axis=0).astype(jnp.float32)
    cohort_share = pooled / jnp.maximum(pooled.sum(), 1.0)
    population = population_counts.astype(jnp.float32)
    distance = jnp.abs(cohort_share - population / jnp.maximum(population.sum(), 1.0)).sum()
    return jnp.where(pooled.sum() > 0, distance, jnp.nan)


ROUNDING = 2.0**-21
"""What separates an accuracy from the share that it stands for, relative to it: float32's rounding of the share itself,
and on devices that multiply by 1 / n where they should divide by n, one step more. It is less than one example of any
test set of up to two million."""


def rounds_to_target(values: ArrayLike, target: float, higher_is_better: bool = True) -> np.ndarray:
    """Return the first round (from 1) whose unsmoothed measure reaches the target; NaN for a seed that never does.

    Accuracies are shares of a test set in float32, so one that equals the target may lie below it by its rounding.
    6,900 of 10,000 reach 0.69, though float32(0.69) < 0.69.

    Args:
        values: [seeds, rounds], NaN in rounds without evaluation.
        target: positive; a share of the test set for an accuracy.
        higher_is_better: whether it is reached from below.

    Returns:
        float [seeds].
    """
    measured = np.asarray(values, np.float64)
    if not higher_is_better:
        return _first_round(np.nan_to_num(measured, nan=np.inf) <= target * (1.0 + ROUNDING))
    return _first_round(np.nan_to_num(measured, nan=-1.0) >= target * (1.0 - ROUNDING))


def amount_at_round(amounts: ArrayLike, rounds: ArrayLike) -> np.ndarray:
    """Return what was spent up to and with a round, such as the bytes until a target was reached.

    Args:
        amounts: spent in each round, [seeds, rounds].
        rounds: a round of each seed, from 1, [seeds]; NaN where there is none.

    Returns:
        float [seeds], NaN where there is no round.
    """
    totals = np.cumsum(np.asarray(amounts, np.float64), axis=1)
    rounds = np.asarray(rounds, np.float64)
    index = np.nan_to_num(rounds, nan=1.0).astype(int) - 1
    return np.where(np.isnan(rounds), np.nan, totals[np.arange(len(totals)), index])


LAST_ROUNDS = 10
"""Rounds of a run's end whose mean is what it ends with, wherever one number stands for it."""


def mean_of_last_rounds(values: ArrayLike, count: int = LAST_ROUNDS) -> np.ndarray:
    """Return the mean of what was measured in the last rounds; NaN for a seed where nothing was.

    Args:
        values: [seeds, rounds], NaN in rounds without a measurement.
        count: how many rounds; all where there are fewer.

    Returns:
        float [seeds].
    """
    return mean_of_measured(np.asarray(values)[:, -count:], axis=1)


def mean_of_measured(values: ArrayLike, axis: int) -> np.ndarray:
    """Return the mean along an axis of what was measured; NaN where nothing was.

    Args:
        values: an array, NaN where nothing was measured.
        axis: of the mean.

    Returns:
        float, without that axis.
    """
    values = np.asarray(values, np.float64)
    measured = ~np.isnan(values)
    sums = np.where(measured, values, 0.0).sum(axis=axis)
    return np.where(measured.any(axis=axis), sums / np.maximum(measured.sum(axis=axis), 1), np.nan)


def selection_counts(cohorts: ArrayLike, num_clients: int) -> np.ndarray:
    """Count the rounds in which each client trained.

    Args:
        cohorts: client ids, int [seeds, rounds, K]; -1 where nobody trained.
        num_clients: N.

    Returns:
        int [seeds, N].
    """
    return _trained(cohorts, num_clients).sum(axis=1)


def clients_seen(cohorts: ArrayLike, num_clients: int) -> np.ndarray:
    """Count the clients that have trained at least once, after each round.

    Args:
        cohorts: client ids, int [seeds, rounds, K]; -1 where nobody trained.
        num_clients: N.

    Returns:
        int [seeds, rounds].
    """
    return np.logical_or.accumulate(_trained(cohorts, num_clients), axis=1).sum(axis=2)


def rounds_until_all_seen(seen: ArrayLike, num_clients: int) -> np.ndarray:
    """Return the first round (from 1) after which every client has trained; NaN for a seed where one never did.

    Args:
        seen: from `clients_seen`, [seeds, rounds].
        num_clients: N.

    Returns:
        float [seeds].
    """
    return _first_round(np.asarray(seen) >= num_clients)


def _first_round(holds: np.ndarray) -> np.ndarray:
    """Return the first round (from 1) of each seed in which something holds, float [seeds]; NaN where it never does."""
    return np.where(holds.any(axis=1), holds.argmax(axis=1) + 1.0, np.nan)


def _trained(cohorts: ArrayLike, num_clients: int) -> np.ndarray:
    """Return who trained when, bool [seeds, rounds, N]."""
    cohorts = np.asarray(cohorts)
    seeds, rounds, _ = cohorts.shape
    trained = np.zeros((seeds, rounds, num_clients + 1), bool)  # nobody, -1, is the last column
    trained[np.arange(seeds)[:, None, None], np.arange(rounds)[:, None], cohorts] = True
    return trained[..., :num_clients]


def last_measured(values: ArrayLike) -> np.ndarray:
    """Return the last value of each seed that is not NaN; NaN where there is none.

    Args:
        values: [seeds, rounds].

    Returns:
        float [seeds].
    """
    values = np.asarray(values, np.float64)
    measured = ~np.isnan(values)
    last = values.shape[1] - 1 - measured[:, ::-1].argmax(axis=1)
    return np.where(measured.any(axis=1), values[np.arange(len(values)), last], np.nan)


def worst_decile(values: jax.Array) -> jax.Array:
    """Return the mean of the lowest tenth (at least one) of the clients' values.

    Args:
        values: one a client, [N].

    Returns:
        A scalar.
    """
    count = max(values.shape[0] // 10, 1)
    return -jax.lax.top_k(-values, count)[0].mean()
