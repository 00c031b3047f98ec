"""SCAFFOLD (Karimireddy et al., ICML 2020), option II: control variates correct clients towards the global gradient.

Symbols: y the client's weights, c_i its control variate, c the server's, tau steps, eta the learning rate, N clients.

    y    <- y - eta (g - c_i + c)                              each local step
    c_i+  = c_i - c + (w^t - y) / (tau eta)                    after the last step (option II)
    c    <- c + (1/N) sum over the cohort of (c_i+ - c_i)

All variates start at zero, so c is always the mean of all c_i, under any selection. A client whose report is lost or
skipped keeps its old variate, since the server never receives the change.

Traffic: twice the baseline in both directions, c down and c_i+ - c_i up. State: one model size for each of the N
clients.
Differs from the paper: tau eta is |a_i|_1 eta (see FedNova), which is equal for plain SGD. Momentum increases the
displacement by up to 1 / (1 - momentum), and variates of that size would drive clients apart. If the momentum buffer
is persistent, a variate is a mean of the gradients of several rounds. Weight decay moves the client too, so the
variates include its mean.
Under biased selection, c is still the mean of the c_i, but the variates of rarely selected clients are stale. Then c no
longer tracks the global gradient, and corrects clients towards outdated gradients.
"""

import jax
import jax.numpy as jnp

from fedjax_sel.models import Params
from fedjax_sel.training.optimizers.base import FederatedOptimizer, Finished, Memory, Report


def scaffold() -> FederatedOptimizer:
    """Build SCAFFOLD; the paper's eta_g is `--server-learning-rate`."""

    def gradient(gradient: Params, weights: Params, received: Params, memory: Memory) -> Params:
        del weights, received
        return jax.tree.map(lambda g, c_i, c: g - c_i + c, gradient, memory.own, memory.shared)

    def report(finished: Finished, memory: Memory) -> Report:
        path_length = finished.coefficient * finished.learning_rate
        change = jax.tree.map(lambda update, c: -c - update / path_length, finished.update, memory.shared)
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
