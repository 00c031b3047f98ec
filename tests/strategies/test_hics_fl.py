"""HiCS-FL against a NumPy twin of its Algorithm 1, and the law of its cohorts by enumeration."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from scipy.cluster import hierarchy
from scipy.spatial.distance import squareform

from fedjax_sel.errors import UserError
from fedjax_sel.strategies.contract import OutputLayer, Selection
from fedjax_sel.strategies.hics_fl import clusters_of, distances_of, entropies_of, hics_fl, logits_of
from tests.strategies import hooks
from tests.strategies.hooks import env_of, now_of, outcome_of

CLASSES, DRAWS = 5, 20_000
PARAMS = {"Dense_0": {"bias": jax.ShapeDtypeStruct((CLASSES,), jnp.float32)}}
LAYER = OutputLayer(("Dense_0", "kernel"), ("Dense_0", "bias"))


def known(sizes, k, rounds, round=0, available=None, layer: OutputLayer | None = LAYER):
    env = env_of(sizes, k, rounds, CLASSES, 10, params=PARAMS, output_layer=layer)
    return now_of(env, None, round, available)


def started(strategy, now):
    return hooks.started(strategy, now, 9)


def outcome(updates, reported=None, finite=None):
    """Without `reported` and `finite`, all reports arrive and are finite."""
    everyone = np.ones(len(updates), bool)
    reported, finite = (everyone if given is None else given for given in (reported, finite))
    return outcome_of(reported, {"Dense_0": {"bias": jnp.asarray(updates, jnp.float32)}}, finite)


def biases(rng, n):
    """Updates of clients with one to all labels."""
    labels = np.stack(
        [rng.dirichlet(np.full(CLASSES, concentration)) for concentration in rng.choice([0.05, 1, 20], n)]
    )
    return 0.01 * (labels - 1 / CLASSES) + 1e-4 * rng.normal(size=(n, CLASSES))


class Twin:
    """Algorithm 1 in plain loops: entropies (Eq. 7), distances (Eq. 9), Ward's clusters, probabilities (Eq. 10)."""

    def __init__(self, sizes, rounds, temperature, weight, gamma, num_clusters, square, code=False):
        self.p = np.asarray(sizes) / sum(sizes)
        self.rounds, self.temperature, self.weight, self.gamma = rounds, temperature, weight, gamma
        self.num_clusters, self.square, self.code = num_clusters, square, code
        self.updates = {}

    def entropy(self, client):
        q = np.exp(self.updates[client] / self.temperature)
        return stats.entropy(q / q.sum())

    def distance(self, u, k):
        a, b = self.updates[u], self.updates[k]
        cosine = a @ b / (np.linalg.norm(a) * np.linalg.norm(b))
        return math.acos(min(cosine, 1.0)) + self.weight * abs(self.entropy(u) - self.entropy(k))

    def clusters(self):
        n = len(self.p)
        matrix = np.array([[self.distance(u, k) if u != k else 0.0 for k in range(n)] for u in range(n)])
        tree = hierarchy.linkage(matrix if self.square else squareform(matrix, checks=False), "ward")
        return hierarchy.fcluster(tree, self.num_clusters, "maxclust")

    def probabilities(self, t):
        """The probability of each client in one draw of round t = 1, 2, ..."""
        labels, gamma = self.clusters(), self.gamma * (1 - (t - self.code) / self.rounds)
        groups = [np.flatnonzero(labels == label) for label in sorted(set(labels))]
        pi = np.exp([gamma * np.mean([self.entropy(k) for k in group]) for group in groups])
        found = np.zeros(len(self.p))
        for share, group in zip(pi / pi.sum(), groups):
            found[group] = share * self.p[group] / self.p[group].sum()
        return found


