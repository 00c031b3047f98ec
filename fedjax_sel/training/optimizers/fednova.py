"""FedNova (Wang et al., NeurIPS 2020): clients that make more steps do not pull the model towards themselves.

Symbols: tau_i steps of client i; a_i the factors of its gradients in its update, so that -update = eta sum_s a_i,s g_s,
and |a_i|_1 = tau_i for SGD; weights omega_i.

    d_i       = -update_i / (eta |a_i|_1)                      the mean gradient along the client's way
    tau_eff   = sum omega_i |a_i|_1                            how far all go together
    w^(t+1)   = w^t - tau_eff eta sum omega_i d_i

With equal |a_i|_1 it is FedAvg, to the rounding. |a_i|_1 is not taken from a table but from the client's own optimizer:
how far it goes in the same steps when every gradient is one. That gives the paper's forms, tau for SGD,
(tau - rho (1 - rho^tau) / (1 - rho)) / (1 - rho) with momentum rho, (1 - (1 - eta mu)^tau) / (eta mu) with the proximal
term, and those of both together and of weight decay. Where a client's optimizer goes on from the round in which it last
trained (--momentum-buffer persistent), gradients of earlier rounds are part of its way, and a_i has their factors, too.

Traffic: the baseline, and one float up a client, |a_i|_1.
Differs from the paper: weights that do not add to one (`global-samples`, `unbiased`) leave tau_eff a mean. For a client
optimizer that is not linear in its gradients, such as Adam, a_i does not exist and the number is what it is above.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedjax_sel.models import Params
from fedjax_sel.training.optimizers.base import FederatedOptimizer, Finished, Memory, Report
from fedjax_sel.training.optimizers.fedprox import proximal


class Averaged(NamedTuple):
    """Of which the server gets the weighted sums."""

    direction: Params  # update_i / |a_i|_1, that is -eta d_i
    coefficient: jax.Array  # |a_i|_1
    one: jax.Array  # its sum is the sum of the weights


def fednova(*, mu: float = 0.0) -> FederatedOptimizer:
    """Make FedNova.

    Args:
        mu: of a proximal term, at least 0.

    Returns:
        The optimizer.

    Raises:
        UserError: mu is negative or no number.
    """

    def report(finished: Finished, memory: Memory) -> Report:
        del memory
        direction = jax.tree.map(lambda update: update / finished.coefficient, finished.update)
        return Report(Averaged(direction, finished.coefficient, jnp.ones_like(finished.coefficient)))

    def combine(averaged: Any) -> Params:
        weights = jnp.where(averaged.one == 0, 1.0, averaged.one)  # of an empty cohort, which leaves the model
        effective_steps = averaged.coefficient / weights  # tau_eff
        return jax.tree.map(lambda direction: effective_steps * direction, averaged.direction)

    return FederatedOptimizer("fednova", gradient=proximal(mu), report=report, combine=combine, floats_up=1)
