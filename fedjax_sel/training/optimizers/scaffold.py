"""SCAFFOLD (Karimireddy et al., ICML 2020), option II: every client steps along the estimated gradient of all.

Symbols: y the client's weights, c_i its control variate, c the server's, tau steps, eta the learning rate, N clients.

    y    <- y - eta (g - c_i + c)                              every local step
    c_i+  = c_i - c + (w^t - y) / (tau eta)                    when the steps are done (option II)
    c    <- c + (1/N) sum over the cohort of (c_i+ - c_i)

All variates start at zero, so c is the mean of all c_i at all times, whoever was selected. A client whose report is
lost or left out keeps its old variate, for the server does not have the change.

Traffic: twice the baseline both ways, c down and c_i+ - c_i up. State: a model's size for each of the N clients.
Differs from the paper: tau eta is |a_i|_1 eta (see FedNova), the same for plain SGD. With momentum the displacement is
larger by up to 1 / (1 - momentum), and variates of that size would drive clients apart. A buffer that goes on from
round to round counts as it stands: a variate is then a mean of the gradients of several rounds. Weight decay is
part of the way that a client went, so the variates hold its mean too.
With biased selection c is still the mean of the c_i, but those of clients that are seldom selected are old: c no longer
tracks the gradient of all, and clients are corrected towards where others once were.
"""

import jax
import jax.numpy as jnp

from fedjax_sel.models import Params
from fedjax_sel.training.optimizers.base import FederatedOptimizer, Finished, Memory, Report


def scaffold() -> FederatedOptimizer:
    """Make SCAFFOLD; eta_g of the paper is `--server-learning-rate`.

    Returns:
        The optimizer.
    """

    def gradient(gradient: Params, weights: Params, received: Params, memory: Memory) -> Params:
        del weights, received
        return jax.tree.map(lambda g, c_i, c: g - c_i + c, gradient, memory.own, memory.shared)

    def report(finished: Finished, memory: Memory) -> Report:
        went = finished.coefficient * finished.learning_rate
        change = jax.tree.map(lambda update, c: -c - update / went, finished.update, memory.shared)
        own = jax.tree.map(jnp.add, memory.own, change)
        return Report(finished.update, contributed=change, own=own)

    def zeros(params: Params) -> Params:
        return jax.tree.map(jnp.zeros_like, params)

    return FederatedOptimizer(
        "scaffold",
        gradient=gradient,
        report=report,
        init_own=zeros,
        init_shared=zeros,
        vectors_down=1,
        vectors_up=1,
    )
