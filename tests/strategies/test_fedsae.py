"""FedSAE's selection: the law of its softmax, its equality with AFL, the greedy variant and the active rounds."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from fedjax_sel.errors import UserError
from fedjax_sel.strategies.facts import ALL, SELECTED
from fedjax_sel.strategies.fedsae import fedsae
from tests.strategies.hooks import env_of, info_of, now_of
from tests.strategies.laws import assert_law, without_replacement


def selections(strategy, losses, sizes, k, keys, round=0, available=None):
    """For one table of losses, or one a key."""
    env = env_of(sizes, k)

    def select(key, losses):
        return strategy.select(key, (), now_of(env, info_of(strategy.name, loss=losses), round, available))

    losses = jnp.broadcast_to(jnp.float32(losses), (len(keys), len(sizes)))
    return jax.device_get(jax.jit(jax.vmap(select))(keys, losses))


def keys(count, seed=0):
    return jax.random.split(jax.random.key(seed), count)


def twin_law(losses, sizes, k, temperature):
    """The probability of every cohort, by enumerating ordered draws."""
    weights = [math.exp(temperature * math.sqrt(n) * loss) for n, loss in zip(sizes, losses)]
    return without_replacement(weights, k)


@pytest.mark.parametrize("temperature,k", [(0.01, 2), (0.2, 3)])
def test_cohorts_follow_the_twins_law(temperature, k):
    losses, sizes = [2.3, 0.1, 1.5, 6.0, 0.7], [600, 300, 900, 400, 100]
    if temperature > 0.1:
        sizes = [s // 100 for s in sizes]
    selection = selections(fedsae(temperature=temperature), losses, sizes, k, keys(20_000))
    assert selection.weights is None and selection.mask.all() and selection.ids.dtype == np.int32
    assert_law(selection.ids, twin_law(losses, sizes, k, temperature))


@pytest.mark.parametrize("n,k", [(9, 4), (6, 6), (7, 1)])
def test_greedy_takes_the_largest_losses(n, k):
    rng = np.random.default_rng(n)
    losses = rng.permuted(np.tile(np.arange(n) / 3, (200, 1)), axis=1)
    found = selections(fedsae(variant="greedy"), losses, rng.integers(1, 50, n), k, keys(200)).ids
    for loss, ids in zip(losses.tolist(), found.tolist()):
        assert ids == sorted(range(n), key=lambda i: -loss[i])[:k]


def test_what_has_no_effect_is_refused():
    with pytest.raises(UserError, match=r"^fedsae: temperature=5 has no effect with variant=greedy; "):
        fedsae(variant="greedy", temperature=5)


@pytest.mark.parametrize("temperature", [1.0, 10.0, 1e5])
def test_equal_losses_stay_equal_beside_a_huge_one(temperature):
    """What is replaced for an infinite loss must not round away the noise that decides among the others."""
    ids = selections(fedsae(temperature=temperature), [1e6, *[2.3] * 11], [600] * 12, 4, keys(4000)).ids
    assert (ids == 0).any(axis=1).all()
    counts = np.bincount(ids.ravel(), minlength=12)[1:]
    assert counts.sum() == 3 * 4000 and stats.chisquare(counts).pvalue > 1e-4


def test_greedy_breaks_ties_at_random():
    ids = selections(fedsae(variant="greedy"), [1.0, 5.0, 1.0, 1.0, 0.0], [5] * 5, 2, keys(5000)).ids
    assert (ids[:, 0] == 1).all()
    found, counts = np.unique(ids[:, 1], return_counts=True)
    assert found.tolist() == [0, 2, 3] and stats.chisquare(counts).pvalue > 1e-4


@pytest.mark.parametrize("variant", ["softmax", "greedy"])
def test_cohorts_are_uniform_after_the_active_rounds(variant):
    strategy = fedsae(variant=variant, active_rounds=4, **({"temperature": 5.0} if variant == "softmax" else {}))
    losses, sizes = [0.0, 1.0, 2.0, 3.0, 40.0], [4, 4, 4, 9, 9]
    last = selections(strategy, losses, sizes, 2, keys(200), round=3).ids
    assert (np.sort(last, axis=1) == [3, 4]).mean() > 0.9
    after = selections(strategy, losses, sizes, 2, keys(20_000), round=4).ids
    assert_law(after, dict.fromkeys(itertools.combinations(range(5), 2), 0.1))


@pytest.mark.fast_cases(2)
@pytest.mark.parametrize("variant", ["softmax", "greedy"])
@pytest.mark.parametrize("there", [[0, 2, 5], [2], []])
def test_unavailable_clients_are_not_chosen(variant, there):
    available = jnp.isin(jnp.arange(7), jnp.array(there, jnp.int32))
    strategy = fedsae(variant=variant, active_rounds=2)
    for round in (0, 3):
        selection = selections(strategy, np.arange(7.0), [5] * 7, 3, keys(100), round, available)
        for ids, mask in zip(selection.ids, selection.mask):
            assert sorted(ids[mask]) == there and len(set(ids)) == 3


def test_what_it_buys():
    start, cohort = fedsae().requests
    assert (start.kind, start.who, start.when.before_first_round, start.when.rules) == ("loss", ALL, True, ())
    assert (cohort.kind, cohort.who, cohort.when.in_every_round) == ("loss", SELECTED, True)
    # With 3 active rounds, the answers of the third would be read by nobody.
    start, cohort = fedsae(active_rounds=3).requests
    assert [bool(cohort.when.due(jnp.int32(round))) for round in range(4)] == [True, True, False, False]
    (start,) = fedsae(active_rounds=1).requests
    assert start.when.before_first_round
