"""How alike two covariances are."""

import numpy as np
from numpy.typing import ArrayLike

from fedjax_sel.statistics.paired import finite


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
