"""FedProx (Li et al., MLSys 2020): clients are held near the model that they received.

    F_k(w) + (mu / 2) ||w - w^t||^2, so every step is on   gradient + mu (w - w^t)

Made for clients that do unequal work (`--local-epochs 1:5`). With mu = 0 it is FedAvg.
Traffic: the baseline. The losses that strategies read do not contain the proximal term.
"""

import jax

from fedjax_sel.errors import UserError
from fedjax_sel.models import Params
from fedjax_sel.training.optimizers.base import FederatedOptimizer, Memory


def fedprox(*, mu: float = 0.01) -> FederatedOptimizer:
    """Make FedProx.

    Args:
        mu: how strongly a client is held, at least 0; the paper tries 0.001, 0.01, 0.1 and 1.

    Returns:
        The optimizer.

    Raises:
        UserError: mu is negative or no number.
    """
    return FederatedOptimizer("fedprox", gradient=proximal(mu))


def proximal(mu: float):
    """Return the function that adds the proximal term's gradient: see `FederatedOptimizer.gradient`."""
    if not 0 <= mu < float("inf"):
        raise UserError(f"--optimizer-args mu={mu}: must be a number from 0; 0.01 is a usual one")

    def gradient(gradient: Params, weights: Params, received: Params, memory: Memory) -> Params:
        del memory
        return jax.tree.map(lambda g, w, w_t: g + mu * (w - w_t), gradient, weights, received)

    return gradient
