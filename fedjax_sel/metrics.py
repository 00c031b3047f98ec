"""Metrics of a run: pure functions of its arrays."""

from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike


def group_earth_movers_distance(label_counts: jax.Array, population_counts: jax.Array) -> jax.Array:
    """Return the GEMD: the distance of a cohort's pooled label distribution from the population's (FL-DP3S, Eq. 15).

    G(S) = sum_j | sum_{c in S} n_c P_c(j) / sum_{c in S} n_c - P_g(j) |, over labels j. Lower is better.

    Args:
        label_counts: examples per client of the cohort and label, [K, C].
        population_counts: examples per label in the whole federation, [C].

    Returns:
        A scalar in [0, 2); NaN for a cohort without examples, whose label distribution is undefined.
    """
    label_counts, population_counts = jnp.asarray(label_counts), jnp.asarray(population_counts)
    pooled = label_counts.sum(axis=0).astype(jnp.float32)
    cohort_share = pooled / jnp.maximum(pooled.sum(), 1.0)
    population = population_counts.astype(jnp.float32)
    distance = jnp.abs(cohort_share - population / jnp.maximum(population.sum(), 1.0)).sum()
    return jnp.where(pooled.sum() > 0, distance, jnp.nan)


ROUNDING = 2.0**-21
"""Bound on the relative rounding error of an accuracy in float32.

It covers the rounding of the quotient, and one more step on devices that multiply by 1 / n instead of dividing by n."""


def rounds_to_target(values: ArrayLike, target: float, higher_is_better: bool = True) -> np.ndarray:
    """Return the first round (from 1) whose unsmoothed measure reaches the target.

    The comparison allows for `ROUNDING`: 6,900 correct of 10,000 reach a target of 0.69, although float32(0.69) < 0.69.

    Args:
        values: measure per round, [seeds, rounds]; NaN in rounds without evaluation.
        target: target value, positive; a fraction of the test set for an accuracy.
        higher_is_better: whether larger values are better.

    Returns:
        float [seeds]; NaN for a seed that never reaches the target.
    """
    measured = np.asarray(values, np.float64)  # comparisons with NaN are false
    if higher_is_better:
        return _first_round(measured >= target * (1.0 - ROUNDING))
    return _first_round(measured <= target * (1.0 + ROUNDING))


def amount_at_round(amounts: ArrayLike, rounds: ArrayLike) -> np.ndarray:
    """Return the total amount spent through a round, such as the bytes until a target is reached.

    Args:
        amounts: amount per round, [seeds, rounds].
        rounds: one round per seed, from 1, [seeds]; NaN for none.

    Returns:
        float [seeds]; NaN where the round is NaN.
    """
    totals = np.cumsum(np.asarray(amounts, np.float64), axis=1)
    rounds = np.asarray(rounds, np.float64)
    index = np.nan_to_num(rounds, nan=1.0).astype(int) - 1
    return np.where(np.isnan(rounds), np.nan, totals[np.arange(len(totals)), index])


def paid_rounds(spent: ArrayLike, budget: float) -> np.ndarray:
    """Return the number of rounds within a budget, int [seeds].

    Args:
        spent: cumulative amount after each round, such as megabytes or seconds, [seeds, rounds].
        budget: available amount, in the same unit.
    """
    return (np.asarray(spent) <= budget * (1 + 1e-12)).sum(axis=1)


