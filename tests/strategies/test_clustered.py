"""Clustered sampling against a slow NumPy twin, its law, and what it does with clients that nobody has seen."""

import functools
import itertools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from scipy.cluster import hierarchy
from scipy.spatial.distance import squareform

from fedjax_sel.core import plugins
from fedjax_sel.errors import UserError
from fedjax_sel.strategies.clustered import clustered, similarity_urns
from fedjax_sel.strategies.contract import Env, Selection
from tests.strategies import hooks
from tests.strategies.hooks import env_of, now_of, outcome_of

P = 7
DISTANCES, LINKAGES = ("arccos", "l2", "l1"), ("condensed", "square")


def twin_distance(a, b, distance, unseen="group"):
    if distance == "l1":
        return np.abs(a - b).sum()
    if distance == "l2":
        return ((a - b) ** 2).sum()
    norms = np.linalg.norm(a), np.linalg.norm(b)
    if norms[0] == 0 or norms[1] == 0:
        return np.pi / 2 if unseen == "group" and norms[0] != norms[1] else 0.0
    return np.arccos(np.clip(a @ b / norms[0] / norms[1], -1, 1))


def twin_table(gradients, distance, unseen="group"):
    n = len(gradients)
    table = np.zeros((n, n))
    for i, j in itertools.permutations(range(n), 2):
        table[i, j] = twin_distance(gradients[i], gradients[j], distance, unseen)
    return table


def twin_clusters(table, sizes, k, linkage):
    """SciPy's tree, and the maximal subtrees with K sum n_i <= n."""
    n = len(sizes)
    tree = hierarchy.linkage(squareform(table, checks=False) if linkage == "condensed" else table, "ward")
    nodes = [[i] for i in range(n)]
    for a, b, *_ in tree:
        nodes.append(nodes[int(a)] + nodes[int(b)])
    found, to_visit = [], [2 * n - 2]
    while to_visit:
        node = to_visit.pop()
        if node < n or k * sum(sizes[i] for i in nodes[node]) <= sum(sizes):
            found.append(sorted(nodes[node]))
        else:
            to_visit += [int(tree[node - n, 0]), int(tree[node - n, 1])]
    return found


def twin_urns(table, sizes, k, linkage, order):
    """Plain whole numbers; `order` is the shuffle, in which ties are broken and clients of a cluster follow."""
    total, n, place = sum(sizes), len(sizes), {client: i for i, client in enumerate(order)}
    rest, filled = {i: k * sizes[i] for i in range(n)}, []
    for client in order:
        while rest[client] >= total:
            filled.append({client: total})
            rest[client] -= total
    clusters = twin_clusters(table, sizes, k, linkage)
    ranked = sorted(clusters, key=lambda c: (sum(rest[i] for i in c), min(place[i] for i in c)))
    num_free = k - len(filled)
    others, seeds = ranked[: len(ranked) - num_free], ranked[len(ranked) - num_free :]
    free = [{i: rest[i] for i in cluster} for cluster in seeds]
    urn = 0
    for client in [i for cluster in others for i in sorted(cluster, key=lambda i: place[i])]:
        left = rest[client]
        while left > 0:
            poured = min(total - sum(free[urn].values()), left)
            free[urn][client] = free[urn].get(client, 0) + poured
            left -= poured
            urn += sum(free[urn].values()) == total
    return [[urn.get(i, 0) for i in range(n)] for urn in filled + free]


made = functools.cache(clustered)
urns_of = jax.jit(similarity_urns, static_argnums=(3, 4))


class Game(NamedTuple):
    strategy: Any
    env: Env


def started(sizes, k, num_params=P, **parameters):
    game = Game(made(**parameters), env_of(sizes, k, num_params=num_params))
    return game, hooks.started(game.strategy, now_of(game.env))


def outcome(updates, reported, finite=None):
    updates = jnp.asarray(updates, jnp.float32)
    finite = jnp.isfinite(updates).all(axis=1) if finite is None else finite
    tree = {"bias": updates[:, :2], "kernel": updates[:, 2:].reshape(len(updates), 1, -1)}
    return outcome_of(reported, tree, finite)


