"""DivFL against a slow NumPy twin over several rounds, its weights and its mixing."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from fedjax_sel.strategies.contract import Selection
from fedjax_sel.strategies.divfl import State, divfl, known_distances
from fedjax_sel.strategies.facts import ALL, NEVER, SELECTED
from tests.strategies import hooks
from tests.strategies.hooks import env_of, info_of, now_of, outcome_of


class Twin:
    """Float64 loops over a table of last gradients."""

    def __init__(self, gradients):
        self.table = [np.float64(g) for g in gradients]

    def distances(self):
        return np.array([[np.sqrt(((a - b) ** 2).sum()) for b in self.table] for a in self.table])

    def accepts(self, ids, available=None):
        """Whether every pick, in order, leaves a smallest cost; of equal ones any will do."""
        d, n = self.distances(), len(self.table)
        nearest = np.full(n, np.inf)
        for step, picked in enumerate(ids):
            left = [i for i in range(n) if i not in ids[:step] and (available is None or available[i])]
            costs = {i: math.fsum(min(nearest[j], d[j, i]) for j in range(n)) for i in left}
            if costs.get(picked, np.inf) != min(costs.values()):
                return False
            nearest = np.minimum(nearest, d[:, picked])
        return True


def known(table, k, age=0, round=0, available=None):
    return now_of(env_of([5] * len(table), k), info_of("divfl", gradient=(table, age)), round, available)


def started(strategy, k, table):
    return hooks.started(strategy, known(table, k))


def everyone_reports(k):
    return outcome_of([True] * k)


@pytest.mark.slow
@pytest.mark.parametrize("n,k", [(7, 3), (6, 1), (5, 5)])
def test_lazy_cohorts_equal_the_twins_over_several_rounds(n, k):
    strategy = divfl()
    rounds, instances = 4, 60
    rng = np.random.default_rng(n)
    gradients = rng.normal(size=(instances, rounds + 1, n, 4)).astype(np.float32)

    def game(key, gradients):
        state = State(jnp.linalg.norm(gradients[0][:, None] - gradients[0], axis=2))
        table, history = gradients[0], []
        for round in range(rounds):
            selection = strategy.select(jax.random.fold_in(key, round), state, known(table, k, 0, round))
            table = table.at[selection.ids].set(gradients[round + 1][selection.ids])
            state = strategy.update(state, known(table, k, 0, round), selection, everyone_reports(k))
            history.append((selection.ids, state.distances))
        return history

    played = jax.device_get(jax.jit(jax.vmap(game))(jax.random.split(jax.random.key(0), instances), gradients))
    for instance in range(instances):
        twin = Twin(gradients[instance, 0])
        for round in range(rounds):
            ids = played[round][0][instance].tolist()
            assert len(ids) == k and twin.accepts(ids)
            for i in ids:
                twin.table[i] = np.float64(gradients[instance, round + 1, i])
            np.testing.assert_allclose(played[round][1][instance], twin.distances(), rtol=2e-6)


def test_the_start_gives_the_distances_of_all():
    table = np.random.default_rng(0).normal(size=(6, 700)).astype(np.float32)
    state = started(divfl(), 2, table)
    np.testing.assert_allclose(state.distances, Twin(table).distances(), rtol=2e-7)
    assert state.distances.dtype == jnp.float32


def test_ideal_cohorts_equal_the_twins():
    strategy = divfl(variant="ideal")
    tables = np.random.default_rng(1).normal(size=(200, 7, 4)).astype(np.float32)

    def cohort(key, table):
        return strategy.select(key, (), known(table, 3, 0, 5)).ids

    found = jax.jit(jax.vmap(cohort))(jax.random.split(jax.random.key(0), 200), tables)
    for table, ids in zip(tables, found.tolist()):
        assert Twin(table).accepts(ids)


def test_ideal_does_not_count_who_never_answered():
    table = np.random.default_rng(2).normal(size=(7, 4)).astype(np.float32)
    available = jnp.array([True] * 5 + [False] * 2)
    ages = jnp.where(available, 0, NEVER)
    strategy = divfl(variant="ideal")
    selection = strategy.select(jax.random.key(1), (), known(table, 3, ages, 0, available))
    assert selection.mask.all() and Twin(table[:5]).accepts(selection.ids.tolist())


def test_ideal_weighs_by_the_clients_that_answered():
    table = np.float32([[0.0], [0.1], [0.2], [9.0], [0.0], [0.0], [0.0]])
    available = jnp.arange(7) < 4
    strategy = divfl(variant="ideal", weights="cluster-size")
    selection = strategy.select(jax.random.key(1), (), known(table, 2, jnp.where(available, 0, NEVER), 0, available))
    shares = dict(zip((selection.ids == 3).tolist(), selection.weights.tolist()))
    assert shares == pytest.approx({False: 0.75, True: 0.25})


@pytest.mark.slow
def test_masked_places_leave_the_distances_alone():
    strategy = divfl()
    rng = np.random.default_rng(3)
    table, fresh = np.float32(rng.normal(size=(2, 6, 4)))
    state = started(strategy, 3, table)
    ids, mask = jnp.array([4, 0, 2]), jnp.array([True, False, True])
    after = np.where(np.isin(np.arange(6), [4, 2])[:, None], fresh, table)
    cohort = Selection(ids, None, jnp.ones(3, bool))
    state = strategy.update(state, known(after, 3), cohort, outcome_of(mask))
    np.testing.assert_allclose(state.distances, Twin(after).distances(), rtol=2e-6)
    spoilt = np.where(np.arange(6)[:, None] == 0, np.float32(99), after)  # nobody asked 0
    again = strategy.update(state, known(spoilt, 3), cohort, outcome_of([False] * 3))
    np.testing.assert_array_equal(again.distances, state.distances)


@pytest.mark.parametrize("variant", ["lazy", "ideal"])
def test_a_gradient_that_is_not_finite_counts_as_zero(variant):
    strategy = divfl(variant=variant)
    table = np.random.default_rng(4).normal(size=(6, 4)).astype(np.float32)
    zeroed = np.where(np.arange(6)[:, None] == 2, 0, table)
    everyone = Selection(jnp.array([1, 2, 3]), None, jnp.ones(3, bool))
    select = jax.jit(lambda state, gradients: strategy.select(jax.random.key(0), state, known(gradients, 3)))
    update = jax.jit(
        lambda state, gradients: strategy.update(state, known(gradients, 3), everyone, everyone_reports(3))
    )
    for bad in (np.nan, np.inf, 1e30):
        spoilt = zeroed.copy()
        spoilt[2, 1] = bad
        state = started(strategy, 3, spoilt)
        for _ in range(2):
            distances = known_distances(known(spoilt, 3).info.gradient) if variant == "ideal" else state.distances
            np.testing.assert_allclose(distances, Twin(zeroed).distances(), rtol=2e-6)
            assert Twin(zeroed).accepts(select(state, spoilt).ids.tolist())
            state = update(state, spoilt)


@pytest.mark.parametrize("greedy", ["exact", "stochastic"])
def test_equal_gradients_give_uniform_cohorts(greedy):
    strategy = divfl(greedy=greedy)
    state = started(strategy, 2, np.ones((6, 4)))
    select = jax.jit(jax.vmap(lambda key: strategy.select(key, state, known(np.ones((6, 4)), 2)).ids))
    ids = np.sort(select(jax.random.split(jax.random.key(0), 20_000)), axis=1)
    _, counts = np.unique(ids, axis=0, return_counts=True)
    assert len(counts) == 15 and stats.chisquare(counts).pvalue > 1e-4


@pytest.mark.slow
def test_stochastic_looks_at_k_clients_or_a_tenth_of_all():
    # One step over subsets of 3 of 30 for K = 1: the best client is looked at in a tenth of the rounds.
    table = np.random.default_rng(5).normal(size=(30, 4))
    strategy = divfl(greedy="stochastic")
    for k, share in ((1, 0.1), (6, 0.2)):
        state, now = started(strategy, k, table), known(table, k)
        select = jax.jit(jax.vmap(lambda key, state=state, now=now: strategy.select(key, state, now).ids[0]))
        first = np.asarray(select(jax.random.split(jax.random.key(0), 5000)))
        assert abs((first == Twin(table).distances().sum(axis=0).argmin()).mean() - share) < 4 * np.sqrt(
            share * (1 - share) / 5000
        )


@pytest.mark.slow
def test_cluster_weights_are_the_shares_of_clients_represented():
    strategy = divfl(weights="cluster-size")
    table = np.random.default_rng(6).normal(size=(9, 4))
    state = started(strategy, 4, table)
    selection = strategy.select(jax.random.key(0), state, known(table, 4))
    ids = selection.ids
    nearest = Twin(table).distances()[:, ids].argmin(axis=1)
    np.testing.assert_allclose(selection.weights, np.bincount(nearest, minlength=4) / 9, rtol=1e-6)
    few = strategy.select(jax.random.key(0), state, known(table, 4, 0, 0, jnp.arange(9) == 5))
    assert few.ids[0] == 5 and few.mask.tolist() == [True, False, False, False]
    assert few.weights.tolist() == [1, 0, 0, 0]
    assert divfl().select(jax.random.key(0), state, known(table, 4)).weights is None


def test_unavailable_clients_are_represented_but_not_chosen():
    strategy = divfl(variant="ideal")
    tables = np.random.default_rng(7).normal(size=(200, 7, 4)).astype(np.float32)
    available = np.array([True, False, True, True, False, True, True])

    def cohort(key, table):
        return strategy.select(key, (), known(table, 3, 0, 1, jnp.asarray(available)))

    found = jax.device_get(jax.jit(jax.vmap(cohort))(jax.random.split(jax.random.key(0), 200), tables))
    assert found.mask.all()
    for table, ids in zip(tables, found.ids.tolist()):
        assert Twin(table).accepts(ids, available)


@pytest.mark.parametrize("mixing", [0.0, 0.5, 1.0])
def test_fewer_available_than_selected_gives_all_of_them(mixing):
    strategy = divfl(mixing=mixing)
    state = started(strategy, 4, np.random.default_rng(8).normal(size=(7, 4)))
    available = jnp.array([False, True, False, False, True, False, False])
    now = known(np.zeros((7, 4)), 4, 0, 0, available)
    select = jax.jit(jax.vmap(lambda key: strategy.select(key, state, now)))
    selection = jax.device_get(select(jax.random.split(jax.random.key(0), 50)))
    for ids, mask in zip(selection.ids, selection.mask):
        assert set(ids[mask]) == {1, 4} and len(set(ids)) == 4


def test_mixing_gives_places_to_anybody():
    n, k, mixing, draws = 8, 3, 0.4, 20_000
    table = np.random.default_rng(9).normal(size=(n, 4))
    strategy, strategy_without = divfl(mixing=mixing), divfl()
    state, now = started(strategy, k, table), known(table, k)
    select = jax.jit(jax.vmap(lambda key: strategy.select(key, state, now).ids))
    ids = np.asarray(select(jax.random.split(jax.random.key(0), draws)))
    assert all(len(set(row)) == k for row in ids.tolist())
    greedy = strategy_without.select(jax.random.key(0), state, now).ids.tolist()
    assert Twin(table).accepts(greedy)
    expected = np.zeros(n)
    for given in range(k + 1):  # places given away
        kept, others = greedy[: k - given], [i for i in range(n) if i not in greedy[: k - given]]
        share = stats.binom.pmf(given, k, mixing)
        expected[kept] += share
        expected[others] += share * given / len(others)
    found = np.bincount(ids.reshape(-1), minlength=n) / draws
    assert (np.abs(found - expected) < 4 * np.sqrt(expected * (1 - expected) / draws)).all()


def test_what_it_buys():
    start, cohort = divfl().requests
    assert (start.kind, start.who, start.when.before_first_round, start.when.rules) == ("gradient", ALL, True, ())
    assert (cohort.kind, cohort.who, cohort.when.before_first_round) == ("gradient", SELECTED, False)
    assert cohort.when.in_every_round
    (everything,) = divfl(variant="ideal").requests
    assert (everything.kind, everything.who, everything.when.before_first_round) == ("gradient", ALL, False)
    assert everything.when.in_every_round
