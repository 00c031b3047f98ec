"""FedSAE's selection: clients with a high loss are preferred (Li et al. 2021).

FedSAE adapts workloads to devices; here is only its choice of clients, as FL-DP3S compares with it. It is AFL without
clients set aside and without a uniform share.

    symbol   here                      shape    meaning
    l_k      info.loss.value[k]        scalar   mean loss of the last received model on k's data, before training
    n_k      State.sizes[k]            scalar   training examples
    v_k      logits                    [N]      temperature sqrt(n_k) l_k; the cohort is drawn with weights exp(v_k)

Information bought: the loss of all at the start (N models down, N floats up), then one float from each of the cohort a
round, while it can still matter.

Differs from the paper:
* sqrt(n_k) throughout. Public code uses it at the start and 1 / sqrt(n_k) later; with equal sizes that is only another
  temperature.
* `active_rounds`: comments in public code speak of the first 50 rounds, then uniform cohorts, and its condition never
  holds. Active in all rounds by default.
* variant="greedy" takes the K largest stored losses. At the default temperature weights differ by less than a factor of
  two for 600 examples, which hardly explains the slow convergence that FL-DP3S reports of FedSAE.
"""

from typing import Literal

import jax
import jax.numpy as jnp

from fedjax_sel.errors import UserError
from fedjax_sel.numerics import sampling
from fedjax_sel.strategies.afl import State, active_cohort, known_or_largest, valuations
from fedjax_sel.strategies.base import (
    ALL,
    SELECTED,
    Env,
    Request,
    Selection,
    Static,
    Strategy,
    always,
    at_start,
    rounds,
)

_TEMPERATURE = 0.01


def fedsae(
    *,
    variant: Literal["softmax", "greedy"] = "softmax",
    temperature: float = _TEMPERATURE,
    active_rounds: int | None = None,
) -> Strategy:
    """Make FedSAE's selection.

    Args:
        variant: a draw with weights exp(temperature sqrt(n_k) l_k) (`softmax`), or the K largest losses (`greedy`).
        temperature: what multiplies valuations in the softmax, at least 0; larger prefers high losses more.
        active_rounds: how many rounds it is active for, at least 1; cohorts are uniform afterwards. None: always.

    Returns:
        The strategy.

    Raises:
        UserError: a parameter outside its range, or without effect.
    """
    if not 0 <= temperature < float("inf"):
        usual = f"the public code uses {_TEMPERATURE}"
        raise UserError(f"fedsae: temperature={temperature} must be a number from 0; {usual}")
    if temperature != _TEMPERATURE and variant == "greedy":
        raise UserError(f"fedsae: temperature={temperature} has no effect with variant=greedy; leave one of them out")
    if active_rounds is not None and active_rounds < 1:
        raise UserError(f"fedsae: active_rounds={active_rounds} is below 1; for uniform cohorts use --algo random")

    def init(key: jax.Array, env: Env) -> State:
        del key
        return State(Static(env.num_selected), env.sizes.astype(jnp.float32))

    def select(key, state: State, info, round, available) -> Selection:
        k = state.num_selected.value
        values = info.loss.value if variant == "greedy" else valuations(info.loss.value, state.sizes)
        values = known_or_largest(values, info.loss.age)
        if active_rounds is not None:
            values = jnp.where(round < active_rounds, values, 0.0)  # equal values: uniform cohorts
        if variant == "softmax":
            ids = active_cohort(key, values, k, 0.0, temperature, 0.0, available)
        else:
            ids = sampling.top_k(key, values if available is None else jnp.where(available, values, -jnp.inf), k)
        return Selection(ids, None, jnp.ones((k,), bool) if available is None else available[ids])

    # What the cohort answers in a round is first read in the next one.
    refresh = always() if active_rounds is None else rounds(0, active_rounds - 2)
    requests = (Request("loss", ALL, at_start()), Request("loss", SELECTED, refresh))
    return Strategy(name="fedsae", init=init, select=select, requests=requests if active_rounds != 1 else requests[:1])
