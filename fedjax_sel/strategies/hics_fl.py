"""HiCS-FL: hierarchical clustered sampling guided by the clients' label entropies (Chen, Vikalo, NeurIPS 2024).

A client's update of the output layer's bias shows how balanced its labels are. The server estimates the entropy of each
client's labels from it, clusters clients with similar updates and similar entropies, and prefers clusters of high
entropy. The preference declines to zero over the run.

    symbol     here                    shape    meaning
    db^(k)     bias_of(updates)[k]     [C]      update of the output layer's bias in k's last local training
    T          `temperature`                    temperature of the softmax of db
    H^_k       State.entropies[k]      scalar   entropy of softmax(db / T), nats (Eq. 7)
    lambda     `entropy_weight`                 weight of the difference of entropies in the distance (Eq. 9)
    M          `num_clusters`                   number of clusters
    H_m        mean over the cluster   scalar   mean entropy of cluster m
    gamma_0    `gamma`                          gamma_t = gamma_0 (1 - t / rounds), with rounds t = 1, 2, ...
    p_k        sizes / sum(sizes)      scalar   share of all examples

In the first ceil(N / K) rounds, every client is selected once, in random order. From then on, each draw takes a cluster
with probability pi_m proportional to exp(gamma_t H_m), then one of its clients with probability proportional to p_k
(Eq. 10). Draws are repeated until K distinct clients are selected. This is sampling without replacement with the
weights pi_m p_k / sum_{j in m} p_j.

Information bought: none. The server reads single updates (no secure aggregation) and stores C floats per client.

Differs from the paper:
* The first phase ends when every client has been selected. If K does not divide N, Eq. 10 fills up its last cohort.
  Clients that become available later are selected first, as in section 4.4 of the paper. A client whose report is lost
  is not selected first again.
* A client without an update, or with a zero one, has the largest entropy, ln C, like the paper's initial db = 0. Its
  angle to the other such clients is 0, and pi / 2 to all others.
* reading="code" follows three points of the authors' code. The angle of a zero update is 0 to all clients. gamma_t
  counts rounds from 0. Each client keeps its first update: the code learns in the first phase only, if the clients'
  labels have several Dirichlet concentrations, as in 49 of its 53 configurations.
* All clients are clustered; unavailable ones are then removed from their clusters and from the mean entropies.
* Ties of Ward's clustering are random. An update that is not finite, or has an entry above 1e18, is discarded.
* Under both readings: in the authors' code, entropies come from the mean rows of the output layer's weights, and angles
  from its weights and bias. Clients are uniform within a cluster. If the variance of the entropies is at least 0.1, the
  code samples by Algorithm 2 of `clustered` instead. Ward's clustering takes the rows of the distance matrix as points
  (linkage="square"); the default takes its entries as distances (linkage="condensed").
"""

import math
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp

from fedjax_sel.core.plugins import Count, NonNegative, Positive
from fedjax_sel.errors import UserError
from fedjax_sel.numerics import clustering, facility_location, sampling
from fedjax_sel.strategies.contract import Now, Outcome, Selection, Strategy, check_count

_LARGEST = 1e18  # largest entry of an update; larger ones overflow float32 when divided by a low temperature


class State(NamedTuple):
    """The clients' last updates, as their directions and entropies."""

    visited: jax.Array  # whether the client was selected before, bool [N]
    directions: jax.Array  # db of norm 1, float32 [N, C]; 0 before the first update
    entropies: jax.Array  # H^, float32 [N]


