"""AFL, Active Federated Learning: clients with a high loss, drawn with softmax weights (Goetz et al. 2019).

The server keeps a valuation of each client, computed from the client's loss on the last model that it received. Clients
with low valuations are excluded. Most of the cohort is drawn from the rest, with weights that grow with the valuation.
The remaining places are filled uniformly.

    symbol    here                      shape    meaning
    l_k       now.info.loss.value[k]    scalar   mean loss of the last received model on k's data, before training
    n_k       now.env.sizes[k]          scalar   training examples
    v_k       valuations                [N]      sqrt(n_k) l_k: the summed loss over sqrt(n_k)
    alpha_1   `alpha1`                           fraction of clients excluded, those with the lowest valuations
    alpha_2   `alpha2`                           q_k proportional to exp(alpha_2 v_k) on the other clients
    alpha_3   `alpha3`                           fraction of the cohort drawn uniformly from the clients not yet chosen

Information bought: the loss of all clients at the start (N models down, N floats up), then one float from each selected
client per round. The losses of unselected clients are stale.

Differs from the paper:
* The paper writes 1 / sqrt(n_k) times a client's loss. We read this as the summed loss, like the public code. With the
  mean loss, the factor would favor small clients.
* floor((1 - alpha_3) K) clients are drawn by valuation. With K = 1 and alpha_3 > 0 this is 0, and AFL is uniform.
* Fewer clients are excluded if the remaining ones would not fill these places.
* Unavailable clients are removed, and the method runs on the available clients.
* The paper assumes that all selected clients report. One that never does, such as after a deadline, keeps its first
  loss, and is preferred once the losses of the others have fallen.
"""

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_sel.core.plugins import NonNegative, Share
from fedjax_sel.numerics import sampling
from fedjax_sel.strategies.contract import Now, Selection, Strategy
from fedjax_sel.strategies.facts import ALL, NEVER, SELECTED, Request, always, at_start


def afl(*, alpha1: Share = 0.75, alpha2: NonNegative = 0.01, alpha3: Share = 0.1) -> Strategy:
    """Make AFL, Active Federated Learning.

    Args:
        alpha1: fraction of clients excluded, in [0, 1].
        alpha2: inverse temperature of the softmax over valuations, at least 0.
        alpha3: fraction of the cohort drawn uniformly, in [0, 1].
    """

    def select(key, state, now: Now) -> Selection:
        losses, age = now.info.loss
        values = known_or_largest(valuations(losses, now.env.sizes.astype(jnp.float32)), age)
        ids = active_cohort(key, values, now.env.num_selected, alpha1, alpha2, alpha3, now.available)
        return Selection.of(ids, now.available)

    return Strategy("afl", select, (Request("loss", ALL, at_start()), Request("loss", SELECTED, always())))


def valuations(losses: jax.Array, sizes: jax.Array) -> jax.Array:
    """Return v_k = sqrt(n_k) l_k, [N], from mean losses l_k and training examples n_k, [N] each."""
    return jnp.sqrt(sizes) * losses


def known_or_largest(values: jax.Array, age: jax.Array) -> jax.Array:
    """Impute the values [N] of clients that never answered with the largest known value, or with 0 if none is known.

    These clients are then selected early. Only real clients may fail to answer before the first round.
    """
    known = age < NEVER
    largest = jnp.where(known, values, -jnp.inf).max()
    return jnp.where(known, values, jnp.where(known.any(), largest, 0.0))


def active_cohort(
    key: jax.Array, values: jax.Array, k: int, alpha1: float, alpha2: float, alpha3: float, available=None
) -> jax.Array:
    """Draw distinct client IDs, int32 [k], by AFL's rule for finite valuations [N]; unavailable clients come last."""
    key_ties, key_draw, key_rest = jax.random.split(key, 3)
    num_clients = values.shape[0]
    by_value = int((1 - alpha3) * k + 1e-9)
    # 1e-9: rounding must not reduce an integer product such as 0.9 x 10 to the integer below.
    counts = np.arange(num_clients + 1)
    num_kept = np.maximum(counts - np.floor(alpha1 * counts + 1e-9), np.minimum(by_value, counts)).astype(np.int32)
    reachable = jnp.ones((num_clients,), bool) if available is None else available
    kept_here = num_kept[-1] if available is None else jnp.asarray(num_kept)[reachable.sum()]
    kept = sampling.among_largest(key_ties, jnp.where(reachable, values, -jnp.inf), kept_here)

    # Weights stay logarithms, because exp of a large difference underflows.
    drawn = sampling.by_logits(key_draw, alpha2 * values, by_value, kept)

    # Unavailable clients are drawn only if every available client is drawn too, so those are in tier 0.
    tiers = jnp.where(reachable, 1, 2).at[drawn].add(-1)
    return sampling.top_k(key_rest, -tiers.astype(jnp.float32), k)