def learn(game, state, ids, updates, mask=None, finite=None):
    """All of `ids` are selected; `mask` marks those whose report arrives."""
    ids = jnp.asarray(ids, jnp.int32)
    everyone = jnp.ones(ids.shape, bool)
    reports = outcome(updates, everyone if mask is None else mask, finite)
    selection = Selection(ids, jnp.ones(ids.shape) / len(ids), everyone)
    return compiled(game.strategy.update)(state, now_of(game.env), selection, reports)


compiled = functools.cache(jax.jit)


@functools.cache
def many(select):
    """Over keys; compiled once for all states of a shape."""
    return jax.jit(jax.vmap(select, in_axes=(0, None, None)))


def everyone_seen(sizes, k, gradients, **parameters):
    """K clients at a time until all have trained."""
    n = len(sizes)
    game, state = started(sizes, k, gradients.shape[1], **parameters)
    for first in range(0, n, k):
        ids = np.arange(first, first + k)
        state = learn(game, state, ids % n, gradients[ids % n], mask=ids < n)
    return game, state


def draw(game, state, count, available=None, seed=1):
    keys = jax.random.split(jax.random.key(seed), count)
    return jax.device_get(many(game.strategy.select)(keys, state, now_of(game.env, None, 4, available)))


def counted(selection, num_clients):
    """How often each client was drawn, [draws, N], from the weights r / K."""
    table = np.zeros((len(selection.ids), num_clients))
    np.add.at(table, (np.arange(len(selection.ids))[:, None], selection.ids), selection.weights)
    return table * selection.ids.shape[1]


def instance(seed, n, k):
    rng = np.random.default_rng([n, k, seed])
    heavy = rng.integers(100, 400) if seed % 3 == 0 else 20
    sizes = rng.permutation(np.r_[rng.integers(5, 40, n - 1), heavy])
    return sizes, (rng.normal(size=(n, P)) * rng.lognormal(size=(n, 1))).astype(np.float32)


@pytest.mark.fast_cases(2)
@pytest.mark.parametrize(
    "n,k,distance,linkage",
    [(7, 3, *kind) for kind in itertools.product(DISTANCES, LINKAGES)]
    + [(12, 4, "arccos", "condensed"), (12, 4, "arccos", "square")],
)
@pytest.mark.filterwarnings("ignore:.*uncondensed distance matrix")  # what linkage="square" replicates
def test_urns_equal_the_twins_after_everybody_was_seen(n, k, distance, linkage):
    instances = [instance(seed, n, k) for seed in range(40)]  # of 8 kinds
    sizes, gradients = (np.stack(part) for part in zip(*instances))
    strategy = made(distance=distance, linkage=linkage)

    def play(sizes, gradients, key):
        game = Game(strategy, env_of(sizes, k, num_params=P))
        state = strategy.init(key, now_of(game.env))
        for first in range(0, n, k):
            ids = np.arange(first, first + k)
            state = learn(game, state, ids % n, gradients[ids % n], mask=ids < n)
        return state.distances, similarity_urns(key, state.distances, game.env.sizes, k, linkage)

    keys = jax.random.split(jax.random.key(n), len(instances))
    tables, masses = jax.device_get(jax.jit(jax.vmap(play))(sizes, gradients, keys))
    orders = np.asarray(jax.vmap(lambda key: jax.random.permutation(key, n))(keys))
    for i in range(len(instances)):
        expected = twin_table(np.float64(gradients[i]), distance)
        np.testing.assert_allclose(tables[i], expected, rtol=1e-5, atol=1e-6)
        assert (tables[i] == tables[i].T).all() and (np.diag(tables[i]) == 0).all()
        twin = twin_urns(expected, sizes[i].tolist(), k, linkage, orders[i].tolist())
        assert masses[i].tolist() == twin
        assert (masses[i].sum(axis=1) == sizes[i].sum()).all() and (masses[i].sum(axis=0) == k * sizes[i]).all()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*uncondensed distance matrix")