def hics_fl(
    *,
    temperature: Positive = 0.0025,
    entropy_weight: NonNegative = 10.0,
    gamma: NonNegative = 4.0,
    num_clusters: Count | None = None,
    linkage: Literal["condensed", "square"] = "condensed",
    reading: Literal["paper", "code"] = "paper",
) -> Strategy:
    """Make HiCS-FL.

    Args:
        temperature: temperature T, above 0; set it in proportion to the updates: to learning rate and local steps.
        entropy_weight: weight lambda of the entropies in the distance, at least 0.
        gamma: preference gamma_0 for clusters of high entropy at the start, at least 0.
        num_clusters: number of clusters M, from 1 to N. None: K.
        linkage: input of Ward's clustering: the distances (`condensed`), or the rows of their matrix (`square`).
        reading: `paper`: entropies from each client's last update; `code`: from its first one, and two smaller points.
    """

    def init(key, now: Now) -> State:
        n, layer = now.env.num_clients, now.env.output_layer
        check_count("hics_fl: num_clusters", num_clusters, now.env)
        if layer is None:
            raise UserError(
                "hics_fl: the model's output layer is unknown; use a model that ends in a dense layer, and pass "
                "`params` and `output_layer` to a Selector"
            )
        num_outputs = layer.bias_of(now.env.params).shape[0]
        directions = jnp.zeros((n, num_outputs), jnp.float32)
        return State(jnp.zeros((n,), bool), directions, jnp.full((n,), math.log(num_outputs), jnp.float32))

    def select(key, state: State, now: Now) -> Selection:
        key_order, key_draw = jax.random.split(key)
        k, sizes = now.env.num_selected, now.env.sizes.astype(jnp.float32)
        there = jnp.ones_like(state.visited) if now.available is None else now.available
        blank = jnp.pi / 2 if reading == "paper" else 0.0
        distances = distances_of(state.directions, state.entropies, entropy_weight, blank)
        clusters = clusters_of(key_order, distances, num_clusters or k, linkage)
        annealed = gamma * (1 - (now.round + (reading == "paper")) / now.env.num_rounds)
        logits = logits_of(clusters, state.entropies, sizes, annealed, there)
        # An infinite logit puts a client first; among several, their noise decides.
        ids = sampling.by_logits(key_draw, jnp.where(state.visited, logits, jnp.inf), k, there)
        return Selection.of(ids, now.available)

    def update(state: State, now: Now, selection: Selection, outcome: Outcome) -> State:
        layer, n = now.env.output_layer, now.env.num_clients
        assert layer is not None, "`init` rejects this model"
        bias = layer.bias_of(outcome.updates).astype(jnp.float32)
        largest = jnp.abs(bias).max(axis=1, keepdims=True)
        taken = outcome.reported & outcome.finite & (largest[:, 0] < _LARGEST)
        if reading == "code":
            taken &= (state.directions[selection.ids] == 0).all(axis=1)
        bias = jnp.where(taken[:, None], bias, 0.0)
        scaled = bias / jnp.where(taken[:, None] & (largest > 0), largest, 1.0)  # squares of small entries underflow
        length = jnp.sqrt(jnp.sum(scaled**2, axis=1, keepdims=True))
        places = jnp.where(taken, selection.ids, n)
        selected = jnp.where(selection.mask, selection.ids, n)
        return state._replace(
            visited=state.visited.at[selected].set(True, mode="drop"),
            directions=state.directions.at[places].set(scaled / jnp.where(length > 0, length, 1.0), mode="drop"),
            entropies=state.entropies.at[places].set(entropies_of(bias, temperature), mode="drop"),
        )

    return Strategy("hics_fl", select, init=init, update=update)


def entropies_of(updates: jax.Array, temperature: float) -> jax.Array:
    """Return the entropy of softmax(update / temperature), nats, [K], for updates [K, C] (Eq. 7)."""
    logs = jax.nn.log_softmax(updates / temperature, axis=1)
    return -jnp.sum(jnp.exp(logs) * logs, axis=1)


def distances_of(directions: jax.Array, entropies: jax.Array, weight: float, blank: float = jnp.pi / 2) -> jax.Array:
    """Return the angles of directions [N, C], `blank` to zeros, plus weighted differences of entropies [N] (Eq. 9)."""
    chords = jnp.sqrt(facility_location.sum_over_differences(jnp.square, directions, directions))
    angles = 2 * jnp.arcsin(jnp.minimum(chords / 2, 1.0))  # exactly zero between equal directions
    unknown = (directions == 0).all(axis=1)
    angles = jnp.where(unknown[:, None] ^ unknown, blank, angles)
    return angles + weight * jnp.abs(entropies[:, None] - entropies)


def clusters_of(key: jax.Array, distances: jax.Array, num_clusters: int, linkage: str) -> jax.Array:
    """Return the cluster of each client, int32 [N], by Ward's clustering of distances [N, N] in random order."""
    if linkage == "square":
        distances = clustering.distances_of_rows(distances)
    shuffled = jax.random.permutation(key, distances.shape[0])
    tree = clustering.linkage(distances[shuffled][:, shuffled])
    return clustering.cut_into(tree, num_clusters)[jnp.argsort(shuffled)]


def logits_of(
    clusters: jax.Array, entropies: jax.Array, sizes: jax.Array, gamma: jax.Array, available: jax.Array
) -> jax.Array:
    """Return the log of pi_m p_k / sum_{j in m} p_j, up to a constant, [N] (Eq. 10).

    Only available clients count; logits of the others have no meaning. `clusters` is int32 [N], `gamma` is gamma_t.
    """
    members = (clusters[:, None] == clusters) & available
    entropy = jnp.where(members, entropies, 0.0).sum(axis=1) / jnp.maximum(members.sum(axis=1), 1)
    return gamma * entropy + jnp.log(sizes) - jnp.log(jnp.where(members, sizes, 0.0).sum(axis=1))
