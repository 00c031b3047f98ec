"""FedProx (Li et al., MLSys 2020): a proximal term keeps clients near the received model.

    F_k(w) + (mu / 2) ||w - w^t||^2, so each step uses   gradient + mu (w - w^t)

FedProx targets clients with unequal work (`--local-epochs 1:5`). With mu = 0 it is FedAvg.
Traffic: the baseline. The losses that strategies read do not contain the proximal term.
"""

import jax

from fedjax_sel.errors import UserError
from fedjax_sel.models import Params
from fedjax_sel.training.optimizers.base import FederatedOptimizer, Memory


def fedprox(*, mu: float = 0.01) -> FederatedOptimizer:
    """Build FedProx.

    Args:
        mu: coefficient of the proximal term, at least 0; the paper uses 0.001, 0.01, 0.1 and 1.

    Raises:
        UserError: mu is negative or not finite.
    """
    return FederatedOptimizer("fedprox", gradient=proximal(mu))


def proximal(mu: float):
    """Return the `FederatedOptimizer.gradient` that adds the gradient of the proximal term."""
    if not 0 <= mu < float("inf"):
        raise UserError(f"--optimizer-args mu={mu}: must be at least 0 and finite; 0.01 is a common value")

    def gradient(gradient: Params, weights: Params, received: Params, memory: Memory) -> Params:
        del memory
        return jax.tree.map(lambda g, w, w_t: g + mu * (w - w_t), gradient, weights, received)

    return gradient
