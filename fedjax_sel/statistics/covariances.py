"""Similarity of covariance matrices."""

import numpy as np
from numpy.typing import ArrayLike

from fedjax_sel.statistics.paired import finite


def covariance(samples: ArrayLike) -> np.ndarray:
    """Return the sample covariance, float64 [N, N].

    Args:
        samples: finite samples, [n, N].
    """
    return np.atleast_2d(np.cov(finite(samples), rowvar=False))


def cosine(one: ArrayLike, other: ArrayLike) -> float:
    """Return the cosine of the angle between two matrices, tr(A^T B) / sqrt(tr(A^T A) tr(B^T B)).

    The formula is FedCor's Eq. 151 with the square root that the paper omits; without it the value would depend on the
    scales. For covariances the cosine is in [0, 1], and 1 if they are equal up to a factor.

    Args:
        one: nonzero matrix A, [N, N].
        other: nonzero matrix B, [N, N].
    """
    a, b = np.asarray(one, np.float64), np.asarray(other, np.float64)
    return float((a * b).sum() / np.sqrt((a * a).sum() * (b * b).sum()))
