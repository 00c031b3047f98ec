"""Client sizes from a quadratic programme: the most even sizes that use up every label exactly."""

from __future__ import annotations

import numpy as np

_MAX_ITERATIONS = 100
_FEASIBLE = 1e-6
_EXACT = 1e-12
_SMALLEST_STEP = 1e-10


def solve(proportions: np.ndarray, totals: np.ndarray, lower: float) -> np.ndarray | None:
    """Minimise ``|x|^2 / 2`` subject to ``proportions @ x = totals`` and ``x >= lower``.

    The minimiser is ``x = max(lower, proportions.T @ multipliers)``, where the multipliers maximise a concave,
    piecewise quadratic dual; Newton's method with backtracking finds them with C x C systems only, so N may be large.

    Args:
        proportions: float ``[C, N]``, each column a client's label distribution (it sums to one).
        totals: float ``[C]``, examples of each label.
        lower: the smallest size allowed, at least 0.

    Returns:
        Sizes, float64 ``[N]``, or None where no sizes satisfy the constraints.

    Source: the programme is FedCor's (``src/sampling.py``), which solves it with cvxopt.
    """
    num_labels, num_clients = proportions.shape
    total = float(totals.sum())
    if lower * num_clients > total * (1.0 + _FEASIBLE):
        return None
    scale = float(totals.max())
    ridge = 1e-12 * float(np.einsum("cn,cn->", proportions, proportions)) / num_labels * np.eye(num_labels)
    # Columns sum to one, so feasible sizes sum to the total and cost at most half its square. A dual value above that
    # proves that there are none (weak duality), and the dual grows without bound in exactly that case.
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
            # Near the solution the dual is flat to rounding; there a smaller residual is the better sign of progress.
            if dual(candidate) >= value + 1e-4 * step * slope or np.abs(residual_at(candidate)).max() < error / 2:
                break
            step /= 2
        else:
            break
        multipliers = candidate
    sizes = sizes_at(multipliers)
    error = np.abs(proportions @ sizes - totals).max()
    return sizes if np.isfinite(error) and error < _FEASIBLE * scale else None
