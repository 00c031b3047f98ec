"""Whether samples are Gaussian: how far they are from it, and whether that is more than chance.

A test alone says little: with a thousand samples it rejects what no eye would see, with twenty it rejects nothing. So
there is a distance, in probability, beside it.
"""

import functools

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from fedjax_sel.statistics.paired import finite

SIMULATIONS = 9999
_AT_ONCE = 500  # simulated samples that are in memory together


def principal_components(samples: ArrayLike, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the leading principal components of samples.

    Args:
        samples: [n, N].
        count: of components; no more than n - 1 or N.

    Returns:
        The samples' coordinates on them, centred, [count, n], and the share of the variance of each, [count].

    Raises:
        ValueError: there is no sample, or one that is not finite.
    """
    samples = finite(samples)
    _, singular, directions = np.linalg.svd(samples - samples.mean(axis=0), full_matrices=False)
    variance = singular**2
    return directions[:count] @ (samples - samples.mean(axis=0)).T, variance[:count] / variance.sum()


def distance(samples: ArrayLike) -> np.ndarray:
    """Return the greatest difference between the samples' distribution function and the Gaussian's.

    Of the Gaussian with their mean and standard deviation (Kolmogorov and Smirnov's statistic, Lilliefors's case): by
    no more is any probability wrong that it gives for "at most x".

    Args:
        samples: [..., n].

    Returns:
        float64 [...], in [0, 1].
    """
    below = special.ndtr(_standardised(samples))
    steps = np.arange(1, below.shape[-1] + 1) / below.shape[-1]
    return np.maximum(steps - below, below - steps + 1 / below.shape[-1]).max(axis=-1)


def anderson_darling(samples: ArrayLike) -> np.ndarray:
    """Return Anderson and Darling's A^2 against the Gaussian with the samples' mean and standard deviation.

    It weighs the tails more than the greatest difference does, and tells most alternatives from a Gaussian with fewer
    samples.

    Args:
        samples: [..., n].

    Returns:
        float64 [...].
    """
    ordered = _standardised(samples)
    n = ordered.shape[-1]
    odd = 2 * np.arange(1, n + 1) - 1
    both = special.log_ndtr(ordered) + special.log_ndtr(-ordered[..., ::-1])
    return -n - (odd * both).sum(axis=-1) / n


def anderson_darling_test(samples: ArrayLike, simulations: int = SIMULATIONS) -> np.ndarray:
    """Return the p-values of "these samples are Gaussian", mean and deviation unknown.

    By simulation: the share of Gaussian samples of the same size whose A^2 is as large, the samples' own counted in.

    Args:
        samples: [..., n], of independent draws.
        simulations: of the null, which decide the least p-value, 1 / (simulations + 1).

    Returns:
        float64 [...].
    """
    found = anderson_darling(samples)
    null = _null(np.shape(samples)[-1], simulations)
    return (1 + simulations - np.searchsorted(null, found)) / (1 + simulations)


@functools.lru_cache(maxsize=8)
def _null(size: int, simulations: int) -> np.ndarray:
    """Return A^2 of Gaussian samples, sorted, [simulations]."""
    rng = np.random.default_rng(0)
    parts = [
        anderson_darling(rng.standard_normal((min(_AT_ONCE, simulations - start), size)))
        for start in range(0, simulations, _AT_ONCE)
    ]
    return np.sort(np.concatenate(parts))


def _standardised(samples: ArrayLike) -> np.ndarray:
    """Return samples sorted, with mean 0 and standard deviation 1; all zero where they do not vary."""
    ordered = np.sort(finite(samples), axis=-1)
    if ordered.shape[-1] < 2:
        raise ValueError("one sample has no standard deviation; give two or more")
    centred = ordered - ordered.mean(axis=-1, keepdims=True)
    deviation = ordered.std(axis=-1, ddof=1, keepdims=True)
    return centred / np.where(deviation > 0, deviation, 1.0)


def covariance(samples: ArrayLike) -> np.ndarray:
    """Return the sample covariance.

    Args:
        samples: [n, N], finite.

    Returns:
        float64 [N, N].
    """
    return np.atleast_2d(np.cov(finite(samples), rowvar=False))


def cosine(one: ArrayLike, other: ArrayLike) -> float:
    """Return the cosine of the angle between two matrices, tr(A^T B) / sqrt(tr(A^T A) tr(B^T B)).

    It is FedCor's Eq. 151 with the square root that is missing there. Of two covariances it lies in [0, 1], 1 where
    they are equal up to a factor; without the root it would depend on their scales.

    Args:
        one: A, [N, N], not zero.
        other: B, likewise.
    """
    a, b = np.asarray(one, np.float64), np.asarray(other, np.float64)
    return float((a * b).sum() / np.sqrt((a * a).sum() * (b * b).sum()))
