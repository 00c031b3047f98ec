"""Normality of samples: a distance from the Gaussian, and a significance test.

A test alone is not informative. With a thousand samples it rejects negligible deviations; with twenty it rejects almost
nothing. The distance, a probability, shows the size of the deviation.
"""

import functools

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from fedjax_sel.statistics.paired import finite

SIMULATIONS = 9999
_AT_ONCE = 500  # simulated samples per batch, which limits memory


def principal_components(samples: ArrayLike, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the leading principal components of samples.

    Args:
        samples: samples, [n, N].
        count: number of components, at most n - 1 and at most N.

    Returns:
        The centered coordinates of the samples, [count, n], and each component's fraction of the variance, [count].

    Raises:
        ValueError: there are no samples, or one is not finite.
    """
    samples = finite(samples)
    _, singular, directions = np.linalg.svd(samples - samples.mean(axis=0), full_matrices=False)
    variance = singular**2
    return directions[:count] @ (samples - samples.mean(axis=0)).T, variance[:count] / variance.sum()


def distance(samples: ArrayLike) -> np.ndarray:
    """Return the largest difference between the samples' distribution function and the Gaussian's.

    The Gaussian has the samples' mean and standard deviation (Kolmogorov-Smirnov statistic, Lilliefors case). The
    distance bounds the error of every cumulative probability of the Gaussian.

    Args:
        samples: samples, [..., n].

    Returns:
        Distances, float64 [...], in [0, 1].
    """
    below = special.ndtr(_standardized(samples))
    steps = np.arange(1, below.shape[-1] + 1) / below.shape[-1]
    return np.maximum(steps - below, below - steps + 1 / below.shape[-1]).max(axis=-1)


def anderson_darling(samples: ArrayLike) -> np.ndarray:
    """Return the Anderson-Darling statistic A^2 for the Gaussian with the samples' mean and standard deviation.

    It gives the tails more weight than `distance`, and has more power against most alternatives.

    Args:
        samples: samples, [..., n].

    Returns:
        A^2, float64 [...].
    """
    ordered = _standardized(samples)
    n = ordered.shape[-1]
    odd = 2 * np.arange(1, n + 1) - 1
    both = special.log_ndtr(ordered) + special.log_ndtr(-ordered[..., ::-1])
    return -n - (odd * both).sum(axis=-1) / n


def anderson_darling_test(samples: ArrayLike, simulations: int = SIMULATIONS) -> np.ndarray:
    """Return p-values of the hypothesis that samples are Gaussian with unknown mean and deviation.

    The p-value is the fraction of simulated Gaussian samples of the same size with an A^2 at least as large, including
    the observed samples.

    Args:
        samples: independent samples, [..., n].
        simulations: number of simulated samples; the smallest p-value is 1 / (simulations + 1).

    Returns:
        p-values, float64 [...].
    """
    observed = anderson_darling(samples)
    null = _null(np.shape(samples)[-1], simulations)
    return (1 + simulations - np.searchsorted(null, observed)) / (1 + simulations)


@functools.lru_cache(maxsize=8)
def _null(size: int, simulations: int) -> np.ndarray:
    """Return the sorted A^2 of simulated Gaussian samples, [simulations]."""
    rng = np.random.default_rng(0)
    parts = [
        anderson_darling(rng.standard_normal((min(_AT_ONCE, simulations - start), size)))
        for start in range(0, simulations, _AT_ONCE)
    ]
    return np.sort(np.concatenate(parts))


def _standardized(samples: ArrayLike) -> np.ndarray:
    """Return the sorted samples with mean 0 and standard deviation 1; zeros if they are constant."""
    ordered = np.sort(finite(samples), axis=-1)
    if ordered.shape[-1] < 2:
        raise ValueError("one sample has no standard deviation; give at least two")
    centered = ordered - ordered.mean(axis=-1, keepdims=True)
    deviation = ordered.std(axis=-1, ddof=1, keepdims=True)
    return centered / np.where(deviation > 0, deviation, 1.0)