@pytest.mark.filterwarnings("ignore:The symmetric non-negative hollow observation matrix")
@pytest.mark.fast_cases(1)
@pytest.mark.parametrize(
    "num_clusters,linkage,reading",
    [(None, "condensed", "paper"), (6, "condensed", "code"), (5, "square", "paper")],
)
def test_probabilities_follow_the_twin(num_clusters, linkage, reading):
    n, k, rounds, temperature, weight, gamma = 12, 4, 12, 0.004, 3.0, 4.0
    rng = np.random.default_rng(1)
    sizes = rng.integers(10, 50, n)
    strategy = hics_fl(
        temperature=temperature, entropy_weight=weight, gamma=gamma, num_clusters=num_clusters, linkage=linkage,
        reading=reading,
    )  # fmt: skip
    code = reading == "code"
    state, m = started(strategy, known(sizes, k, rounds)), num_clusters or k
    twin = Twin(sizes, rounds, temperature, weight, gamma, m, linkage == "square", code)
    select, update = jax.jit(strategy.select), jax.jit(strategy.update)

    @jax.jit
    def probabilities(key, state, scale):
        clusters = clusters_of(key, distances_of(state.directions, state.entropies, weight), m, linkage)
        return jax.nn.softmax(logits_of(clusters, state.entropies, jnp.float32(sizes), scale, jnp.ones(n, bool)))

    seen = set()
    for round in range(rounds):
        now = known(sizes, k, rounds, round)
        selection = select(jax.random.key(round), state, now)
        ids = selection.ids.tolist()
        assert selection.mask.all() and len(set(ids)) == k
        if round < n // k:
            assert not seen & set(ids)
            seen |= set(ids)
        else:
            expected = twin.probabilities(round + 1)
            scale = gamma * (1 - (round + 1 - code) / rounds)
            np.testing.assert_allclose(probabilities(jax.random.key(round), state, scale), expected, rtol=2e-4)
        updates = biases(rng, k)
        fresh = dict(zip(ids, updates.astype(np.float32).astype(float)))
        twin.updates = fresh | twin.updates if code else twin.updates | fresh
        state = update(state, now, selection, outcome(updates))
    assert seen == set(range(n))


def law_of(q, k):
    """The probability of each set of k clients: draws from q, with repetitions ignored, until k are distinct."""
    sets = {frozenset(): 1.0}
    for _ in range(400):
        after: dict[frozenset[int], float] = {}
        for chosen, share in sets.items():
            if len(chosen) == k:
                after[chosen] = after.get(chosen, 0.0) + share
                continue
            for client in np.flatnonzero(q):
                key = chosen | {int(client)}
                after[key] = after.get(key, 0.0) + share * q[client]
        sets = after
    return {tuple(sorted(chosen)): share for chosen, share in sets.items() if len(chosen) == k}


@pytest.mark.fast_cases(1)
@pytest.mark.parametrize("k,absent", [(2, ()), (3, (0,)), (2, (1, 4))], ids=["all", "one away", "a cluster away"])
def test_cohorts_have_the_enumerated_law(k, absent):
    """Clusters {0, 1}, {2, 3} and {4, 5} by their only labels, with entropies that grow."""
    n, rounds, round, gamma = 6, 10, 3, 4.0
    sizes = np.array([10, 30, 20, 20, 40, 5])
    entropies = np.array([0.1, 0.1, 0.5, 0.5, 1.0, 1.0])
    strategy = hics_fl(num_clusters=3, gamma=gamma)
    state = started(strategy, known(sizes, k, rounds))._replace(
        visited=jnp.ones(n, bool),
        directions=jnp.eye(CLASSES, dtype=jnp.float32)[jnp.array([0, 0, 1, 1, 2, 2])],
        entropies=jnp.asarray(entropies, jnp.float32),
    )
    here = ~np.isin(np.arange(n), absent)
    q = np.zeros(n)
    for group in ([0, 1], [2, 3], [4, 5]):
        left = [client for client in group if here[client]]
        if left:
            q[left] = np.exp(gamma * (1 - (round + 1) / rounds) * entropies[left[0]]) * sizes[left] / sizes[left].sum()
    law = law_of(q / q.sum(), k)
    now = known(sizes, k, rounds, round, jnp.asarray(here) if absent else None)
    select = jax.jit(jax.vmap(lambda key: strategy.select(key, state, now)))
    found = select(jax.random.split(jax.random.key(0), DRAWS))
    assert np.asarray(found.mask).all()
    cohorts, counts = np.unique(np.sort(found.ids, axis=1), axis=0, return_counts=True)
    seen = {tuple(cohort): int(count) for cohort, count in zip(cohorts.tolist(), counts)}
    assert set(seen) <= set(law)
    expected = DRAWS * np.array(list(law.values()), float) / sum(map(float, law.values()))
    assert stats.chisquare([seen.get(cohort, 0) for cohort in law], expected).pvalue > 1e-4


def test_the_last_cohort_of_the_first_phase_is_filled_up():
    strategy = hics_fl()
    now = known(np.full(5, 10), 2, 10)
    state = started(strategy, now)
    select = jax.jit(jax.vmap(lambda key, state: strategy.select(key, state, now).ids, (0, None)))
    keys = jax.random.split(jax.random.key(0), 4000)
    pairs = np.unique(np.sort(select(keys, state), axis=1), axis=0, return_counts=True)[1]
    assert stats.chisquare(pairs).pvalue > 1e-4 and len(pairs) == 10  # uniform
    state = state._replace(visited=jnp.array([True, True, False, True, True]))
    ids = np.asarray(select(keys, state))
    assert (ids[:, 0] == 2).all() and set(ids[:, 1].tolist()) == {0, 1, 3, 4}


