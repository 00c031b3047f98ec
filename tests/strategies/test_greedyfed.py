"""GreedyFed against a NumPy twin of GTG-Shapley, exact Shapley values by enumeration, and its picks by hand."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedjax_sel
from fedjax_sel.errors import UserError
from fedjax_sel.strategies.contract import Selection
from fedjax_sel.strategies.facts import SERVER
from fedjax_sel.strategies.greedyfed import greedyfed, permutations, prefixes, shapley_values
from tests.strategies import hooks
from tests.strategies.hooks import env_of, now_of, outcome_of

permutations = jax.jit(permutations, static_argnums=(1, 2))
prefixes = jax.jit(prefixes)
shapley_values = jax.jit(shapley_values)


class Losses:
    """The server's loss of averages of subsets of models in the plane, which is neither additive nor monotone."""

    def __init__(self, k, seed, heard=None):
        rng = np.random.default_rng(seed)
        self.models, self.sizes = rng.normal(size=(k, 2)), rng.integers(1, 9, k)
        self.heard = np.ones(k, bool) if heard is None else np.array(heard)

    def of(self, members):
        members = [i for i in members if self.heard[i]]
        model = np.zeros(2)
        if members:
            model = (self.sizes[members, None] * self.models[members]).sum(axis=0) / self.sizes[members].sum()
        return float(np.sin(3 * model[0]) + (model[1] - 0.5) ** 2)

    def __call__(self, masks):
        return np.float32([self.of(np.flatnonzero(row).tolist()) for row in np.asarray(masks)])


def exact(losses, k):
    """Shapley values of v = -loss by enumeration of all subsets."""
    found = np.zeros(k)
    for i in range(k):
        others = [j for j in range(k) if j != i]
        for size in range(k):
            share = 1 / (k * math.comb(k - 1, size))
            for members in itertools.combinations(others, size):
                found[i] += share * (losses.of(members) - losses.of([*members, i]))
    return found


def twin(losses, orders, truncation):
    """GTG-Shapley in loops: running means over orders, without further losses once v is near v(all)."""
    k = len(orders[0])
    phi = np.zeros(k)
    final, initial = -losses.of(range(k)), -losses.of([])
    if abs(final - initial) < truncation:
        return phi
    for tau, order in enumerate(orders, start=1):
        before = initial
        for j, client in enumerate(order):
            after = before if abs(final - before) < truncation else -losses.of(order[: j + 1])
            phi[client] = (tau - 1) / tau * phi[client] + (after - before) / tau
            before = after
    return phi


def estimate(losses, key, num_orders, k, truncation):
    places = permutations(key, num_orders, k)
    return shapley_values(-losses(prefixes(places)), places, truncation), np.argsort(np.asarray(places), axis=1)


@pytest.mark.fast_cases(1)
@pytest.mark.parametrize("k,truncation", [(5, 0.3), (1, 0.0), (2, 1e-4), (5, 0.0), (6, 0.1), (4, 9.0)])
def test_values_equal_the_twins(k, truncation):
    changed = False
    for seed in range(5):
        losses = Losses(k, seed)
        found, orders = estimate(losses, jax.random.key(seed), 7, k, truncation)
        np.testing.assert_allclose(found, twin(losses, orders.tolist(), truncation), rtol=1e-4, atol=1e-6)
        changed |= not np.allclose(found, twin(losses, orders.tolist(), 0.0), atol=1e-6)
    assert changed == (truncation >= 0.1)


def test_all_orders_give_the_exact_values():
    losses, k = Losses(4, 3), 4
    places = np.argsort(list(itertools.permutations(range(k))), axis=1)
    np.testing.assert_allclose(shapley_values(-losses(prefixes(places)), places, 0.0), exact(losses, k), atol=1e-6)