def value_at(values: ArrayLike, spent: ArrayLike, budget: float, otherwise: float = np.nan) -> np.ndarray:
    """Return the measure at a budget: the mean over the last third of the paid rounds, at most ten.

    A round without evaluation has the value of the last evaluation before it.

    Args:
        values: measure per round, [seeds, rounds]; NaN in rounds without evaluation.
        spent: cumulative amount after each round, such as megabytes or seconds, [seeds, rounds].
        budget: available amount, in the same unit.
        otherwise: value if the budget pays for no round.

    Returns:
        float [seeds]; NaN if a seed was not evaluated within the budget.
    """
    values, paid = np.asarray(values, np.float64), paid_rounds(spent, budget)
    counted = np.minimum(-(-paid // 3), LAST_ROUNDS)
    ends = zip(held(values), paid, counted)
    return np.array([mean_of_measured(one[end - n : end], 0) if end else otherwise for one, end, n in ends])


def held(values: np.ndarray) -> np.ndarray:
    """Return values [seeds, rounds] in which a round without evaluation (NaN) has the last one before it."""
    latest = np.maximum.accumulate(np.where(np.isnan(values), 0, np.arange(values.shape[1])), axis=1)
    return np.take_along_axis(values, latest, axis=1)


LAST_ROUNDS = 10
"""Number of last rounds whose mean summarizes the end of a run."""


def range_of(numbers: Iterable[int]) -> str:
    """Return the smallest and the largest number in words, such as "3 to 10", or "10" if they are equal."""
    ordered = sorted(numbers)
    return " to ".join(map(str, dict.fromkeys((ordered[0], ordered[-1]))))


def mean_of_last_rounds(values: ArrayLike, count: int = LAST_ROUNDS) -> np.ndarray:
    """Return the mean of the measurements in the last rounds.

    Args:
        values: measure per round, [seeds, rounds]; NaN in rounds without a measurement.
        count: number of last rounds; a shorter run uses all of its rounds.

    Returns:
        float [seeds]; NaN for a seed without any measurement.
    """
    return mean_of_measured(np.asarray(values)[:, -count:], axis=1)


def mean_of_measured(values: ArrayLike, axis: int) -> np.ndarray:
    """Return the mean of the values that are not NaN along an axis; NaN if all are NaN."""
    values = np.asarray(values, np.float64)
    measured = ~np.isnan(values)
    sums = np.where(measured, values, 0.0).sum(axis=axis)
    return np.where(measured.any(axis=axis), sums / np.maximum(measured.sum(axis=axis), 1), np.nan)


def selection_counts(cohorts: ArrayLike, num_clients: int) -> np.ndarray:
    """Count the rounds in which each client trained, int [seeds, N].

    Args:
        cohorts: client IDs, int [seeds, rounds, K]; -1 for an empty place.
        num_clients: N.
    """
    return _trained(cohorts, num_clients).sum(axis=1)


def clients_seen(cohorts: ArrayLike, num_clients: int) -> np.ndarray:
    """Count the clients that have trained at least once, after each round, int [seeds, rounds].

    Args:
        cohorts: client IDs, int [seeds, rounds, K]; -1 for an empty place.
        num_clients: N.
    """
    return np.logical_or.accumulate(_trained(cohorts, num_clients), axis=1).sum(axis=2)


def rounds_until_all_seen(seen: ArrayLike, num_clients: int) -> np.ndarray:
    """Return the first round (from 1) after which `clients_seen`, [seeds, rounds], is N, [seeds]; NaN if never."""
    return _first_round(np.asarray(seen) >= num_clients)


def _first_round(holds: np.ndarray) -> np.ndarray:
    """Return the first round (from 1) in which `holds` is True, float [seeds]; NaN if never."""
    return np.where(holds.any(axis=1), holds.argmax(axis=1) + 1.0, np.nan)


def _trained(cohorts: ArrayLike, num_clients: int) -> np.ndarray:
    """Return the mask of clients that trained, bool [seeds, rounds, N]."""
    cohorts = np.asarray(cohorts)
    seeds, rounds, _ = cohorts.shape
    trained = np.zeros((seeds, rounds, num_clients + 1), bool)  # ID -1 marks the last column
    trained[np.arange(seeds)[:, None, None], np.arange(rounds)[:, None], cohorts] = True
    return trained[..., :num_clients]


def last_measured(values: ArrayLike) -> np.ndarray:
    """Return each seed's last value that is not NaN, [seeds], of a measure [seeds, rounds]; NaN if no value is left."""
    values = np.asarray(values, np.float64)
    measured = ~np.isnan(values)
    last = values.shape[1] - 1 - measured[:, ::-1].argmax(axis=1)
    return np.where(measured.any(axis=1), values[np.arange(len(values)), last], np.nan)


# A client whose measure is NaN or infinite is undefined: the three indices over clients leave it out, and
# `undefined_clients` counts it. Without any defined client they are NaN.
def undefined_clients(values: ArrayLike) -> Any:
    """Count the clients with a value that is NaN or infinite: values [..., N] to [...]."""
    xp: Any = jnp if isinstance(values, jax.Array) else np
    return (~xp.isfinite(xp.asarray(values, xp.float32))).sum(axis=-1)


def worst_decile(values: jax.Array) -> jax.Array:
    """Return the mean of the lowest tenth (at least one) of the clients' defined values, [N]; NaN if there is none."""
    values = jnp.asarray(values, jnp.float32)
    defined = jnp.isfinite(values)
    number = defined.sum()
    count = jnp.maximum(number // 10, 1)
    lowest = -jax.lax.top_k(jnp.where(defined, -values, -jnp.inf), max(values.shape[0] // 10, 1))[0]
    mean = jnp.where(jnp.arange(lowest.size) < count, lowest, 0.0).sum() * (1.0 / count)
    return jnp.where(number > 0, mean, jnp.nan)


def gini_index(values: ArrayLike) -> Any:
    """Return the Gini index over clients: sum_ij |x_i - x_j| / (2 N sum_i x_i); 0 for equal values, below 1.

    Args:
        values: nonnegative values, such as selection counts or accuracies, [..., N].

    Returns:
        Array of the kind of `values`, [...], over the defined values; 0 if they are zero, NaN if one is negative.
    """
    xp, array, defined, n = _defined(values)
    ascending = xp.sort(xp.where(defined, array, xp.inf), axis=-1)
    place = xp.arange(array.shape[-1])
    ascending = xp.where(place < n[..., None], ascending, 0.0)
    total = ascending.sum(axis=-1)
    ranks = 2.0 * place + 1.0 - n[..., None]  # of the i-th smallest: values below it minus values above it
    return (ranks * ascending).sum(axis=-1) / (n * xp.where(total == 0, 1.0, total))


def jain_index(values: ArrayLike) -> Any:
    """Return Jain's index over clients: (sum_i x_i)^2 / (N sum_i x_i^2); 1 for equal values, 1 / N for one client.

    Args:
        values: nonnegative values, such as selection counts or accuracies, [..., N].

    Returns:
        Array of the kind of `values`, [...], over the defined values; 1 if they are zero, NaN if one is negative.
    """
    xp, array, _, n = _defined(values)
    squares = n * (array**2).sum(axis=-1)
    return xp.where(squares == 0, 1.0, array.sum(axis=-1) ** 2 / xp.where(squares == 0, 1.0, squares))


def _defined(values: ArrayLike) -> tuple[Any, Any, Any, Any]:
    """Return NumPy or jax.numpy, which starts a device, and its float32 values scaled, their mask and number.

    Undefined values are 0. A power of two scales the others, without rounding, so that their squares cannot overflow.
    The values are NaN if one is negative, the number if none is defined.
    """
    xp: Any = jnp if isinstance(values, jax.Array) else np
    array = xp.asarray(values, xp.float32)
    defined = xp.isfinite(array)
    array, n = xp.where(defined, array, 0.0), defined.sum(axis=-1).astype(xp.float32)
    exponent = xp.frexp(array.max(axis=-1, keepdims=True))[1]
    array = array / xp.ldexp(xp.float32(1.0), xp.clip(exponent, -100, 100))
    wrong = (array < 0).any(axis=-1, keepdims=True)
    return xp, xp.where(wrong, xp.nan, array), defined, xp.where(n > 0, n, xp.nan)


def participation_gap(counts: ArrayLike, num_rounds: int) -> np.ndarray:
    """Return the largest minus the smallest fraction of rounds in which a client trained, [seeds].

    Args:
        counts: rounds with training, int [seeds, N]; see `selection_counts`.
        num_rounds: number of completed rounds.
    """
    return np.ptp(np.asarray(counts, np.float64), axis=1) / num_rounds
