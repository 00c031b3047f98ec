"""Client sizes from a quadratic program: the most even sizes that assign all examples of each label."""

from __future__ import annotations

import numpy as np

_MAX_ITERATIONS = 100
_FEASIBLE = 1e-6
_EXACT = 1e-12
_SMALLEST_STEP = 1e-10


def solve(proportions: np.ndarray, totals: np.ndarray, lower: float) -> np.ndarray | None:
    """Minimize ``|x|^2 / 2`` subject to ``proportions @ x = totals`` and ``x >= lower``.

    The minimizer is ``x = max(lower, proportions.T @ multipliers)``, where the multipliers maximize a concave,
    piecewise quadratic dual. Newton's method with backtracking solves only C x C systems, so N may be large.

    Args:
        proportions: float ``[C, N]``, label distribution of each client; columns sum to one.
        totals: float ``[C]``, number of examples per label.
        lower: smallest size, at least 0.

    Returns:
        Sizes, float64 ``[N]``, or None if no sizes satisfy the constraints.

    Source: FedCor's ``src/sampling.py``, which solves the program with cvxopt.
    """
    num_labels, num_clients = proportions.shape
    total = float(totals.sum())
    if lower * num_clients > total * (1.0 + _FEASIBLE):
        return None
    scale = float(totals.max())
    ridge = 1e-12 * float(np.einsum("cn,cn->", proportions, proportions)) / num_labels * np.eye(num_labels)
    # Columns sum to one, so feasible sizes sum to the total, and their cost is at most half its square. By weak duality
    # a larger dual value proves infeasibility; exactly then the dual is unbounded.
    infeasible_above = 0.5 * total**2 * (1.0 + _FEASIBLE)

    def sizes_at(multipliers: np.ndarray) -> np.ndarray:
        return np.maximum(lower, proportions.T @ multipliers)

    def residual_at(multipliers: np.ndarray) -> np.ndarray:
        return totals - proportions @ sizes_at(multipliers)

    def dual(multipliers: np.ndarray) -> float:
        slopes = proportions.T @ multipliers
        costs = np.where(slopes > lower, slopes**2 / 2, lower * slopes - lower**2 / 2)
        return float(totals @ multipliers - costs.sum())

    multipliers = np.linalg.solve(proportions @ proportions.T + ridge, totals)
    for _ in range(_MAX_ITERATIONS):
        value, residual = dual(multipliers), residual_at(multipliers)
        error = np.abs(residual).max()
        if error < _EXACT * scale or value > infeasible_above:
            break
        active = proportions[:, sizes_at(multipliers) > lower]
        direction = np.linalg.solve(active @ active.T + ridge, residual)
        slope, step = float(residual @ direction), 1.0
        while step > _SMALLEST_STEP:
            candidate = multipliers + step * direction
            # Near the solution the dual is flat up to rounding, so a smaller residual also counts as progress.
            if dual(candidate) >= value + 1e-4 * step * slope or np.abs(residual_at(candidate)).max() < error / 2:
                break
            step /= 2
        else:
            break
        multipliers = candidate
    sizes = sizes_at(multipliers)
    error = np.abs(proportions @ sizes - totals).max()
    return sizes if np.isfinite(error) and error < _FEASIBLE * scale else None
