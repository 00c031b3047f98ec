"""FedSAE's selection: clients with a high loss, drawn with softmax weights (Li et al. 2021).

FedSAE also adapts workloads to devices. This file implements only its client selection, the baseline of FL-DP3S. It is
AFL without excluded clients (alpha_1 = 0) and without uniform draws (alpha_3 = 0).

    symbol   here                      shape    meaning
    l_k      now.info.loss.value[k]    scalar   mean loss of the last received model on k's data, before training
    n_k      now.env.sizes[k]          scalar   training examples
    v_k      `valuations`              [N]      sqrt(n_k) l_k; the cohort is drawn with weights exp(temperature v_k)

Information bought: the loss of all clients at the start (N models down, N floats up), then one float from each selected
client per round, until the last active round.

Differs from the paper:
* The factor is always sqrt(n_k). The public code uses sqrt(n_k) at the start and 1 / sqrt(n_k) later; with equal sizes
  this only changes the temperature.
* `active_rounds`: a comment in the public code limits the method to the first 50 rounds, with uniform cohorts
  afterwards, but the code's condition never holds. The default is all rounds.
* The paper assumes that all selected clients report. One that never does, such as after a deadline, keeps its first
  loss; under variant="greedy" such clients end up in all places.
* variant="greedy" takes the K largest stored losses. With 600 examples per client, the default temperature gives
  weights that differ by less than a factor of two. This hardly explains the slow convergence of FedSAE that FL-DP3S
  reports.
"""

from typing import Literal

import jax.numpy as jnp

from fedjax_sel.core.plugins import Count, NonNegative
from fedjax_sel.errors import UserError
from fedjax_sel.numerics import sampling
from fedjax_sel.strategies.afl import active_cohort, known_or_largest, valuations
from fedjax_sel.strategies.contract import Now, Selection, Strategy
from fedjax_sel.strategies.facts import ALL, SELECTED, Request, always, at_start, rounds

_TEMPERATURE = 0.01


def fedsae(
    *,
    variant: Literal["softmax", "greedy"] = "softmax",
    temperature: NonNegative = _TEMPERATURE,
    active_rounds: Count | None = None,
) -> Strategy:
    """Make FedSAE's selection.

    Args:
        variant: a draw with weights exp(temperature sqrt(n_k) l_k) (`softmax`), or the K largest losses (`greedy`).
        temperature: factor of the valuations in the softmax, at least 0; a larger factor favors high losses more.
        active_rounds: number of active rounds, at least 1; later cohorts are uniform. None: all rounds.
    """
    if temperature != _TEMPERATURE and variant == "greedy":
        raise UserError(f"fedsae: temperature={temperature} has no effect with variant=greedy; leave one out")

    def select(key, state, now: Now) -> Selection:
        (losses, age), k, available = now.info.loss, now.env.num_selected, now.available
        values = losses if variant == "greedy" else valuations(losses, now.env.sizes.astype(jnp.float32))
        values = known_or_largest(values, age)
        if active_rounds is not None:
            values = jnp.where(now.round < active_rounds, values, 0.0)  # equal values: uniform cohorts
        if variant == "softmax":
            ids = active_cohort(key, values, k, 0.0, temperature, 0.0, available)
        else:
            ids = sampling.top_k(key, values if available is None else jnp.where(available, values, -jnp.inf), k)
        return Selection.of(ids, available)

    # The cohort's answers are first read in the next round, so the last active round needs none.
    refresh = always() if active_rounds is None else rounds(0, active_rounds - 2)
    requests = (Request("loss", ALL, at_start()), Request("loss", SELECTED, refresh))
    return Strategy("fedsae", select, requests if active_rounds != 1 else requests[:1])
