"""FedNova (Wang et al., NeurIPS 2020): normalized updates, so that clients with more steps do not dominate.

Symbols: tau_i steps of client i; a_i the factors of its gradients in its update, so that -update = eta sum_s a_i,s g_s,
and |a_i|_1 = tau_i for SGD; weights omega_i.

    d_i       = -update_i / (eta |a_i|_1)                      the mean gradient along the client's path
    tau_eff   = sum omega_i |a_i|_1                            effective number of steps
    w^(t+1)   = w^t - tau_eff eta sum omega_i d_i

With equal |a_i|_1, FedNova equals FedAvg up to rounding. The client's own optimizer gives |a_i|_1: its displacement in
the same steps if every gradient is one. This agrees with the paper's formulas: tau for SGD,
(tau - rho (1 - rho^tau) / (1 - rho)) / (1 - rho) with momentum rho, (1 - (1 - eta mu)^tau) / (eta mu) with the proximal
term. It also covers both together, and weight decay. With --momentum-buffer persistent, gradients of earlier rounds
still move the client, and a_i includes their factors.

Traffic: the baseline, and one float up per client, |a_i|_1.
Differs from the paper: tau_eff stays a mean if the weights do not sum to one (`global-samples`, `unbiased`). If the
client optimizer is not linear in its gradients, as Adam, a_i does not exist, and the displacement above replaces it.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedjax_sel.models import Params
from fedjax_sel.training.optimizers.base import FederatedOptimizer, Finished, Memory, Report
from fedjax_sel.training.optimizers.fedprox import proximal


class Averaged(NamedTuple):
    """A client's report; the server receives the weighted sums."""

    direction: Params  # update_i / |a_i|_1, that is -eta d_i
    coefficient: jax.Array  # |a_i|_1
    one: jax.Array  # 1, so that its weighted sum is the sum of the weights


def fednova(*, mu: float = 0.0) -> FederatedOptimizer:
    """Build FedNova.

    Args:
        mu: coefficient of a proximal term, at least 0.

    Raises:
        UserError: mu is negative or not finite.
    """

    def report(finished: Finished, memory: Memory) -> Report:
        del memory
        direction = jax.tree.map(lambda update: update / finished.coefficient, finished.update)
        return Report(Averaged(direction, finished.coefficient, jnp.ones_like(finished.coefficient)))

    def combine(averaged: Any) -> Params:
        weights = jnp.where(averaged.one == 0, 1.0, averaged.one)  # an empty cohort leaves the model unchanged
        effective_steps = averaged.coefficient / weights  # tau_eff
        return jax.tree.map(lambda direction: effective_steps * direction, averaged.direction)

    return FederatedOptimizer("fednova", gradient=proximal(mu), report=report, combine=combine, floats_up=1)
