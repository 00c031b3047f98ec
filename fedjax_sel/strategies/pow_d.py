"""Power-of-choice: the highest losses among a few candidates (Cho, Wang, Joshi 2020).

Each round draws d candidates and trains the K of them whose loss is the largest.

    symbol   here                         shape    meaning
    p_k      State.importance             [N]      n_k / sum n: what candidates are drawn by, without replacement
    d        State.num_candidates         scalar   K <= d <= N; d = K is weighted random selection, d = N the K largest
    F_k      info.loss.value[k]           scalar   mean loss of the round's model on k's data (pow-d), or on b random
                                                   examples of it (cpow-d)
             info.training_loss.value[k]  scalar   mean loss over the mini-batches of k's last local training (rpow-d),
                                                   or over the last pass of this round's (train-first)

Information bought: `pow-d` and `cpow-d`, one loss of each candidate a round (d models down, d floats up); `rpow-d`, one
float from each of the cohort with its update; `train-first`, one local training of each candidate (d models down,
d floats up), of whom only the K chosen send their models.

Differs from the paper:
* Ties are broken at random. In `rpow-d` a client that never trained has the value infinity, so it comes first.
* d = 2 K unless given, what FedCor (Tang et al. 2022) sets for its comparison.
* The data that losses are on is a setting of the simulator.
* variant="train-first" is the method that the public code of GPFL compares with under this name; d = 10 there. It is
  power-of-choice on a loss that costs d local trainings.
* Clients that are not available: candidates are drawn from those that are.
"""

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp

from fedjax_sel.errors import UserError
from fedjax_sel.numerics import sampling
from fedjax_sel.strategies.base import (
    CANDIDATES,
    NEVER,
    SELECTED,
    Env,
    Information,
    Request,
    Selection,
    Static,
    Strategy,
    always,
)

_TRAIN_FIRST_CANDIDATES = 10


class State(NamedTuple):
    """Nothing is learned: the table of losses is the memory."""

    num_selected: Static  # K
    num_candidates: Static  # d
    importance: jax.Array  # p_k, float32 [N]


_BATCH_SIZE = 64


def pow_d(
    *,
    variant: Literal["pow-d", "cpow-d", "rpow-d", "train-first"] = "pow-d",
    num_candidates: int | None = None,
    batch_size: int = _BATCH_SIZE,
) -> Strategy:
    """Make power-of-choice.

    Args:
        variant: what candidates are ranked by: the loss on their data (`pow-d`) or on a random batch of it (`cpow-d`),
            the loss that they reported when they last trained (`rpow-d`), or the loss while all of them train in this
            round (`train-first`).
        num_candidates: d, from K to N. None: 2 K, and 10 for `train-first`, clipped to [K, N].
        batch_size: b, examples that a candidate of `cpow-d` evaluates.

    Returns:
        The strategy.

    Raises:
        UserError: a parameter outside its range, or without effect; from `init` where d is not from K to N.
    """
    if num_candidates is not None and num_candidates < 1:
        raise UserError(f"pow_d: num_candidates={num_candidates} is below 1; leave it out for twice the cohort")
    if batch_size < 1:
        raise UserError(f"pow_d: batch_size={batch_size} is below 1; the usual one is {_BATCH_SIZE}")
    if batch_size != _BATCH_SIZE and variant != "cpow-d":
        raise UserError(f"pow_d: batch_size={batch_size} has no effect with variant={variant}; it is cpow-d's")
    reports = variant == "rpow-d"  # the cohort reports: nobody is asked
    request = {
        "pow-d": Request("loss", CANDIDATES, always()),
        "cpow-d": Request("loss", CANDIDATES, always(), (("batch_size", batch_size),)),
        "rpow-d": Request("training_loss", SELECTED, always()),
        "train-first": Request("training_loss", CANDIDATES, always(), (("statistic", "last-pass"),)),
    }[variant]

    def init(key: jax.Array, env: Env) -> State:
        del key
        k = env.num_selected
        if num_candidates is not None and num_candidates < k:
            raise UserError(
                f"pow_d: num_candidates={num_candidates} is below the cohort's size {k}; give {k} or more, or leave it "
                "out for twice that"
            )
        if num_candidates is not None and num_candidates > env.num_clients:
            raise UserError(
                f"pow_d: num_candidates={num_candidates} exceeds the {env.num_clients} clients; give at most "
                f"{env.num_clients}"
            )
        usual = _TRAIN_FIRST_CANDIDATES if variant == "train-first" else 2 * k
        d = min(max(usual if num_candidates is None else num_candidates, k), env.num_clients)
        return State(Static(k), Static(d), env.importance)

    def candidates(key, state: State, info, round, available) -> jax.Array:
        del info, round
        return sampling.without_replacement(key, state.importance, state.num_candidates.value, available)

    def select_reported(key, state: State, info: Information, round, available) -> Selection:
        key_candidates, key_ties = jax.random.split(key)
        named = candidates(key_candidates, state, info, round, available)
        fact = info.training_loss
        eligible = jnp.zeros(fact.age.shape, bool).at[named].set(True)
        if available is not None:
            eligible &= available
        return _largest(key_ties, jnp.where(fact.age < NEVER, fact.value, jnp.inf), eligible, state.num_selected.value)

    def select_answered(key, state: State, info: Information, round, available) -> Selection:
        del round
        value, age = getattr(info, request.kind)
        answered = age == 0
        if available is not None:
            answered &= available
        return _largest(key, value, answered, state.num_selected.value)

    return Strategy(
        name="pow_d",
        init=init,
        select=select_reported if reports else select_answered,
        requests=(request,),
        candidates=None if reports else candidates,
    )


def _largest(key: jax.Array, values: jax.Array, eligible: jax.Array, k: int) -> Selection:
    """Select the k largest of the values [N] of eligible clients; places that these do not fill stay empty."""
    ids = sampling.top_k(key, jnp.where(eligible, values, -jnp.inf), k)
    return Selection(ids, None, eligible[ids])
