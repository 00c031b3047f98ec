"""TiFL: cohorts of equally fast clients, from tiers with adaptive probabilities (Chai et al., HPDC 2020).

All clients are profiled once. Ranked by the duration of a local training, they form m tiers of equal size. Each round
draws one tier and K of its clients uniformly, so that fast clients do not wait for slow ones. The adaptive policy
raises the probability of tiers on which the model is worse. Credits limit the number of draws of each tier.

    symbol     here                   shape    meaning
    L_i        info.seconds.value[i]  scalar   duration of a local training with both transfers
    m          `num_tiers`                     number of tiers; tier 0 is the fastest
    P_t        State.probabilities    [m]      probability of tier t; tiers without credits are drawn again
    Credits_t  State.credits          [m]      remaining draws of tier t
    I          `interval`                      rounds between two measurements of the tiers
    A_t        -State.losses[t]       scalar   the paper: accuracy on the test data of the tier's clients; here: minus
                                               the mean loss over the examples of the tier's clients
    cur        State.current          scalar   tier of the previous round

Every I rounds, from round I: if A_cur is at most its value I rounds earlier, the probabilities change (Algorithm 2).
The n tiers with credits are sorted by A_t, the lowest first. Tier number i, from 0, gets P = 2 (n - i) / (n (n + 1)).

Information bought: the duration of all clients before the first round: N local trainings, N models down, N floats up.
Also the loss of all clients every I rounds, from the first: N models down, N floats up. The part of the data on which
losses are measured is a setting of the simulator (--loss-on).

Differs from the paper:
* The catalog of facts has losses but no accuracies, so a tier's loss replaces its accuracy.
* The paper's static policies, with fixed probabilities, are left out.
* The paper does not define ChangeProbs. The formula above is that of two public ports, fltk and easyFL, which apply it
  every I rounds without the test. Two other ports apply the test, but use other formulas. Of tiers with equal losses,
  the faster has the larger P.
* The paper splits a histogram of the durations. Here tiers have equal sizes, as in three of four ports.
* Clients are profiled once, without a time limit. Clients that do not answer belong to the slowest tiers; the paper
  excludes them.
* A tier with fewer than K available clients is filled from the next faster tiers, then from the next slower ones. The
  paper assumes that tiers are larger than K. A tier without an available client is not drawn.
* Credits are ceil(T / m) per tier for T rounds, as in fltk; the paper leaves them open. When all tiers with an
  available client have spent theirs, all tiers get new credits and equal probabilities.
* An unavailable client counts in its tier's loss with its last measured loss. A tier without a measured loss counts
  with the largest loss of a tier.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from fedjax_sel.core.plugins import Count
from fedjax_sel.numerics import sampling
from fedjax_sel.strategies.afl import known_or_largest
from fedjax_sel.strategies.contract import Now, Selection, Strategy, check_count
from fedjax_sel.strategies.facts import ALL, NEVER, Request, at_start, every


class State(NamedTuple):
    """Tiers, and what the server learns about them."""

    tiers: jax.Array  # tier of each client, int32 [N]
    probabilities: jax.Array  # P, float32 [m]
    credits: jax.Array  # int32 [m]
    losses: jax.Array  # mean loss of each tier at the last measurement, float32 [m]
    current: jax.Array  # tier of the previous round, int32 scalar


def tifl(*, num_tiers: Count = 5, interval: Count = 10, credits: Count | None = None) -> Strategy:
    """Make TiFL.

    Args:
        num_tiers: number of tiers m, from 1 to N.
        interval: rounds I between two measurements of the tiers, at least 1.
        credits: draws of each tier, at least 1. None: rounds over m, rounded up.
    """

    def init(key, now: Now) -> State:
        n = now.env.num_clients
        check_count("tifl: num_tiers", num_tiers, now.env)
        ties = jax.random.permutation(key, n).astype(jnp.int32)
        return State(
            tiers_of(*now.info.seconds, ties, num_tiers), jnp.full((num_tiers,), jnp.float32(1 / num_tiers)),
            jnp.full((num_tiers,), first_credits(now)), jnp.zeros((num_tiers,), jnp.float32), jnp.int32(0),
        )  # fmt: skip

    def first_credits(now: Now) -> int:
        return credits or math.ceil(now.env.num_rounds / num_tiers)

    def observe(state: State, now: Now) -> State:
        value, age = now.info.loss
        weights = jnp.where(age < NEVER, now.env.sizes.astype(jnp.float32), 0.0)
        losses = losses_of_tiers(value, weights, state.tiers, num_tiers)
        measured = now.round % interval == 0
        worse = measured & (now.round > 0) & (losses[state.current] >= state.losses[state.current])
        return state._replace(
            probabilities=jnp.where(worse, changed_probabilities(losses, state.credits), state.probabilities),
            losses=jnp.where(measured, losses, state.losses),
        )

    def select(key, state: State, now: Now) -> Selection:
        key_tier, key_clients = jax.random.split(key)
        is_open = open_tiers(state.tiers, num_tiers, now.available)
        weights = jnp.where(is_open & (state.credits > 0), state.probabilities, 0.0)
        weights = jnp.where(weights.any(), weights, is_open | ~is_open.any())  # other tiers can have closed since
        tier = sampling.with_replacement(key_tier, weights, 1)[0]
        # Order of the tiers: the drawn one, the next faster ones, then the next slower ones.
        steps = jnp.where(state.tiers <= tier, tier - state.tiers, state.tiers)
        if now.available is not None:
            steps = jnp.where(now.available, steps, num_tiers)
        words = sampling.random_words(key_clients, now.env.num_clients)
        ids = sampling.first((steps.astype(jnp.uint32), *words), now.env.num_selected)
        return Selection.of(ids, now.available)

    def update(state: State, now: Now, selection: Selection, outcome) -> State:
        drawn = selection.mask.any()  # else no client was available, and no tier pays
        first = selection.ids[jnp.argmax(selection.mask)]  # of the drawn tier
        tier = jnp.where(drawn, state.tiers[first], state.current)
        left = jnp.maximum(state.credits.at[tier].add(-drawn.astype(jnp.int32)), 0)
        spent = drawn & ((left == 0) | ~open_tiers(state.tiers, num_tiers, now.available)).all()
        return state._replace(
            probabilities=jnp.where(spent, 1 / num_tiers, state.probabilities),
            credits=jnp.where(spent, first_credits(now), left),
            current=tier,
        )

    requests = (Request("seconds", ALL, at_start()), Request("loss", ALL, every(interval)))
    return Strategy("tifl", select, requests, init, update, observe)


def tiers_of(seconds: jax.Array, age: jax.Array, ties: jax.Array, num_tiers: int) -> jax.Array:
    """Return the tier of each client, int32 [N], from durations [N], their ages [N], and an order of ties [N]."""
    n = seconds.shape[0]
    ranking = jnp.lexsort((ties, jnp.where(age < NEVER, seconds, jnp.inf)))
    return jnp.zeros((n,), jnp.int32).at[ranking].set((jnp.arange(n) * num_tiers // n).astype(jnp.int32))


def open_tiers(tiers: jax.Array, num_tiers: int, available: jax.Array | None) -> jax.Array:
    """Return which tiers have an available client, bool [m], from the tiers of the clients, [N]."""
    if available is None:
        return jnp.ones((num_tiers,), bool)
    return jnp.zeros((num_tiers,), bool).at[tiers].max(available)


def losses_of_tiers(losses: jax.Array, weights: jax.Array, tiers: jax.Array, num_tiers: int) -> jax.Array:
    """Return the weighted mean loss of each tier, [m], from losses [N], weights [N] and tiers [N].

    A tier without weights has the largest mean of the others.
    """
    members = jnp.where(tiers == jnp.arange(num_tiers)[:, None], weights, 0.0)
    means, known = (members * losses).sum(axis=1) / jnp.maximum(members.sum(axis=1), 1.0), members.any(axis=1)
    return known_or_largest(means, jnp.where(known, 0, NEVER))


def changed_probabilities(losses: jax.Array, credits: jax.Array) -> jax.Array:
    """Return P = 2 (n - i) / (n (n + 1)) of the n tiers with credits, sorted by descending loss; 0 for the others."""
    has_credits = credits > 0
    n = has_credits.sum()
    i = jnp.argsort(jnp.argsort(jnp.where(has_credits, -losses, jnp.inf)))
    return jnp.where(has_credits, 2 * (n - i) / (n * (n + 1)), 0.0).astype(jnp.float32)