def test_the_two_linkages_differ():
    for seed in range(8):
        sizes, gradients = instance(seed, 12, 4)
        table = twin_table(np.float64(gradients), "arccos")
        twins = [set(map(tuple, twin_clusters(table, sizes, 4, linkage))) for linkage in LINKAGES]
        given = jax.random.key(0), jnp.float32(table), jnp.int32(sizes), 4
        one, other = (np.asarray(similarity_urns(*given, linkage)) for linkage in LINKAGES)
        if twins[0] != twins[1] and (one != other).any():
            return
    pytest.fail("the urns are those of the same clusters, whatever the linkage")


@pytest.mark.parametrize("distance,unseen", [("arccos", "group"), ("arccos", "zero"), ("l2", "group"), ("l1", "group")])
def test_distances_follow_the_last_updates_over_many_rounds(distance, unseen):
    n, k, rounds = 9, 3, 25
    rng = np.random.default_rng(0)
    game, state = started(np.full(n, 4), k, distance=distance, unseen=unseen)
    last = np.zeros((n, P))
    for _ in range(rounds):
        ids = rng.choice(8, k, replace=False)  # client 8 never trains
        updates = rng.normal(size=(k, P)).astype(np.float32)
        updates[rng.random(k) < 0.1] = 0.0
        mask, finite = rng.random(k) < 0.8, rng.random(k) < 0.8
        updates[~finite, 3] = rng.choice([np.nan, np.inf])
        state = learn(game, state, ids, updates, mask, finite)
        kept = mask & finite
        last[ids[kept]] = updates[kept]
        np.testing.assert_allclose(state.distances, twin_table(last, distance, unseen), rtol=1e-5, atol=2e-6)
    assert np.isfinite(state.gradients).all()


def test_unseen_clients_form_a_group_of_their_own_or_none():
    gradients = np.repeat(np.eye(P)[:2], 2, axis=0)
    for unseen, to_seen in (("group", np.pi / 2), ("zero", 0.0)):
        game, state = started(np.full(6, 10), 4, unseen=unseen)
        state = learn(game, state, [0, 1, 2, 3], gradients)
        np.testing.assert_allclose(state.distances[4:, :4], to_seen)
        assert (state.distances[4:, 4:] == 0).all()
        # Three pairs and K = 3: every urn is a pair, the unseen one included, unless the unseen are near everybody.
        keys = jax.random.split(jax.random.key(0), 20)
        masses = [np.asarray(urns_of(key, state.distances, game.env.sizes, 3, "condensed")) for key in keys]
        pairs = {tuple(sorted(tuple(np.flatnonzero(urn).tolist()) for urn in urns)) for urns in masses}
        assert (pairs == {((0, 1), (2, 3), (4, 5))}) == (unseen == "group")


@pytest.mark.parametrize("distance", DISTANCES)
def test_equal_updates_are_at_distance_zero_and_opposite_ones_at_pi(distance):
    rng = np.random.default_rng(0)
    one = rng.normal(size=1300).astype(np.float32)  # more than two blocks
    other = rng.normal(size=1300).astype(np.float32)
    gradients = np.stack([one, other, one, -one, one, other])
    _, state = everyone_seen(np.full(6, 5), 3, gradients, distance=distance)
    table = np.asarray(state.distances)
    assert (table[0, [0, 2, 4]] == 0).all() and table[1, 5] == 0 and table[0, 1] == table[4, 5] > 0
    np.testing.assert_allclose(table, twin_table(np.float64(gradients), distance), rtol=1e-5, atol=1e-3)
    if distance == "arccos":
        np.testing.assert_allclose(table[0, 3], np.pi, atol=1e-3)


