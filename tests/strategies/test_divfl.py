"""DivFL against a slow NumPy twin over several rounds, its weights and its mixing."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from fedjax_sel.core.jax_settings import enable_x64
from fedjax_sel.errors import UserError
from fedjax_sel.strategies.base import ALL, NEVER, SELECTED, Env, Fact, Information, Outcome, Selection
from fedjax_sel.strategies.divfl import divfl


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


def environment(n, k):
    return Env(n, k, 10, 10, 4, jnp.full(n, 5), jnp.full(n, 1 / n))


def information(table, age=0):
    n = len(table)
    return Information("divfl", {"gradient": Fact(jnp.float32(table), jnp.broadcast_to(jnp.int32(age), (n,)))})


def started(strategy, n, k, table):
    """The state when the first round selects, as the simulator brings it about."""
    state, info = strategy.init(jax.random.key(0), environment(n, k)), information(table)
    with enable_x64(True):
        ready = jax.device_get(jax.jit(strategy.prepare)(state, info))
    state = jax.tree.map(lambda old, new: jnp.asarray(new, old.dtype), state, ready)
    return strategy.observe(state, info, jnp.int32(0), None)


OUTCOME = Outcome(None, None, None, None, None)


@pytest.mark.slow
@pytest.mark.parametrize("n,k", [(7, 3), (6, 1), (5, 5)])
def test_lazy_cohorts_equal_the_twins_over_several_rounds(n, k):
    strategy = divfl()
    rounds, instances = 4, 60
    rng = np.random.default_rng(n)
    gradients = rng.normal(size=(instances, rounds + 1, n, 4)).astype(np.float32)

    def game(key, gradients):
        state = strategy.init(key, environment(n, k))
        state = state._replace(distances=jnp.linalg.norm(gradients[0][:, None] - gradients[0], axis=2))
        table, history = gradients[0], []
        for round in range(rounds):
            selection = strategy.select(jax.random.fold_in(key, round), state, information(table), round, None)
            table = table.at[selection.ids].set(gradients[round + 1][selection.ids])
            state = strategy.update(state, information(table), jnp.int32(round), selection, OUTCOME)
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
    state = started(divfl(), 6, 2, table)
    np.testing.assert_allclose(state.distances, Twin(table).distances(), rtol=2e-7)
    assert state.distances.dtype == jnp.float32


def test_ideal_cohorts_equal_the_twins():
    strategy = divfl(variant="ideal")
    tables = np.random.default_rng(1).normal(size=(200, 7, 4)).astype(np.float32)

    def cohort(key, table):
        state = strategy.observe(strategy.init(key, environment(7, 3)), information(table), jnp.int32(5), None)
        return strategy.select(key, state, information(table), jnp.int32(5), None).ids

    found = jax.jit(jax.vmap(cohort))(jax.random.split(jax.random.key(0), 200), tables)
    for table, ids in zip(tables, found.tolist()):
        assert Twin(table).accepts(ids)


def test_ideal_does_not_count_who_never_answered():
    table = np.random.default_rng(2).normal(size=(7, 4)).astype(np.float32)
    available = jnp.array([True] * 5 + [False] * 2)
    ages = jnp.where(available, 0, NEVER)
    strategy = divfl(variant="ideal")
    state = strategy.observe(strategy.init(jax.random.key(0), environment(7, 3)), information(table, ages), 0, None)
    selection = strategy.select(jax.random.key(1), state, information(table, ages), 0, available)
    assert selection.mask.all() and Twin(table[:5]).accepts(selection.ids.tolist())


@pytest.mark.slow
def test_masked_places_leave_the_distances_alone():
    strategy = divfl()
    rng = np.random.default_rng(3)
    table, fresh = np.float32(rng.normal(size=(2, 6, 4)))
    state = started(strategy, 6, 3, table)
    ids, mask = jnp.array([4, 0, 2]), jnp.array([True, False, True])
    after = np.where(np.isin(np.arange(6), [4, 2])[:, None], fresh, table)
    state = strategy.update(state, information(after), 0, Selection(ids, None, mask), OUTCOME)
    np.testing.assert_allclose(state.distances, Twin(after).distances(), rtol=2e-6)
    spoilt = np.where(np.arange(6)[:, None] == 0, np.float32(99), after)  # nobody asked 0
    again = strategy.update(state, information(spoilt), 0, Selection(ids, None, jnp.zeros(3, bool)), OUTCOME)
    np.testing.assert_array_equal(again.distances, state.distances)


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e30])
@pytest.mark.parametrize("variant", ["lazy", "ideal"])
def test_a_gradient_that_is_not_finite_counts_as_zero(variant, bad):
    strategy = divfl(variant=variant)
    table = np.random.default_rng(4).normal(size=(6, 4)).astype(np.float32)
    zeroed = np.where(np.arange(6)[:, None] == 2, 0, table)
    spoilt = zeroed.copy()
    spoilt[2, 1] = bad
    state = started(strategy, 6, 3, spoilt)
    np.testing.assert_allclose(state.distances, Twin(zeroed).distances(), rtol=2e-6)
    everyone = Selection(jnp.array([1, 2, 3]), None, jnp.ones(3, bool))
    state = strategy.update(state, information(spoilt), 0, everyone, OUTCOME)
    np.testing.assert_allclose(state.distances, Twin(zeroed).distances(), rtol=2e-6)


@pytest.mark.parametrize("greedy", ["exact", "stochastic"])
def test_equal_gradients_give_uniform_cohorts(greedy):
    strategy = divfl(greedy=greedy)
    state = started(strategy, 6, 2, np.ones((6, 4)))
    select = jax.jit(jax.vmap(lambda key: strategy.select(key, state, information(np.ones((6, 4))), 0, None).ids))
    ids = np.sort(select(jax.random.split(jax.random.key(0), 20_000)), axis=1)
    _, counts = np.unique(ids, axis=0, return_counts=True)
    assert len(counts) == 15 and stats.chisquare(counts).pvalue > 1e-4


@pytest.mark.slow
def test_stochastic_looks_at_k_clients_or_a_tenth_of_all():
    # One step over subsets of 3 of 30 for K = 1: the best client is looked at in a tenth of the rounds.
    table = np.random.default_rng(5).normal(size=(30, 4))
    strategy = divfl(greedy="stochastic")
    for k, share in ((1, 0.1), (6, 0.2)):
        state = started(strategy, 30, k, table)
        select = jax.jit(jax.vmap(lambda key, s=state: strategy.select(key, s, information(table), 0, None).ids[0]))
        first = np.asarray(select(jax.random.split(jax.random.key(0), 5000)))
        assert abs((first == Twin(table).distances().sum(axis=0).argmin()).mean() - share) < 4 * np.sqrt(
            share * (1 - share) / 5000
        )


@pytest.mark.slow
def test_cluster_weights_are_the_shares_of_clients_represented():
    strategy = divfl(weights="cluster-size")
    table = np.random.default_rng(6).normal(size=(9, 4))
    state = started(strategy, 9, 4, table)
    selection = strategy.select(jax.random.key(0), state, information(table), 0, None)
    ids = selection.ids
    nearest = Twin(table).distances()[:, ids].argmin(axis=1)
    np.testing.assert_allclose(selection.weights, np.bincount(nearest, minlength=4) / 9, rtol=1e-6)
    few = strategy.select(jax.random.key(0), state, information(table), 0, jnp.arange(9) == 5)
    assert few.ids[0] == 5 and few.mask.tolist() == [True, False, False, False]
    assert few.weights.tolist() == [1, 0, 0, 0]
    assert divfl().select(jax.random.key(0), state, information(table), 0, None).weights is None


def test_unavailable_clients_are_represented_but_not_chosen():
    strategy = divfl(variant="ideal")
    tables = np.random.default_rng(7).normal(size=(200, 7, 4)).astype(np.float32)
    available = np.array([True, False, True, True, False, True, True])

    def cohort(key, table):
        state = strategy.observe(strategy.init(key, environment(7, 3)), information(table), jnp.int32(1), None)
        return strategy.select(key, state, information(table), jnp.int32(1), jnp.asarray(available))

    found = jax.device_get(jax.jit(jax.vmap(cohort))(jax.random.split(jax.random.key(0), 200), tables))
    assert found.mask.all()
    for table, ids in zip(tables, found.ids.tolist()):
        assert Twin(table).accepts(ids, available)


@pytest.mark.parametrize("mixing", [0.0, 0.5, 1.0])
def test_fewer_available_than_selected_gives_all_of_them(mixing):
    strategy = divfl(mixing=mixing)
    state = started(strategy, 7, 4, np.random.default_rng(8).normal(size=(7, 4)))
    available = jnp.array([False, True, False, False, True, False, False])
    info = information(np.zeros((7, 4)))
    select = jax.jit(jax.vmap(lambda key: strategy.select(key, state, info, 0, available)))
    selection = jax.device_get(select(jax.random.split(jax.random.key(0), 50)))
    for ids, mask in zip(selection.ids, selection.mask):
        assert set(ids[mask]) == {1, 4} and len(set(ids)) == 4


def test_mixing_gives_places_to_anybody():
    n, k, mixing, draws = 8, 3, 0.4, 20_000
    table = np.random.default_rng(9).normal(size=(n, 4))
    strategy, strategy_without = divfl(mixing=mixing), divfl()
    state = started(strategy, n, k, table)
    select = jax.jit(jax.vmap(lambda key: strategy.select(key, state, information(table), 0, None).ids))
    ids = np.asarray(select(jax.random.split(jax.random.key(0), draws)))
    assert all(len(set(row)) == k for row in ids.tolist())
    greedy = strategy_without.select(jax.random.key(0), state, information(table), 0, None).ids.tolist()
    assert Twin(table).accepts(greedy)
    expected = np.zeros(n)
    for given in range(k + 1):  # places given away
        kept, others = greedy[: k - given], [i for i in range(n) if i not in greedy[: k - given]]
        share = stats.binom.pmf(given, k, mixing)
        expected[kept] += share
        expected[others] += share * given / len(others)
    found = np.bincount(ids.reshape(-1), minlength=n) / draws
    assert (np.abs(found - expected) < 4 * np.sqrt(expected * (1 - expected) / draws)).all()


def test_relabelling_relabels():
    table = np.random.default_rng(10).normal(size=(8, 4))
    order = np.array([3, 0, 7, 5, 1, 4, 6, 2])
    strategy = divfl()
    there = started(strategy, 8, 3, table[order])
    ids = np.asarray(strategy.select(jax.random.key(0), there, information(table), 0, None).ids)
    assert Twin(table).accepts(order[ids].tolist())


def test_what_it_buys():
    start, cohort = divfl().requests
    assert (start.kind, start.who, start.when.before_first_round, start.when.rules) == ("gradient", ALL, True, ())
    assert (cohort.kind, cohort.who, cohort.when.before_first_round) == ("gradient", SELECTED, False)
    assert cohort.when.in_every_round
    (everything,) = divfl(variant="ideal").requests
    assert (everything.kind, everything.who, everything.when.before_first_round) == ("gradient", ALL, False)
    assert everything.when.in_every_round


@pytest.mark.parametrize("mixing", [-0.1, 1.5, float("nan")])
def test_mixing_outside_its_range_is_refused(mixing):
    with pytest.raises(UserError, match=r"divfl: mixing=.* is outside \[0, 1\]"):
        divfl(mixing=mixing)
