"""Fed-CBS: cohorts whose pooled labels are balanced (Zhang et al., ICML 2023).

The server knows each client's label histogram. It draws the cohort one client after another, with a strong preference
for clients that balance the labels of the cohort so far. The first draw also favors clients that were selected rarely.

    symbol    here                           shape    meaning
    B         histograms.shape[1]            scalar   number of labels
    q_k, a_k  histograms[k], sum and shares  [B]      number of examples and label distribution of client k
    QCID(M)   class_imbalance                scalar   quadratic class-imbalance degree of a set M of clients:
                                                      sum_b (sum_{k in M} q_k a_kb / sum_{k in M} q_k - 1 / B)^2
    M_m       carry of `draw_cohort`         [B]      the first m clients of the cohort, as a sum of histograms
    beta_m    m                              scalar   exponent of the m-th draw
    lambda    `exploration`                  scalar   factor of the exploration
    T_k       1 + State.counts[k]            [N]      1 plus the reports of client k
    t         now.round + 1                  scalar   round, from 1

    P(c_1)              ~  QCID(M_1)^-beta_1 + lambda sqrt(3 ln t / (2 T_{c_1}))
    P(c_m | M_{m-1})    ~  QCID(M_m)^-beta_m                                               m = 2, ..., K

The paper divides the second line by the weight of M_{m-1}, which is the same for all candidates and cancels.

Information bought: the label histogram of all clients before the first round: N B floats up, no model down.

Differs from the paper:
* The paper's server computes QCID from the inner products of all pairs q_k a_k, which it obtains by homomorphic
  encryption. Here the clients send their histograms, and QCID is the same.
* T_k starts at 1, as in two public ports; with 0 the exploration would be infinite. It counts reports that arrive.
* beta_m = m and lambda = 10 are the values of FedXplore's port. There, the exponent is m - 1 from the third draw on,
  and the second draw depends on the candidates' T_k. FedProphet's port has lambda = 1, and exponents from 1 to 10 for
  any K. It takes the most probable first client, and the most balanced of several cohorts.
* QCID is at least 1e-10. Smaller values are rounding errors: such sets are balanced.
* Clients that did not answer have the mean histogram of the others.
* With --privacy, negative counts are set to zero, and each histogram is rescaled to its number of examples.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from fedjax_sel.core.plugins import NonNegative
from fedjax_sel.numerics import sampling
from fedjax_sel.strategies.contract import Now, Outcome, Selection, Strategy
from fedjax_sel.strategies.facts import ALL, NEVER, Request, at_start

_BALANCED = 1e-10


class State(NamedTuple):
    """Selections so far; the histograms are a fact."""

    counts: jax.Array  # reports of each client that arrived, int32 [N]


def fed_cbs(*, exploration: NonNegative = 10.0) -> Strategy:
    """Make Fed-CBS.

    Args:
        exploration: factor lambda of the exploration in the first draw of a round, at least 0.
    """

    def init(key, now: Now) -> State:
        return State(jnp.zeros((now.env.num_clients,), jnp.int32))

    def select(key, state: State, now: Now) -> Selection:
        histograms = known_or_mean(*now.info.label_histogram)
        if "label_histogram" in now.env.noise:
            histograms = possible_counts(histograms, now.env.all_sizes)
        log_rounds = jnp.log(now.round.astype(jnp.float32) + 1.0)
        bonus = exploration * jnp.sqrt(1.5 * log_rounds / (1.0 + state.counts))
        ids = draw_cohort(key, histograms, bonus, now.env.num_selected, now.available)
        return Selection.of(ids, now.available)

    def update(state: State, now: Now, selection: Selection, outcome: Outcome) -> State:
        return State(state.counts.at[selection.ids].add(outcome.reported))

    return Strategy("fed_cbs", select, (Request("label_histogram", ALL, at_start()),), init=init, update=update)


def known_or_mean(histograms: jax.Array, age: jax.Array) -> jax.Array:
    """Impute the histograms [N, B] of clients that never answered with the mean of the others, or with ones."""
    known = (age < NEVER)[:, None]
    mean = jnp.where(known, histograms, 0.0).sum(axis=0) / jnp.maximum(known.sum(), 1)
    return jnp.where(known, histograms, jnp.where(known.any(), mean, 1.0))


def possible_counts(histograms: jax.Array, sizes: jax.Array) -> jax.Array:
    """Return noisy counts [N, B] without negative ones, rescaled to the clients' numbers of examples, [N]."""
    counts = jnp.maximum(histograms, 0.0)
    totals = counts.sum(axis=1, keepdims=True)
    return jnp.where(totals > 0, counts * (sizes[:, None] / jnp.maximum(totals, 1e-6)), 1.0)


def class_imbalance(histograms: jax.Array) -> jax.Array:
    """Return QCID of label histograms [..., B], at least 1e-10."""
    shares = histograms / jnp.maximum(histograms.sum(axis=-1, keepdims=True), 1.0)
    return jnp.maximum(jnp.sum((shares - 1.0 / histograms.shape[-1]) ** 2, axis=-1), _BALANCED)


def draw_cohort(
    key: jax.Array, histograms: jax.Array, bonus: jax.Array, k: int, available: jax.Array | None = None
) -> jax.Array:
    """Draw k distinct clients one after another, int32 [k]; unavailable clients come last.

    `histograms` are examples per label, float32 [N, B]; `bonus` is lambda sqrt(3 ln t / (2 T_k)), float32 [N].
    """

    def draw(carry: tuple[jax.Array, jax.Array], step: tuple[jax.Array, jax.Array]):
        pooled, left = carry
        key, m = step
        logits = -m.astype(jnp.float32) * jnp.log(class_imbalance(pooled + histograms))
        logits = jnp.where(m == 1, jnp.logaddexp(logits, jnp.log(bonus)), logits)
        eligible = left if available is None else jnp.where((left & available).any(), left & available, left)
        chosen = sampling.by_logits(key, logits, 1, eligible)[0]
        return (pooled + histograms[chosen], left.at[chosen].set(False)), chosen

    start = (jnp.zeros(histograms.shape[1:]), jnp.ones(histograms.shape[:1], bool))
    return lax.scan(draw, start, (jax.random.split(key, k), jnp.arange(1, k + 1)))[1]
