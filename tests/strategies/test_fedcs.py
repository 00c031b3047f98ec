"""FedCS against a NumPy twin of its Algorithm 3 with parallel uploads, and the law of its candidates."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import fedjax_sel
from fedjax_sel.errors import UserError
from fedjax_sel.numerics import sampling
from fedjax_sel.strategies.facts import ALL, NEVER
from fedjax_sel.strategies.fedcs import fedcs
from fedjax_sel.timing import Timing
from tests.strategies.hooks import env_of, info_of, now_of


def known(seconds, ages, k, round=0, available=None):
    return now_of(env_of([5] * len(seconds), k), info_of("fedcs", seconds=(seconds, ages)), round, available)


def twin(candidates, seconds, k, deadline):
    """Algorithm 3: the candidate that extends the schedule least joins if the round ends in time; at most K join."""
    left, chosen, clock = set(candidates), [], 0.0
    while left and len(chosen) < k:
        best = min(left, key=lambda i: max(clock, seconds[i]) + 1e-9 * seconds[i])  # with equal ends, the fastest
        left.remove(best)
        if max(clock, seconds[best]) < deadline:
            clock = max(clock, seconds[best])
            chosen.append(best)
    return chosen


def largest(candidates, seconds, k, deadline):
    """The size of the largest set of at most K candidates whose slowest member is in time, by enumeration."""
    sets = itertools.chain.from_iterable(itertools.combinations(candidates, size) for size in range(k + 1))
    return max(len(chosen) for chosen in sets if not chosen or max(seconds[i] for i in chosen) < deadline)


def candidates_of(key, n, d, available=None):
    """The draw of candidates in `select`."""
    return np.asarray(sampling.uniform_without_replacement(jax.random.split(key)[0], n, d, available))


@pytest.mark.parametrize("absent", [(), (0, 3, 4, 7)])
def test_cohorts_equal_the_twins_and_are_largest(absent):
    n, k, fraction, deadline = 9, 3, 0.6, 5.0
    select = jax.jit(fedcs(round_seconds=deadline, fraction=fraction).select)
    rng, d = np.random.default_rng(len(absent)), math.ceil(n * fraction)
    available = ~np.isin(np.arange(n), absent)
    there = jnp.asarray(available) if absent else None
    sizes = []
    for game in range(60):
        seconds = rng.permutation(np.arange(n) + 1.5).astype(np.float32)
        key = jax.random.key(game)
        named = candidates_of(key, n, d, there)
        answered = [int(i) for i in named if available[i]]
        selection = select(key, (), known(seconds, np.full(n, game), k, game, there))
        chosen = selection.ids[selection.mask].tolist()
        assert len(named) == len(set(named.tolist())) == d
        assert chosen == twin(answered, seconds, k, deadline)
        assert len(chosen) == largest(answered, seconds, k, deadline)
        assert selection.weights is None and len(set(selection.ids.tolist())) == k
        sizes.append(len(chosen))
    assert len(set(sizes)) > 2  # the number of clients is a result


@pytest.mark.parametrize("absent", [(), (1,)])
def test_candidates_are_uniform_sets_of_available_clients(absent):
    """All candidates are in time, and the cohort has a place for each."""
    strategy = fedcs(fraction=0.5)
    now = known(np.ones(6), np.zeros(6), 3, 1, jnp.asarray(~np.isin(np.arange(6), absent)) if absent else None)
    draw = jax.jit(jax.vmap(lambda key: strategy.select(key, (), now).ids))
    rows = np.sort(np.asarray(draw(jax.random.split(jax.random.key(1), 10_000))), axis=1)
    sets = list(itertools.combinations([i for i in range(6) if i not in absent], 3))
    found = [(rows == one).all(axis=1).sum() for one in sets]
    assert sum(found) == 10_000 and stats.chisquare(found).pvalue > 1e-4


def test_equal_durations_are_ties_at_random():
    strategy = fedcs(fraction=1.0)
    now = known(np.full(5, 3.0), np.zeros(5), 2)
    select = jax.jit(jax.vmap(lambda key: strategy.select(key, (), now).ids))
    rows = np.sort(np.asarray(select(jax.random.split(jax.random.key(5), 10_000))), axis=1)
    found = [(rows == pair).all(axis=1).sum() for pair in itertools.combinations(range(5), 2)]
    assert stats.chisquare(found).pvalue > 1e-4


def test_the_deadline_is_strict_and_may_leave_nobody():
    strategy = fedcs(round_seconds=2.0, fraction=1.0)
    selection = strategy.select(jax.random.key(0), (), known([2.0, 1.9, 3.0, 2.1], [0, 0, 0, 1], 2))
    assert selection.ids[selection.mask].tolist() == [1]
    nobody = strategy.select(jax.random.key(0), (), known([2.0] * 4, [0] * 4, 2))
    assert not nobody.mask.any()


def test_a_client_silent_at_the_start_is_ranked_at_the_median():
    strategy = fedcs(round_seconds=3.0, fraction=1.0)
    now = known([0.0, 4.0, 2.0, 1.0, 2.5], [NEVER, 7, 7, 7, 7], 4, 7)
    select = jax.jit(strategy.select)
    selection = select(jax.random.key(0), (), now)
    assert selection.ids[0] == 3 and set(selection.ids[1:].tolist()) == {2, 0, 4}  # the median is 2.5 s
    assert selection.mask.all()
    nobody = select(jax.random.key(0), (), known([0.0] * 5, [NEVER] * 5, 4, 7))
    assert nobody.mask.all()


@pytest.mark.parametrize("n,k,fraction,expected", [
    (1000, 10, None, 100), (100, 10, None, 20), (12, 8, None, 12), (100, 5, 0.07, 7), (10, 3, 0.45, 5), (30, 3, 0.1, 3),
])  # fmt: skip
def test_the_number_of_candidates(n, k, fraction, expected):
    """With durations from the start, the last candidate is the fastest; any further client would be even faster."""
    key = jax.random.key(n)
    named = candidates_of(key, n, expected)
    seconds = np.ones(n)
    seconds[named] = 2.0 + np.arange(expected)[::-1]
    select = jax.jit(fedcs(round_seconds=1e6, fraction=fraction).select)
    selection = select(key, (), known(seconds, np.zeros(n), k))
    assert selection.mask.all() and selection.ids.tolist() == named[::-1][:k].tolist()


def test_what_it_buys():
    (request,) = fedcs().requests
    assert (request.kind, request.who, request.when.before_first_round) == ("seconds", ALL, True)
    assert fedcs().candidates is None


@pytest.mark.slow
def test_a_round_is_as_long_as_the_profile_says():
    """With durations from the start, a round lasts as long as the slowest selected client, and ends in time."""
    n, k = 10, 3
    speed = np.arange(1, n + 1) * 0.01
    timing = Timing(speed, np.full(n, 1e9), np.full(n, 1e9), np.zeros(n))
    settings = {
        "dataset": "synthetic:train_size=200,test_size=20,num_classes=4,image_size=4", "num_clients": n,
        "num_selected": k, "local_steps": 1, "batch_size": 10, "rounds": 6, "chunk": 6, "timing": timing,
    }  # fmt: skip
    algo = fedcs(round_seconds=0.55, fraction=0.6)
    result = fedjax_sel.run(fedjax_sel.Experiment.of(**settings, algo=algo))
    cohorts = result.cohorts[0]
    assert cohorts.max() <= 4 and (cohorts[:, 0] >= 0).all()  # ten examples of client i take 0.1 (i + 1) s
    np.testing.assert_allclose(result.seconds[0, 1:], 10 * speed[cohorts[1:].max(axis=1)], rtol=1e-3)
    with pytest.raises(UserError, match="--algo fedcs: it buys clients' durations; add --timing"):
        fedjax_sel.run(fedjax_sel.Experiment.of(**settings | {"timing": "none", "algo": algo}))


def test_too_few_candidates_are_rejected():
    now = known(np.ones(20), np.zeros(20), 5)
    with pytest.raises(UserError, match=r"fraction=0.1 of the 20 clients are 2 candidates, below the cohort size 5"):
        fedcs(fraction=0.1).select(jax.random.key(0), (), now)
