"""FedLECC against a NumPy twin: clusters by Hellinger distances, and the clients with the highest losses in them."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from scipy.cluster import hierarchy
from scipy.spatial.distance import squareform

from fedjax_sel.errors import UserError
from fedjax_sel.strategies.facts import ALL, NEVER
from fedjax_sel.strategies.fedlecc import fedlecc
from tests.strategies import hooks
from tests.strategies.hooks import env_of, info_of, now_of

CLASSES = 4


def known(histograms, losses, k, ages=0, round=0, available=None):
    env = env_of(np.sum(histograms, axis=1), k, num_classes=CLASSES)
    return now_of(env, info_of("fedlecc", label_histogram=histograms, loss=(losses, ages)), round, available)


def started(strategy, histograms, k, seed=9):
    return hooks.started(strategy, known(histograms, np.zeros(len(histograms)), k), seed)


class Twin:
    """Plain loops, in float64."""

    def __init__(self, histograms, num_clusters, clusters_per_round, k):
        n = len(histograms)
        p = [np.asarray(row) / sum(row) for row in histograms]
        apart = [[math.sqrt(((np.sqrt(p[i]) - np.sqrt(p[j])) ** 2).sum() / 2) for j in range(n)] for i in range(n)]
        tree = hierarchy.linkage(squareform(np.array(apart), checks=False), "ward")
        self.labels = hierarchy.fcluster(tree, num_clusters, "maxclust")
        self.z, self.k = math.ceil(k / clusters_per_round), k

    def cohort(self, losses, available):
        groups = [[i for i in np.flatnonzero(self.labels == label) if available[i]] for label in set(self.labels)]
        groups = [sorted(group, key=lambda i: -losses[i]) for group in groups if group]
        groups.sort(key=lambda group: -np.mean([losses[i] for i in group]))
        chosen = []
        while len(chosen) < self.k and any(groups):
            for group in groups:
                chosen += group[: self.z]
                del group[: self.z]
        return [int(i) for i in chosen[: self.k]]


@pytest.mark.fast_cases(1)
@pytest.mark.parametrize("num_clusters,per_round,k", [(4, 2, 5), (None, None, 4), (6, 6, 3), (1, 1, 5), (3, 2, 9)])
def test_cohorts_follow_the_twin(num_clusters, per_round, k):
    n = 15
    rng = np.random.default_rng(k)
    parameters = {} if num_clusters is None else {"num_clusters": num_clusters, "clusters_per_round": per_round}
    strategy = fedlecc(**parameters)
    select = jax.jit(strategy.select)
    for game in range(3):
        histograms = np.stack([rng.multinomial(40, rng.dirichlet(np.full(CLASSES, 0.3))) for _ in range(n)])
        state = started(strategy, histograms, k, seed=game)
        twin = Twin(histograms, num_clusters or CLASSES, per_round or CLASSES // 2, k)
        same = np.asarray(state.clusters)[:, None] == np.asarray(state.clusters)
        np.testing.assert_array_equal(same, twin.labels[:, None] == twin.labels)
        for round in range(6):
            losses, here = rng.uniform(0.1, 3, n).astype(np.float32), rng.random(n) < (0.7 if round % 2 else 1.1)
            there = None if here.all() else jnp.asarray(here)
            found = select(jax.random.key(round), state, known(histograms, losses, k, 0, round, there))
            expected = twin.cohort(losses.astype(float), here)
            assert found.ids[: len(expected)].tolist() == expected
            assert found.mask.tolist() == [place < len(expected) for place in range(k)]


@pytest.mark.slow
def test_a_cohort_by_hand():
    """Clusters {0, 1, 2}, {3, 4} and {5} with mean losses 2, 2.5 and 0.5."""
    histograms = [[9, 0, 0, 0]] * 3 + [[0, 9, 0, 0]] * 2 + [[0, 0, 9, 0]]
    losses = [1.0, 3.0, 2.0, 1.0, 4.0, 0.5]

    def cohort(k, per_round, available=None):
        strategy = fedlecc(num_clusters=3, clusters_per_round=per_round)
        state = started(strategy, histograms, k)
        select = jax.jit(strategy.select)
        return select(jax.random.key(0), state, known(histograms, losses, k, available=available)).ids.tolist()

    assert cohort(4, 2) == [4, 3, 1, 2]  # z = 2 of each of two clusters
    assert cohort(4, 1) == [4, 3, 1, 2]  # z = 4: the first cluster has two clients only
    assert cohort(5, 2, jnp.array([True, True, True, True, False, True])) == [1, 2, 0, 3, 5]  # means 2, 1 and 0.5


def test_equal_clients_share_a_cluster():
    """Two different distributions, of clients with unequal sizes, and up to four clusters."""
    histograms = [[3, 0, 6, 0], [5, 0, 10, 0], [0, 7, 0, 0], [1, 0, 2, 0], [0, 1, 0, 0]]
    clusters = np.asarray(started(fedlecc(num_clusters=4), histograms, 2).clusters)
    assert clusters[0] == clusters[1] == clusters[3] != clusters[2] == clusters[4]


def test_ties_are_random():
    """Equal losses: each cluster is first equally often, and each of its clients."""
    histograms = [[9, 0, 0, 0]] * 2 + [[0, 9, 0, 0]] * 4
    strategy = fedlecc(num_clusters=2, clusters_per_round=1)
    state, now = started(strategy, histograms, 1), known(histograms, np.ones(6), 1)
    select = jax.jit(jax.vmap(lambda key: strategy.select(key, state, now).ids[0]))
    counts = np.bincount(select(jax.random.split(jax.random.key(0), 8000)), minlength=6)
    assert stats.chisquare(counts, [2000, 2000, 1000, 1000, 1000, 1000]).pvalue > 1e-4


@pytest.mark.slow
def test_silent_clients():
    """Without a histogram they are one cluster; without a loss they count with the largest known one."""
    histograms = [[9, 0, 0, 0]] * 2 + [[0, 9, 0, 0]] * 2 + [[0, 0, 0, 0]] * 2
    strategy = fedlecc(num_clusters=3, clusters_per_round=3)
    state = started(strategy, histograms, 3)
    clusters = np.asarray(state.clusters).reshape(3, 2)
    assert (clusters[:, 0] == clusters[:, 1]).all() and len(set(clusters[:, 0].tolist())) == 3
    now = known(histograms, [1, 2, 1, 4, 0, 0], 3, [0, 0, 0, 0, NEVER, 0])
    ids = jax.jit(strategy.select)(jax.random.key(0), state, now).ids.tolist()
    assert ids == [3, 4, 1]  # means 2.5, (4 + 0) / 2 and 1.5


def test_it_buys_histograms_once_and_losses_in_every_round():
    histogram, loss = fedlecc().requests
    assert (histogram.kind, histogram.who, histogram.when.before_first_round) == ("label_histogram", ALL, True)
    assert not histogram.when.rules
    assert (loss.kind, loss.who) == ("loss", ALL) and loss.when.in_every_round


@pytest.mark.parametrize(
    "parameters,message",
    [
        ({"num_clusters": 7}, "num_clusters=7 exceeds the 6 clients; give at most 6"),
        ({"num_clusters": 2, "clusters_per_round": 3}, "clusters_per_round=3 exceeds the 2 clusters; give at most 2"),
    ],
)
def test_bad_parameters_are_one_line(parameters, message):
    with pytest.raises(UserError, match=f"^fedlecc: {message}") as error:
        started(fedlecc(**parameters), np.full((6, CLASSES), 2), 2)
    assert "\n" not in str(error.value)


def test_more_clusters_per_round_than_labels_are_all_clusters():
    """The number of labels is unknown when parameters are checked."""
    histograms, losses = 10 * np.tile(np.eye(CLASSES), (3, 1)), np.arange(12.0)
    cohorts = []
    for per_round in (CLASSES, 9):
        strategy = fedlecc(clusters_per_round=per_round)
        now = known(histograms, losses, 4)
        state = started(strategy, histograms, 4)
        cohorts.append(jax.jit(strategy.select)(jax.random.key(1), state, now).ids.tolist())
    assert cohorts[0] == cohorts[1] and len({i % CLASSES for i in cohorts[0]}) == CLASSES


def test_negative_noisy_counts_leave_the_clusters():
    histograms = np.tile(100 * np.eye(CLASSES), (3, 1))
    now = known(histograms + np.random.default_rng(0).laplace(0, 2, histograms.shape), np.zeros(12), 4)
    env = dataclasses.replace(now.env, noise={"label_histogram": jnp.ones(12)})
    clusters = jax.jit(fedlecc().init)(jax.random.key(0), now._replace(env=env)).clusters
    np.testing.assert_array_equal(clusters[:CLASSES], clusters[CLASSES : 2 * CLASSES])
    assert len(set(clusters.tolist())) == CLASSES