def test_a_client_that_fills_an_empty_place_is_not_visited():
    strategy = hics_fl()
    now = known(np.full(5, 10), 3, 10, 0, jnp.arange(5) < 1)
    state = started(strategy, now._replace(available=None))
    selection = strategy.select(jax.random.key(0), state, now)
    assert selection.mask.tolist() == [True, False, False]
    for reported in (selection.mask, np.zeros(3, bool)):  # a lost report is a visit
        after = strategy.update(state, now, selection, outcome(np.ones((3, CLASSES)), reported))
        assert after.visited.tolist() == [True] + [False] * 4


def test_unusable_reports_leave_the_last_update():
    strategy, now = hics_fl(temperature=0.1), known(np.full(5, 10), 4, 10)
    state = started(strategy, now)
    assert np.allclose(state.entropies, math.log(CLASSES))
    first = np.zeros((4, CLASSES))
    first[:, 0] = 0.5
    selection = Selection(jnp.arange(4), None, jnp.ones(4, bool))
    state = strategy.update(state, now, selection, outcome(first))
    again = np.full((4, CLASSES), 2.0)
    again[1], again[2] = np.nan, 1e20
    reports = outcome(again, [True, True, True, False], [True, False, True, True])
    after = strategy.update(state, now._replace(round=jnp.int32(1)), selection, reports)
    np.testing.assert_allclose(after.directions[0], np.full(CLASSES, CLASSES**-0.5), rtol=1e-6)
    np.testing.assert_array_equal(after.directions[1:], state.directions[1:])
    np.testing.assert_array_equal(after.entropies[1:], state.entropies[1:])
    assert after.visited.tolist() == [True] * 4 + [False]


def test_angles_of_clients_without_an_update():
    directions = jnp.float32([[0, 0], [0, 0], [1, 0], [0, -1], [1, 0]])
    found = distances_of(directions, jnp.float32([1, 1, 1, 1, 3]), 10.0)
    right = math.pi / 2
    expected = [
        [0, 0, right, right, right + 20], [0, 0, right, right, right + 20], [right, right, 0, right, 20],
        [right, right, right, 0, right + 20], [right + 20, right + 20, 20, right + 20, 0],
    ]  # fmt: skip
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    code = distances_of(directions, jnp.float32([1, 1, 1, 1, 3]), 10.0, 0.0)
    np.testing.assert_allclose(code[0], [0, 0, 0, 0, 20], rtol=1e-6)


def test_the_codes_reading():
    """A client's first update stays; client 2 has none yet."""
    strategy, now = hics_fl(reading="code"), known(np.full(4, 10), 2, 10)
    state = started(strategy, now)._replace(
        visited=jnp.ones(4, bool),
        directions=jnp.float32([[1, 0, 0, 0, 0], [0, 1, 0, 0, 0], [0, 0, 0, 0, 0], [1, 0, 0, 0, 0]]),
    )
    selection = Selection(jnp.int32([0, 2]), None, jnp.ones(2, bool))
    after = strategy.update(state, now, selection, outcome(np.eye(CLASSES)[[3, 4]]))
    np.testing.assert_array_equal(after.directions[:3], np.eye(CLASSES)[[0, 1, 4]])
    np.testing.assert_array_equal(after.entropies[0], state.entropies[0])


def test_entropies_of_one_and_of_equal_labels():
    found = entropies_of(jnp.float32([[1, 0, 0], [0, 0, 0], [1e17, -1e17, 0]]), 1e-3)
    np.testing.assert_allclose(found, [0, math.log(3), 0], atol=1e-6)


def test_a_run_without_clusters_or_bias_is_rejected():
    with pytest.raises(UserError, match="num_clusters=6 exceeds the 5 clients; give at most 5"):
        started(hics_fl(num_clusters=6), known(np.full(5, 10), 2, 10))
    with pytest.raises(UserError, match="the model's output layer is unknown"):
        started(hics_fl(), known(np.full(5, 10), 2, 10, layer=None))
    with pytest.raises(UserError, match="the model's output layer has no bias"):
        started(hics_fl(), known(np.full(5, 10), 2, 10, layer=LAYER._replace(bias=None)))