@pytest.mark.parametrize("angle", [1e-4, 1e-2, 1.0, 3.0])
@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e15])
def test_angles_are_precise_and_do_not_see_the_length(angle, scale):
    rng = np.random.default_rng(1)
    basis = np.linalg.qr(rng.normal(size=(600, 2)))[0].T
    pair = np.stack([basis[0], np.cos(angle) * basis[0] + np.sin(angle) * basis[1]]) * scale
    _, state = everyone_seen(np.full(2, 5), 2, pair.astype(np.float32))
    np.testing.assert_allclose(state.distances[0, 1], angle, rtol=1e-3)


def test_what_is_not_finite_masked_or_too_long_is_not_kept():
    sizes = np.full(6, 10)
    good = np.random.default_rng(0).normal(size=(6, P)).astype(np.float32)
    for distance in DISTANCES:
        game, state = everyone_seen(sizes, 3, good, distance=distance)
        bad = np.full((3, P), 1.0, np.float32)
        bad[0, 0], bad[1, 0] = np.nan, 1e30
        after = learn(game, state, [0, 1, 2], bad, mask=[True, True, False], finite=[False, True, True])
        for old, new in zip(jax.tree.leaves(state), jax.tree.leaves(after)):
            np.testing.assert_array_equal(old, new)
        after = learn(game, state, [0, 1, 2], bad, mask=[True, True, True])
        assert np.isfinite(after.distances).all() and not (after.distances[2] == state.distances[2]).all()
        np.testing.assert_array_equal(after.gradients[:2], state.gradients[:2])


def test_alike_clients_share_an_urn_and_seldom_train_together():
    """Two tight groups of unequal clients and K = 2: one of each in every cohort, with shares inside of the group."""
    sizes = np.array([10, 30, 20, 25, 15, 20])
    group = np.array([0, 0, 0, 1, 1, 1])
    rng = np.random.default_rng(0)
    gradients = np.eye(P)[group] + 0.01 * rng.normal(size=(6, P))
    game, state = everyone_seen(sizes, 2, gradients)
    selection = draw(game, state, 20_000)
    assert selection.mask.all() and (np.sort(group[selection.ids], axis=1) == [0, 1]).all()
    pairs = np.sort(selection.ids, axis=1)
    counts = np.array([[(pairs == [a, b]).all(axis=1).sum() for b in (3, 4, 5)] for a in (0, 1, 2)])
    expected = np.outer(sizes[:3], sizes[3:]) / 60**2 * len(pairs)
    assert stats.chisquare(counts.ravel(), expected.ravel()).pvalue > 1e-4


def enumerate_cohorts(masses):
    """Law of the drawn multiset, from independent draws out of each urn."""
    law = {}
    for ids in itertools.product(range(masses.shape[1]), repeat=len(masses)):
        p = np.prod([masses[k, i] / masses[k].sum() for k, i in enumerate(ids)])
        law[tuple(sorted(ids))] = law.get(tuple(sorted(ids)), 0.0) + p
    return law


def assert_law(selection, law):
    n = max(max(cohort) for cohort in law) + 1
    found = {cohort: 0 for cohort in law}
    for row in counted(selection, n):
        found[tuple(np.repeat(np.arange(n), np.round(row).astype(int)).tolist())] += 1
    likely = [cohort for cohort in law if law[cohort] > 1e-3]
    assert sum(found[cohort] for cohort in law if law[cohort] == 0) == 0
    observed = np.array([found[cohort] for cohort in likely])
    expected = np.array([law[cohort] for cohort in likely])
    assert stats.chisquare(observed, expected / expected.sum() * observed.sum()).pvalue > 1e-4


def test_law_of_the_cohort_by_size():
    sizes = np.array([7, 19, 11, 3, 60])  # the last one has a share above 1/K
    game, state = started(sizes, 3, variant="size")
    # Descending 60 19 11 7 3 times K = 3, into urns of 100.
    expected = np.array([[0, 0, 0, 0, 100], [0, 20, 0, 0, 80], [21, 37, 33, 9, 0]])
    np.testing.assert_array_equal(state.urns, expected)
    assert_law(draw(game, state, 20_000), enumerate_cohorts(expected))


