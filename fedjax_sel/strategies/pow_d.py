"""Power-of-choice: the clients with the highest losses among a few candidates (Cho, Wang, Joshi 2020).

Each round draws d candidates and trains the K candidates with the largest losses.

    symbol   here                         shape    meaning
    p_k      now.env.importance           [N]      n_k / sum n: weights of the candidate draw, without replacement
    d        `num_candidates`             scalar   K <= d <= N; d = K: weighted random selection, d = N: the K largest
    F_k      now.info.loss.value[k]       scalar   mean loss of the round's model on k's data (pow-d), or on b random
                                                   examples of it (cpow-d)
             now.info.training_loss.value[k]       mean loss over the mini-batches of k's last local training (rpow-d),
                                                   or over the last pass of this round's (train-first)

Information bought: `pow-d` and `cpow-d`: the loss of each candidate per round (d models down, d floats up). `rpow-d`:
one float from each selected client, sent with its update. `train-first`: one local training of each candidate
(d models down, d floats up); only the K selected candidates send their models.

Differs from the paper:
* Ties are broken at random. In `rpow-d` a client that was never selected has an infinite loss, so it comes first; one
  that was selected and never reported comes last.
* The default is d = 2 K, as in the comparison of FedCor (Tang et al. 2022).
* The data on which losses are measured are a setting of the simulator (--loss-on).
* variant="train-first" is the baseline of GPFL's public code, which calls it power-of-choice and sets d = 10. Its loss
  costs d local trainings.
* Candidates are drawn from the available clients.
"""

from typing import Literal

import jax
import jax.numpy as jnp

from fedjax_sel.core.plugins import Count
from fedjax_sel.errors import UserError
from fedjax_sel.numerics import sampling
from fedjax_sel.strategies.contract import Env, Now, Selection, Strategy, check_count
from fedjax_sel.strategies.facts import CANDIDATES, NEVER, SELECTED, Request, always

_TRAIN_FIRST_CANDIDATES = 10
_BATCH_SIZE = 64


def pow_d(
    *,
    variant: Literal["pow-d", "cpow-d", "rpow-d", "train-first"] = "pow-d",
    num_candidates: Count | None = None,
    batch_size: Count = _BATCH_SIZE,
) -> Strategy:
    """Make power-of-choice.

    Args:
        variant: loss that ranks the candidates: on their data (`pow-d`), on a random batch of their data (`cpow-d`), as
            reported after their last training (`rpow-d`), or during a local training in this round (`train-first`).
        num_candidates: number of candidates d, from K to N. None: 2 K, or 10 for `train-first`, clipped to [K, N].
        batch_size: number of examples b that a candidate of `cpow-d` evaluates.
    """
    if batch_size != _BATCH_SIZE and variant != "cpow-d":
        raise UserError(f"pow_d: batch_size={batch_size} has no effect with variant={variant}; set variant=cpow-d")
    request = {
        "pow-d": Request("loss", CANDIDATES, always()),
        "cpow-d": Request("loss", CANDIDATES, always(), (("batch_size", batch_size),)),
        "rpow-d": Request("training_loss", SELECTED, always()),
        "train-first": Request("training_loss", CANDIDATES, always(), (("statistic", "last-pass"),)),
    }[variant]

    def count(env: Env) -> int:
        """Return d."""
        n, k = env.num_clients, env.num_selected
        check_count("pow_d: num_candidates", num_candidates, env, least=k)
        usual = _TRAIN_FIRST_CANDIDATES if variant == "train-first" else 2 * k
        return min(max(usual if num_candidates is None else num_candidates, k), n)

    def candidates(key, state, now: Now) -> jax.Array:
        return sampling.without_replacement(key, now.env.importance, count(now.env), now.available)

    def never_selected(key, now: Now) -> jax.Array:  # the state of `rpow-d`: clients that were selected, bool [N]
        return jnp.zeros((now.env.num_clients,), bool)

    def mark_selected(state, now: Now, selection: Selection, outcome) -> jax.Array:
        return state.at[jnp.where(selection.mask, selection.ids, now.env.num_clients)].set(True, mode="drop")

    def select_reported(key, state, now: Now) -> Selection:
        key_candidates, key_ties = jax.random.split(key)
        named = candidates(key_candidates, state, now)
        value, age = now.info.training_loss
        eligible = jnp.zeros(age.shape, bool).at[named].set(True)
        if now.available is not None:
            eligible &= now.available
        silent = jnp.where(state, jnp.finfo(jnp.float32).min, jnp.inf)
        return _largest(key_ties, jnp.where(age < NEVER, value, silent), eligible, now.env.num_selected)

    def select_answered(key, state, now: Now) -> Selection:
        value, age = getattr(now.info, request.kind)
        answered = age == 0
        if now.available is not None:
            answered &= now.available
        return _largest(key, value, answered, now.env.num_selected)

    if variant == "rpow-d":  # the cohort reports its losses, so no candidate is queried
        return Strategy("pow_d", select_reported, (request,), never_selected, mark_selected)
    return Strategy("pow_d", select_answered, (request,), candidates=candidates)


def _largest(key: jax.Array, values: jax.Array, eligible: jax.Array, k: int) -> Selection:
    """Select the eligible clients with the k largest values [N]; places beyond their number stay empty."""
    ids = sampling.top_k(key, jnp.where(eligible, values, -jnp.inf), k)
    return Selection(ids, None, eligible[ids])
