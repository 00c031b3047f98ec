"""Fed-CBS against a NumPy twin of its sampling strategy: the law of its ordered cohorts by enumeration."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from fedjax_sel.strategies.contract import Selection
from fedjax_sel.strategies.facts import ALL, NEVER
from fedjax_sel.strategies.fed_cbs import class_imbalance, draw_cohort, fed_cbs, known_or_mean, possible_counts
from tests.strategies import hooks
from tests.strategies.hooks import env_of, info_of, now_of, outcome_of

DRAWS = 20_000
HISTOGRAMS = np.array([[9, 1, 0], [0, 8, 4], [2, 2, 11], [5, 6, 4], [0, 0, 6], [7, 0, 7]], np.float32)


def known(k, round=0, available=None):
    return now_of(env_of([5] * len(HISTOGRAMS), k), info_of(label_histogram=HISTOGRAMS), round, available)


def started(strategy, k):
    return hooks.started(strategy, known(k))


def qcid(members, histograms):
    """The degree from the inner products q_n q_n' <a_n, a_n'>, which are all that the paper's server knows."""
    q = [sum(map(float, histograms[n])) for n in members]
    a = [[float(count) / sum(map(float, histograms[n])) for count in histograms[n]] for n in members]
    products = 0.0
    for i, j in itertools.product(range(len(members)), repeat=2):
        products += q[i] * q[j] * sum(x * y for x, y in zip(a[i], a[j]))
    return products / sum(q) ** 2 - 1 / len(histograms[0])


def law_of(histograms, k, exploration, round, times, available):
    """The probability of each ordered cohort, with the weights of the previous members as the paper has them."""

    def weight(members):
        own = qcid(members, histograms) ** -len(members)
        if len(members) == 1:
            own += exploration * (3 * np.log(round + 1) / (2 * times[members[0]])) ** 0.5
        return own

    law = {(): 1.0}
    for _ in range(k):
        further = {}
        for members, p in law.items():
            left = [n for n in range(len(histograms)) if n not in members and available[n]]
            weights = [weight([*members, n]) / (weight([*members]) if members else 1) for n in left]
            further |= {(*members, n): p * w / sum(weights) for n, w in zip(left, weights)}
        law = further
    return law


@pytest.mark.fast_cases(1)
@pytest.mark.parametrize("round,exploration,absent", [(6, 10.0, ()), (0, 10.0, ()), (6, 0.0, (3,)), (30, 40.0, (1, 2))])
def test_ordered_cohorts_have_the_enumerated_law(round, exploration, absent):
    """In the first round ln k = 0, and there is no exploration."""
    n, k, counts = len(HISTOGRAMS), 3, [4, 0, 1, 9, 0, 2]
    strategy = fed_cbs(exploration=exploration)
    state = started(strategy, k)._replace(counts=jnp.int32(counts))
    available = ~np.isin(np.arange(n), absent)
    now = known(k, round, jnp.asarray(available) if absent else None)
    select = jax.jit(jax.vmap(lambda key: strategy.select(key, state, now)))
    found = select(jax.random.split(jax.random.key(1), DRAWS))
    assert found.weights is None and np.asarray(found.mask).all()
    law = law_of(HISTOGRAMS, k, exploration, round, np.add(counts, 1), available)
    cohorts, times = np.unique(found.ids, axis=0, return_counts=True)
    seen = {tuple(cohort): int(count) for cohort, count in zip(cohorts.tolist(), times)}
    assert set(seen) <= set(law)
    frequent = [cohort for cohort, p in law.items() if DRAWS * p >= 5]
    expected = np.array([DRAWS * law[cohort] for cohort in frequent])
    counted = np.array([seen.get(cohort, 0) for cohort in frequent])
    rest = [DRAWS - counted.sum()], [DRAWS - expected.sum()]
    assert len(frequent) > 10 and expected.sum() > 0.95 * DRAWS
    observed, expected = (np.append(*pair) for pair in zip((counted, expected), rest))
    assert stats.chisquare(observed[expected > 1e-6], expected[expected > 1e-6]).pvalue > 1e-4


def test_the_degree_equals_the_twins():
    for size in range(1, 5):
        for members in itertools.combinations(range(len(HISTOGRAMS)), size):
            found = class_imbalance(jnp.asarray(HISTOGRAMS[list(members)].sum(axis=0)))
            np.testing.assert_allclose(found, qcid(members, HISTOGRAMS), rtol=1e-5)


def test_clients_that_complete_each_other_are_selected_together():
    """The paper's example: {1, 3, 4} are balanced, and the greedy choice {1, 2, 3} is not."""
    histograms = jnp.float32([[5] * 6, [6] * 5 + [0], [0] * 3 + [10] * 3, [10] * 3 + [0] * 3])
    assert class_imbalance(histograms[jnp.array([0, 2, 3])].sum(axis=0)) == jnp.float32(1e-10)  # balanced
    draw = jax.jit(jax.vmap(lambda key: draw_cohort(key, histograms, jnp.full(4, 1e12), 3)))
    ids = np.asarray(draw(jax.random.split(jax.random.key(0), 400)))
    last = np.sort(ids[(ids[:, 0] == 2) | (ids[:, 0] == 3)], axis=1)
    assert (last == [0, 2, 3]).all() and len(last) > 100


def test_few_available_clients_leave_places_empty():
    strategy = fed_cbs()
    state = started(strategy, 4)
    available = jnp.array([False, True, False, False, True, False])
    selection = strategy.select(jax.random.key(0), state, known(4, 3, available))
    assert selection.ids[selection.mask].tolist() in ([1, 4], [4, 1])
    assert len(set(selection.ids.tolist())) == 4 and selection.mask.tolist() == [True, True, False, False]


def test_silent_clients_have_the_mean_histogram():
    table = np.where(np.arange(6)[:, None] == 2, 0, HISTOGRAMS)
    age = np.where(np.arange(6) == 2, NEVER, 3)
    others = HISTOGRAMS[np.arange(6) != 2]
    found = known_or_mean(jnp.asarray(table), jnp.asarray(age, jnp.int32))
    np.testing.assert_allclose(found[2], others.mean(axis=0), rtol=1e-6)
    np.testing.assert_array_equal(np.delete(found, 2, axis=0), others)
    assert (known_or_mean(jnp.zeros((6, 3)), jnp.full(6, NEVER)) == 1).all()


def test_arrived_reports_are_counted():
    strategy = fed_cbs()
    state = started(strategy, 3)
    everyone = jnp.ones(3, bool)
    for ids, mask in (([4, 1, 0], [True, False, True]), ([0, 3, 5], [True, True, True])):
        state = strategy.update(state, known(3), Selection(jnp.int32(ids), None, everyone), outcome_of(mask))
    assert state.counts.tolist() == [2, 0, 0, 1, 1, 1]


def test_it_buys_histograms_once():
    (request,) = fed_cbs().requests
    assert (request.kind, request.who) == ("label_histogram", ALL)
    assert request.when.before_first_round and not request.when.rules


def test_noisy_counts_become_possible_and_keep_the_number_of_examples():
    noisy = jnp.array([[-2.0, 6.0, 2.0], [1.0, 1.0, 2.0], [-1.0, -1.0, -3.0]])
    found = possible_counts(noisy, jnp.array([4, 8, 5]))
    np.testing.assert_allclose(found, [[0, 3, 1], [2, 2, 4], [1, 1, 1]])