def test_law_of_the_cohort_by_similarity():
    """One cluster an urn at most: no order within clusters matters, and the urns are the same for every key."""
    sizes = np.array([12, 8, 10, 9, 21])
    gradients = np.eye(P)[[0, 0, 1, 1, 2]] + 0.01 * np.random.default_rng(0).normal(size=(5, P))
    game, state = everyone_seen(sizes, 3, gradients)
    # Urns of 60: clusters of mass 60, 57 and 63; the last client, above 1/K, has an urn and 3 more.
    urns = np.array([[0, 0, 0, 0, 60], [36, 24, 0, 0, 0], [0, 0, 30, 27, 3]])
    assert_law(draw(game, state, 20_000), enumerate_cohorts(urns))


@pytest.mark.fast_cases(1)
@pytest.mark.parametrize("variant", ["similarity", "size"])
@pytest.mark.parametrize("phase", ["nothing known", "half known"])
def test_unbiased_in_every_phase(variant, phase):
    sizes = np.array([10, 40, 30, 15, 5, 200, 25, 25])  # p_5 > 1/K
    game, state = started(sizes, 3, variant=variant)
    if phase == "half known" and variant == "similarity":
        state = learn(game, state, [1, 3, 6], np.random.default_rng(0).normal(size=(3, P)))
    draws = counted(draw(game, state, 20_000), 8)
    error = draws.std(axis=0) / np.sqrt(len(draws)) + 1e-9
    assert (np.abs(draws.mean(axis=0) - 3 * sizes / sizes.sum()) < 4 * error).all()
    assert (draws[:, 5] >= 1).all()  # 3 p_5 = 1.71: one whole urn at least
    assert (draws.sum(axis=1).round(4) == 3).all()


@pytest.mark.parametrize("variant", ["similarity", "size"])
def test_ties_are_broken_at_random(variant):
    """Equal clients of whom nothing is known: every pair trains together equally often over keys."""
    strategy = made(variant=variant)

    def play(key):
        key_init, key_select = jax.random.split(key)
        now = now_of(env_of([10] * 6, 2, num_params=P))
        return strategy.select(key_select, strategy.init(key_init, now), now)

    ids = np.asarray(jax.jit(jax.vmap(play))(jax.random.split(jax.random.key(0), 20_000)).ids)
    table = np.zeros((6, 6))
    np.add.at(table, (ids.min(axis=1), ids.max(axis=1)), 1)
    assert (np.diag(table) == 0).all()  # half of the clients fill an urn: nobody is in both
    assert stats.chisquare(table[np.triu_indices(6, 1)]).pvalue > 1e-4


@pytest.mark.slow
def test_relabelling_clients_permutes_the_law():
    sizes, gradients = instance(4, 7, 3)
    order = np.random.default_rng(0).permutation(7)
    here = counted(draw(*everyone_seen(sizes, 3, gradients), 10_000), 7)
    there = np.empty_like(here)
    there[:, order] = counted(draw(*everyone_seen(sizes[order], 3, gradients[order]), 10_000, seed=2), 7)
    for a, b in itertools.combinations_with_replacement(range(7), 2):  # moments up to the second
        first, second = here[:, a] * here[:, b], there[:, a] * there[:, b]
        error = np.sqrt((first.var() + second.var()) / 10_000) + 1e-9
        assert abs(first.mean() - second.mean()) < 4.5 * error