@pytest.mark.fast_cases(1)
@pytest.mark.parametrize("num_orders", [1, 3, 4, 10])
def test_estimates_are_unbiased(num_orders):
    """Also where the clients are not first equally often; the mean of many estimates, and the sum of each."""
    losses, k = Losses(4, 1), 4
    table = {row: losses.of(np.flatnonzero(row).tolist()) for row in itertools.product([False, True], repeat=k)}
    values = -np.float32([table[row] for row in itertools.product([False, True], repeat=k)])

    @jax.jit
    @jax.vmap
    def estimate(key):
        places = permutations(key, num_orders, k)
        sets = prefixes(places) @ (2 ** jnp.arange(k)[::-1])
        return shapley_values(jnp.asarray(values)[sets], places, 0.0)

    found = np.asarray(estimate(jax.random.split(jax.random.key(5), 4000)))
    np.testing.assert_allclose(found.sum(axis=1), values[-1] - values[0], atol=1e-5)
    error = found.std(axis=0) / math.sqrt(len(found))
    assert (np.abs(found.mean(axis=0) - exact(losses, k)) < 4.5 * error + 1e-6).all()


@pytest.mark.fast_cases(1)
@pytest.mark.parametrize("num_orders,k", [(12, 4), (7, 3), (2, 5), (1, 1)])
def test_clients_take_turns_at_the_first_place(num_orders, k):
    places = np.asarray(permutations(jax.random.key(2), num_orders, k))
    assert (np.sort(places, axis=1) == np.arange(k)).all()
    first = (places == 0).sum(axis=0)
    assert set(first) <= {num_orders // k, -(-num_orders // k)}
    sets = np.asarray(prefixes(places))
    assert sets.shape == (2 + num_orders * (k - 1), k) and not sets[0].any() and sets[1].all()


def test_a_lost_report_contributes_nothing_and_changes_no_other_value():
    losses, fewer = Losses(5, 2, heard=[True, True, False, True, True]), Losses(5, 2)
    fewer.models, fewer.sizes, fewer.heard = fewer.models[losses.heard], fewer.sizes[losses.heard], np.ones(4, bool)
    places = np.argsort(list(itertools.permutations(range(5))), axis=1)
    found = shapley_values(-losses(prefixes(places)), places, 0.0)
    assert found[2] == 0
    np.testing.assert_allclose(np.delete(found, 2), exact(fewer, 4), atol=1e-5)


def at(n, k, round=0, available=None):
    """What the server knows in a round."""
    return now_of(env_of([5] * n, k), None, round, available)


def started(strategy, n, k):
    return hooks.started(strategy, at(n, k), seed=3)


def additive(gains):
    """Losses in which each member lowers the loss by its own gain, which then is its Shapley value."""
    return lambda masks: 5.0 - masks.astype(jnp.float32) @ jnp.float32(gains)


@pytest.mark.fast_cases(1)
@pytest.mark.parametrize("memory", [None, 0.0, 0.75])
def test_averages_by_hand(memory):
    strategy = greedyfed(memory=memory, evaluations=20, truncation=0.0)
    state = started(strategy, 5, 3)

    @jax.jit
    def update(state, ids, gains, mask):
        outcome = outcome_of(mask, subset_loss=additive(gains))
        return strategy.update(state, at(5, 3), Selection(ids, None, jnp.ones(3, bool)), outcome)

    rounds = [([3, 0, 1], [0.4, -0.2, 0.1], [1, 1, 1]), ([0, 2, 3], [0.6, 0.3, 0.2], [1, 1, 0]),
              ([0, 1, 4], [0.1, 0.5, -0.3], [1, 1, 1])]  # fmt: skip
    seen, average = {i: [] for i in range(5)}, {}
    for ids, gains, mask in rounds:
        gains = np.where(mask, gains, 0.0)
        state = update(state, jnp.int32(ids), jnp.float32(gains), jnp.array(mask, bool))
        for client, gain, heard in zip(ids, gains, mask):
            if heard:
                seen[client].append(gain)
                average[client] = gain if len(seen[client]) == 1 else (memory or 0) * average[client] + (
                    1 - (memory or 0)) * gain  # fmt: skip
    expected = {i: np.mean(gains) for i, gains in seen.items() if gains} if memory is None else average
    np.testing.assert_allclose(state.values, [expected[i] for i in range(5)], atol=1e-6)
    assert state.counts.tolist() == [3, 2, 1, 1, 1]


def test_every_client_comes_first_and_then_the_largest_values():
    """Seven clients, three a round: two rounds of new clients, a third filled with the best, then the best."""
    strategy, n, k = greedyfed(evaluations=20), 7, 3
    gains = np.float32([0.3, 0.9, 0.1, 0.7, 0.5, 0.2, 0.8])
    select = jax.jit(strategy.select)

    @jax.jit
    def update(state, selection, now):
        own = outcome_of(selection.mask, subset_loss=additive(jnp.asarray(gains)[selection.ids]))
        return strategy.update(state, now, selection, own)

    state, cohorts = started(strategy, n, k), []
    for round in range(5):
        selection = select(jax.random.key(round), state, at(n, k, round))
        cohorts.append(set(selection.ids.tolist()))
        state = update(state, selection, at(n, k, round))
    assert not cohorts[0] & cohorts[1]
    assert set(range(n)) - cohorts[0] - cohorts[1] < cohorts[2]
    best = sorted(cohorts[0] | cohorts[1], key=lambda i: -gains[i])
    assert cohorts[2] - set(best[:2]) == set(range(n)) - cohorts[0] - cohorts[1]
    assert cohorts[3] == cohorts[4] == {1, 6, 3}
    others = select(jax.random.key(9), state, at(n, k, 5, jnp.arange(n) != 1))
    assert set(others.ids.tolist()) == {6, 3, 4}


def test_first_cohorts_are_random_and_the_orders_of_a_round_are_its_own():
    strategy = greedyfed(evaluations=8)
    state = started(strategy, 6, 3)
    select = jax.jit(jax.vmap(strategy.select, (0, None, None)))
    cohorts = select(jax.random.split(jax.random.key(0), 2000), state, at(6, 3)).ids
    np.testing.assert_allclose(np.bincount(np.asarray(cohorts).ravel(), minlength=6) / 2000, 0.5, atol=0.05)
    asked = []

    def watch(masks):
        asked.append(np.asarray(masks))
        return additive([0.0, 0.0, 0.0])(masks)

    selection = Selection(jnp.arange(3), None, jnp.ones(3, bool))
    for round in (0, 0, 1):
        strategy.update(state, at(6, 3, round), selection, outcome_of([True] * 3, subset_loss=watch))
    assert [masks.shape for masks in asked] == [(8, 3)] * 3
    np.testing.assert_array_equal(asked[0], asked[1])
    assert (asked[0] != asked[2]).any()


def test_unused_evaluations_repeat_the_empty_set():
    strategy = greedyfed(evaluations=11)  # 2 + 2 orders of 4 proper prefixes, and 1 left

    def loss(masks):
        assert masks.shape == (11, 5) and not masks[10].any() and masks[1:10].any(axis=1).all()
        return additive([0.0] * 5)(masks)

    selection = Selection(jnp.arange(5), None, jnp.ones(5, bool))
    strategy.update(started(strategy, 6, 5), at(6, 5), selection, outcome_of([True] * 5, subset_loss=loss))


def test_it_buys_losses_of_subsets_from_the_server():
    (request,) = greedyfed(evaluations=40).requests
    assert (request.kind, request.who, request.options) == ("subset_loss", SERVER, (("subsets", 40),))
    assert request.when.in_every_round


@pytest.mark.slow
def test_a_run_avoids_clients_with_wrong_labels():
    """Three of twelve clients have random labels; random selection would give them a quarter of the places."""
    rng = np.random.default_rng(0)
    classes = np.arange(800) % 4
    inputs = (2 * np.eye(4)[classes] + rng.normal(size=(800, 4))).astype(np.float32)
    labels = np.where(np.arange(800) < 190, rng.integers(0, 4, 800), classes)  # 152 after the server's share
    config = fedjax_sel.Experiment.of(
        dataset=fedjax_sel.Dataset.from_arrays(train=(inputs, labels), test=(inputs[-80:], labels[-80:])),
        partition=np.arange(600).reshape(12, 50), server_validation=0.2, num_selected=3, local_epochs=2, batch_size=10,
        rounds=16, chunk=16, seeds=3, algo="greedyfed", algo_args={"evaluations": 26},
    )  # fmt: skip
    cohorts = np.asarray(fedjax_sel.run(config).cohorts)
    assert (np.sort(cohorts[:, :4].reshape(3, 12), axis=1) == np.arange(12)).all()
    assert (cohorts[:, 4:] < 3).mean() < 0.1


def test_too_few_evaluations_for_one_order_are_rejected():
    assert started(greedyfed(evaluations=5), 8, 4).values.shape == (8,)
    with pytest.raises(UserError, match="evaluations=4 is below 5, one order of the 4 selected clients; give at least"):
        started(greedyfed(evaluations=4), 8, 4)
