"""AFL against a slow NumPy twin: who is set aside, the law of the draw, the special cases."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from fedjax_sel.strategies.afl import active_cohort, afl
from fedjax_sel.strategies.facts import ALL, SELECTED
from tests.strategies.hooks import env_of, info_of, now_of
from tests.strategies.laws import assert_law, without_replacement

DRAWS = 20_000


def twin_kept(values, wanted, alpha1):
    """Whom the lowest valuations leave, in plain loops."""
    n = len(values)
    aside = min(math.floor(alpha1 * n + 1e-9), n - min(wanted, n))
    return sorted(sorted(range(n), key=lambda i: values[i])[aside:])


def twin_law(values, k, alpha1, alpha2, alpha3):
    """The probability of every cohort, by enumerating ordered draws."""
    n = len(values)
    wanted = math.floor((1 - alpha3) * k + 1e-9)
    kept = twin_kept(values, wanted, alpha1)
    weights = {i: math.exp(alpha2 * (values[i] - max(values))) for i in kept}
    law = dict.fromkeys(itertools.combinations(range(n), k), 0.0)
    for drawn, probability in without_replacement(weights, wanted).items():
        others = list(itertools.combinations([i for i in range(n) if i not in drawn], k - wanted))
        for rest in others:
            law[tuple(sorted(drawn + rest))] += probability / len(others)
    return law


def draw(strategy, losses, sizes, k, count=DRAWS, available=None, seed=0):
    now = now_of(env_of(sizes, k), info_of("afl", loss=losses), 2, available)
    select = jax.jit(jax.vmap(lambda key: strategy.select(key, (), now)))
    return jax.device_get(select(jax.random.split(jax.random.key(seed), count)))


@pytest.mark.fast_cases(3)
@pytest.mark.parametrize(
    "n,k,alphas",
    [
        (6, 3, (0.5, 0.3, 0.4)),  # 3 left, 1 by valuation
        (7, 3, (0.3, 0.2, 0.1)),  # 2 by valuation
        (6, 2, (0.2, 1.0, 0.0)),  # nobody uniformly
        (6, 3, (0.9, 0.3, 0.0)),  # fewer than 3 would be left: fewer set aside
        (5, 5, (0.75, 0.01, 0.1)),
        (5, 1, (0.4, 0.5, 0.0)),
    ],
)
def test_cohorts_follow_the_twins_law(n, k, alphas):
    rng = np.random.default_rng(n * k)
    losses, sizes = rng.uniform(0, 2, n), rng.integers(1, 30, n)
    strategy = afl(alpha1=alphas[0], alpha2=alphas[1], alpha3=alphas[2])
    selection = draw(strategy, losses, sizes, k)
    assert selection.weights is None and selection.mask.all() and selection.ids.dtype == np.int32
    assert_law(selection.ids, twin_law(np.sqrt(sizes) * losses, k, *alphas))


@pytest.mark.parametrize("n,k,alpha1", [(20, 10, 0.45), (9, 4, 0.5), (10, 5, 0.8)])
def test_two_hundred_instances_set_the_twins_clients_aside(n, k, alpha1):
    values = np.random.default_rng(n).normal(size=(200, n)).astype(np.float32)
    keys = jax.random.split(jax.random.key(0), 200)
    cohorts = jax.jit(jax.vmap(lambda key, v: active_cohort(key, v, k, alpha1, 0.5, 0.0)))(keys, values)
    seen = np.zeros((200, n), bool)
    for row, (ids, value) in enumerate(zip(cohorts.tolist(), values.tolist())):
        kept = twin_kept(value, k, alpha1)
        assert set(ids) <= set(kept)
        seen[row, ids] = True
    assert (seen.sum(axis=1) == k).all()


def test_valuations_are_root_n_times_the_mean_loss():
    # Strong preference: the largest sqrt(n) l wins, neither the largest loss nor the largest n l.
    losses, sizes = [3.0, 2.0, 1.0], [1, 4, 9]
    assert (draw(afl(alpha1=0, alpha2=200, alpha3=0), [3.0, 2.0, 1.2], [1, 4, 9], 1, 50).ids == 1).all()
    tied = draw(afl(alpha1=0, alpha2=0.7, alpha3=0), losses, sizes, 1).ids  # 3, 4, 3
    assert_law(tied, twin_law(np.array([3.0, 4.0, 3.0]), 1, 0, 0.7, 0))


@pytest.mark.parametrize("alphas", [(0.0, 0.0, 0.1), (0.75, 0.01, 1.0)])
def test_no_preference_or_all_uniform_is_uniform(alphas):
    strategy = afl(alpha1=alphas[0], alpha2=alphas[1], alpha3=alphas[2])
    ids = draw(strategy, [9.0, 1.0, 5.0, 2.0, 30.0], [10, 5, 20, 7, 9], 3).ids
    assert_law(ids, dict.fromkeys(itertools.combinations(range(5), 3), 0.1))


def test_who_is_set_aside_appears_through_the_uniform_part_alone():
    losses = np.arange(1.0, 13.0)
    ids = draw(afl(alpha1=0.75, alpha2=0.1, alpha3=0.4), losses, np.full(12, 9), 5).ids  # 3 of the last 3, 2 of 9
    assert (np.sort(ids, axis=1)[:, 2:] == [9, 10, 11]).all()
    counts = np.bincount(ids.reshape(-1), minlength=12)[:9]
    assert stats.chisquare(counts).pvalue > 1e-4
    strict = draw(afl(alpha1=0.75, alpha2=0.1, alpha3=0.0), losses, np.full(12, 9), 3).ids
    assert (strict >= 9).all()


@pytest.mark.parametrize("k,by_value", [(5, 4), (10, 9), (1, 0)])
def test_places_by_valuation_are_floored_exactly(k, by_value):
    losses = np.concatenate([np.full(30 - max(by_value, 1), 1e-3), np.full(max(by_value, 1), 50.0)])
    ids = draw(afl(alpha1=1.0), losses, np.full(30, 4), k, 400).ids
    assert ((ids >= 30 - max(by_value, 1)).sum(axis=1) >= by_value).all()
    if by_value:
        # The one uniform place is among the others only.
        assert ((ids < 30 - by_value).sum(axis=1) == 1).all()
    else:
        assert (ids == 29).mean() < 0.15  # rounded up, it would be there always


def test_equal_losses_give_uniform_cohorts():
    counts = np.bincount(draw(afl(), np.zeros(12), np.full(12, 7), 4).ids.reshape(-1), minlength=12)
    assert stats.chisquare(counts).pvalue > 1e-4


def test_extreme_losses_keep_their_order():
    losses = [1e6, 0.0, -1e6, 1e6, 5e5, 1.0]
    ids = draw(afl(alpha1=0, alpha2=1, alpha3=0), losses, np.full(6, 40_000), 3, 500).ids
    assert (np.sort(ids, axis=1) == [0, 3, 4]).all()
    assert set(ids[:, 0].tolist()) <= {0, 3, 4}


def test_only_available_clients_and_the_law_among_them():
    losses, sizes = np.array([3.0, 9.0, 1.0, 0.5, 8.0, 2.0, 4.0]), np.full(7, 1)
    available = np.array([True, False, True, True, False, True, True])
    selection = draw(afl(alpha1=0.4, alpha2=0.5, alpha3=0.4), losses, sizes, 3, available=jnp.asarray(available))
    assert selection.mask.all()
    there = np.flatnonzero(available)
    law = twin_law(losses[available], 3, 0.4, 0.5, 0.4)
    assert_law(selection.ids, {tuple(there[list(cohort)]): p for cohort, p in law.items()})


def test_fewer_available_than_selected_gives_all_of_them():
    for there in ([1, 4], [3], []):
        available = jnp.isin(jnp.arange(8), jnp.array(there, jnp.int32))
        selection = draw(afl(alpha3=0.5), np.arange(8.0), np.full(8, 3), 5, 50, available)
        for ids, mask in zip(selection.ids, selection.mask):
            assert sorted(ids[mask]) == there and len(set(ids)) == 5


def test_what_it_buys():
    start, cohort = afl().requests
    assert (start.kind, start.who, start.when.before_first_round, start.when.rules) == ("loss", ALL, True, ())
    assert (cohort.kind, cohort.who, cohort.when.in_every_round) == ("loss", SELECTED, True)
    assert not cohort.when.before_first_round and start.options == cohort.options == ()