@pytest.mark.fast_cases(1)
@pytest.mark.parametrize("variant", ["similarity", "size"])
def test_the_mask_is_the_first_draw_and_weights_count(variant):
    game, state = started([50, 5, 5, 40], 4, variant=variant)
    assert game.strategy.with_replacement
    selection = draw(game, state, 500)
    repeated = 0
    for ids, weights, mask in zip(*selection):
        assert sorted(ids[mask]) == sorted(set(ids.tolist())) and (weights[~mask] == 0).all()
        assert all(mask[np.flatnonzero(ids == i)[0]] for i in ids)
        np.testing.assert_allclose(weights[mask], [(ids == i).sum() / 4 for i in ids[mask]])
        repeated += not mask.all()
    assert repeated == 500  # 50 % of the data: two urns
    assert selection.ids.dtype == np.int32 and selection.weights.dtype == np.float32


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["similarity", "size"])
def test_availability(variant):
    sizes = np.array([10, 20, 30, 40, 15, 5])
    game, state = started(sizes, 3, variant=variant)
    available = np.array([True, False, True, False, False, True])
    selection = draw(game, state, 500, available=jnp.asarray(available))
    assert available[selection.ids].all()
    np.testing.assert_allclose(selection.weights.sum(axis=1), 1.0, rtol=1e-6)
    everyone, all_there = draw(game, state, 50), draw(game, state, 50, available=jnp.ones(6, bool))
    np.testing.assert_array_equal(everyone.ids, all_there.ids)
    nobody = draw(game, state, 50, available=jnp.zeros(6, bool))
    assert not nobody.mask.any() and (nobody.weights == 0).all() and (nobody.ids < 6).all() and (nobody.ids >= 0).all()
    alone = draw(game, state, 50, available=jnp.arange(6) == 4)
    assert (alone.ids == 4).all() and (alone.mask.sum(axis=1) == 1).all() and (alone.weights[:, 0] == 1).all()


def test_urns_keep_proportions_among_the_available_and_an_empty_one_stands_for_all_of_them():
    sizes = np.array([7, 19, 11, 3, 60])
    game, state = started(sizes, 3, variant="size")  # urns 4 | 4 1 | 1 2 0 3
    available = np.array([True, True, False, True, False])
    law = np.array([[7, 19, 0, 3, 0], [0, 20, 0, 0, 0], [21, 37, 0, 9, 0]])
    assert_law(draw(game, state, 20_000, available=jnp.asarray(available)), enumerate_cohorts(law))


@pytest.mark.fast_cases(1)
@pytest.mark.parametrize("variant", ["similarity", "size"])
@pytest.mark.parametrize("n,k", [(1, 1), (5, 1), (5, 5)])
def test_extreme_cohort_sizes(variant, n, k):
    game, state = started(np.full(n, 6), k, variant=variant)
    selection = draw(game, state, 2000)
    assert selection.ids.shape == (2000, k)
    if k == n:  # equal shares of 1/K: everybody, once
        assert selection.mask.all() and (np.sort(selection.ids, axis=1) == np.arange(n)).all()
    else:
        assert stats.chisquare(np.bincount(selection.ids[:, 0], minlength=n)).pvalue > 1e-4


@pytest.mark.slow
def test_large_federations_do_not_overflow():
    sizes = np.random.default_rng(0).integers(10**7, 10**8, 20)
    game, state = started(sizes, 10, variant="size")
    draws = counted(draw(game, state, 2000), 20)
    error = draws.std(axis=0) / np.sqrt(len(draws)) + 1e-9
    assert (np.abs(draws.mean(axis=0) - 10 * sizes / sizes.sum()) < 4 * error).all()
    for strategy in (game.strategy, made()):
        np.testing.assert_allclose(strategy.inclusion(None, now_of(game.env)), 10 * sizes / sizes.sum(), rtol=1e-5)


@pytest.mark.parametrize("variant", ["similarity", "size"])
def test_it_buys_nothing(variant):
    assert clustered(variant=variant).requests == ()


@pytest.mark.parametrize(
    "parameters", [{"variant": "sizes"}, {"distance": "cosine"}, {"unseen": "none"}, {"linkage": "ward"}, {"k": 3}]
)
def test_wrong_hyperparameters_are_named(parameters):
    (name,) = parameters
    with pytest.raises(UserError, match=f"clustered.*{name}|{name}.*clustered"):
        plugins.convert_parameters("--algo-args", "clustered", clustered, parameters)
