"""FedLECC: high losses in clusters of clients with similar labels (Jimenez-Gutierrez et al., 2026).

Clients are clustered once, by their label distributions. Each round selects the clients with the highest losses in the
clusters with the highest mean losses. Clusters provide diversity, losses show what the model has not learned.

    symbol  here                            shape    meaning
    p_i     info.label_histogram.value[i]   [C]      label distribution of client i, from its counts
    d_ij    |sqrt p_i - sqrt p_j| / sqrt 2  scalar   Hellinger distance
    l_i     info.loss.value[i]              scalar   loss of the round's model on client i's data
    M       `num_clusters`                           largest number of clusters
    J       `clusters_per_round`                     clusters that share a cohort
    z       ceil(K / J)                              clients per cluster

Clusters are sorted by their mean loss, the highest first. Each gives its z clients with the highest losses, until the
cohort has K clients.

Information bought: the label histograms of all clients before the first round (N C floats up), and the loss of all
clients in every round (N models down, N floats up).

Differs from the paper:
* The paper's abstract and public summaries state Hellinger distances, priority for clusters with a high mean loss, and
  for their clients with high losses. Ward's clustering, M, J and z are choices made here, without its full text.
* Clients with equal label distributions share a cluster, so there are fewer than M clusters if M exceeds the number of
  different distributions.
* A cluster with fewer than z available clients gives all of them, and the next clusters fill the cohort. If all
  clusters have given z clients, they give z more, in the same order.
* Ties are random. Unavailable clients count in no mean and are not selected.
* With --privacy, negative counts are set to zero.
* Clients that do not send a histogram are similar to each other. A client that never sent a loss counts with the
  largest one, as in `afl`.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from fedjax_sel.core.plugins import Count
from fedjax_sel.errors import UserError
from fedjax_sel.numerics import clustering, sampling
from fedjax_sel.strategies.afl import known_or_largest
from fedjax_sel.strategies.contract import Now, Selection, Strategy, check_count
from fedjax_sel.strategies.facts import ALL, NEVER, Request, always, at_start


class State(NamedTuple):
    """The clusters; the table of losses holds everything else."""

    clusters: jax.Array  # cluster of each client, int32 [N]


def fedlecc(*, num_clusters: Count | None = None, clusters_per_round: Count | None = None) -> Strategy:
    """Make FedLECC.

    Args:
        num_clusters: largest number of clusters M, from 1 to N. None: the number of labels, at most N.
        clusters_per_round: number of clusters J that share a cohort, from 1 to `num_clusters`; at most the number of
            labels. None: M / 2, rounded up.
    """

    def count(now: Now) -> int:
        """Return M."""
        n = now.env.num_clients
        m = min(now.env.num_classes, n) if num_clusters is None else num_clusters
        check_count("fedlecc: num_clusters", m, now.env)
        if num_clusters is not None and clusters_per_round is not None and clusters_per_round > m:
            raise UserError(
                f"fedlecc: clusters_per_round={clusters_per_round} exceeds the {m} clusters; give at most {m}"
            )
        return m

    def init(key, now: Now) -> State:
        order = jax.random.permutation(key, now.env.num_clients).astype(jnp.int32)
        counts, age = now.info.label_histogram
        if "label_histogram" in now.env.noise:
            counts = jnp.maximum(counts, 0.0)  # a negative count has no square root
        return State(clusters_of(jnp.where((age < NEVER)[:, None], counts, 0.0), order, count(now)))

    def select(key, state: State, now: Now) -> Selection:
        k = now.env.num_selected
        there = jnp.ones(state.clusters.shape, bool) if now.available is None else now.available
        m = count(now)
        share = math.ceil(k / min(clusters_per_round or math.ceil(m / 2), m))
        losses = known_or_largest(*now.info.loss)
        ids = sampling.first(ranking(key, state.clusters, losses, share, there), k)
        return Selection.of(ids, now.available)

    requests = (Request("label_histogram", ALL, at_start()), Request("loss", ALL, always()))
    return Strategy("fedlecc", select, requests, init)


def clusters_of(counts: jax.Array, order: jax.Array, num_clusters: int) -> jax.Array:
    """Return the cluster of each client, int32 [N], by Ward's clustering of Hellinger distances into at most M.

    `counts` are label histograms, [N, C]; `order`, int32 [N], breaks ties.
    """
    shares = counts / jnp.maximum(counts.sum(axis=1, keepdims=True), 1)
    distances = clustering.distances_of_rows(jnp.sqrt(shares[order]))  # a common factor does not change the clusters
    tree = clustering.linkage(distances)
    different = (tree.heights > 0).sum() + 1  # equal clients merge at height 0
    return clustering.cut_into(tree, jnp.minimum(num_clusters, different))[jnp.argsort(order)]


def ranking(
    key: jax.Array, clusters: jax.Array, losses: jax.Array, share: int, available: jax.Array
) -> tuple[jax.Array, ...]:
    """Return the words, uint32 [N] each, that sort clients for selection; see `sampling.first`.

    A cluster gives `share` clients, z, before the next one's turn. Unavailable clients come last; `key` breaks ties.
    """
    n = losses.shape[0]
    members = (clusters == jnp.arange(n)[:, None]) & available  # [cluster, client]
    means = jnp.where(members, losses, 0.0).sum(axis=1) / jnp.maximum(members.sum(axis=1), 1)
    tie, tie_of_cluster = (jax.random.permutation(one, n) for one in jax.random.split(key))
    ahead = (losses > losses[:, None]) | ((losses == losses[:, None]) & (tie < tie[:, None]))
    rank = (members[clusters] & ahead).sum(axis=1)  # place of the client in its cluster, the highest loss first
    words = (~available, rank // share, sampling.descending(means[clusters]), tie_of_cluster[clusters], rank)
    return tuple(word.astype(jnp.uint32) for word in words)
