"""Power-of-choice against a slow NumPy twin, and the laws of its candidates."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_sel.errors import UserError
from fedjax_sel.strategies.facts import CANDIDATES, NEVER, SELECTED
from fedjax_sel.strategies.pow_d import pow_d
from tests.strategies.hooks import env_of, info_of, now_of
from tests.strategies.laws import assert_law, without_replacement

NEW = jnp.zeros((9,), bool)  # nobody was selected: the state of `rpow-d`
ANSWERED = ["pow-d", "cpow-d", "train-first"]  # whose candidates are asked


def table(strategy, values, ages):
    return info_of("pow_d", **{strategy.requests[0].kind: (values, ages)})


def answered_rounds(variant, n, k, d, available=None, games=200, rounds=3, **parameters):
    """Games of several rounds in which candidates answer random losses; leaves [games, rounds, ...]."""
    strategy = pow_d(variant=variant, num_candidates=d, **parameters)
    sizes = np.arange(1, n + 1) * 7
    losses = np.random.default_rng(n).permuted(np.tile(np.arange(n), (games, rounds, 1)), axis=2).astype(np.float32)

    def game(key, losses):
        env, info, history = env_of(sizes, k), table(strategy, np.zeros(n), np.full(n, NEVER)), []
        for round in range(rounds):
            key_candidates, key_select = jax.random.split(jax.random.fold_in(key, round))
            named = strategy.candidates(key_candidates, (), now_of(env, info, round, available))
            asked = jnp.zeros(n, bool).at[named].set(True)
            if available is not None:
                asked &= available
            value, age = getattr(info, strategy.requests[0].kind)
            info = table(strategy, jnp.where(asked, losses[round], value), jnp.where(asked, 0, age))
            history.append((named, strategy.select(key_select, (), now_of(env, info, round, available))))
            age = getattr(info, strategy.requests[0].kind).age
            info = table(strategy, getattr(info, strategy.requests[0].kind).value, jnp.minimum(age + 1, NEVER))
        return history

    played = jax.device_get(jax.jit(jax.vmap(game))(jax.random.split(jax.random.key(n), games), losses))
    return losses, played


def twin(named, losses, k, available=None):
    """The K candidates with the largest losses, best first."""
    there = [i for i in named if available is None or available[i]]
    return sorted(there, key=lambda i: -np.float64(losses[i]))[:k]


@pytest.mark.fast_cases(3)
@pytest.mark.parametrize("variant,n,k,d", [
    ("pow-d", 9, 3, 5), ("pow-d", 6, 1, 2), ("pow-d", 5, 5, 5), ("cpow-d", 7, 2, 6), ("train-first", 8, 3, 4),
])  # fmt: skip
def test_cohorts_equal_the_twins(variant, n, k, d):
    losses, played = answered_rounds(variant, n, k, d)
    for round, (named, selection) in enumerate(played):
        assert named.shape == (200, d) and named.dtype == np.int32 and selection.ids.dtype == np.int32
        assert selection.mask.all() and selection.weights is None
        for game in range(200):
            assert len(set(named[game].tolist())) == d
            assert selection.ids[game].tolist() == twin(named[game], losses[game, round], k)
            rest = set(named[game].tolist()) - set(selection.ids[game].tolist())
            worst = losses[game, round, selection.ids[game]].min()
            assert all(losses[game, round, i] <= worst for i in rest)


@pytest.mark.fast_cases(5)
@pytest.mark.parametrize("variant", ANSWERED)
@pytest.mark.parametrize("there", [(1, 2, 4, 5, 6, 7), (0, 3, 6), (2, 5), ()])
def test_unavailable_candidates_are_never_chosen(variant, there):
    available = np.isin(np.arange(8), there)
    losses, played = answered_rounds(variant, 8, 3, 4, available=jnp.asarray(available), games=50)
    for round, (named, selection) in enumerate(played):
        for game in range(50):
            ids, mask = selection.ids[game], selection.mask[game]
            assert available[named[game]].sum() == min(4, len(there))
            assert mask.sum() == min(3, len(there)) and len(set(ids.tolist())) == 3
            assert ids[mask].tolist() == twin(named[game], losses[game, round], 3, available)


def test_an_answer_of_somebody_who_left_does_not_count():
    strategy = pow_d()
    available = jnp.array([True, True, True, False, False])
    now = now_of(env_of([5] * 5, 2), table(strategy, np.arange(5), np.zeros(5)), 0, available)
    selection = strategy.select(jax.random.key(0), (), now)
    assert selection.ids.tolist() == [2, 1] and selection.mask.all()


@pytest.mark.parametrize("available", [None, np.array([True, False, True, True, True])])
def test_candidates_are_drawn_by_importance_without_replacement(available):
    strategy, sizes = pow_d(num_candidates=3), np.array([10, 40, 30, 15, 5])
    info = table(strategy, np.zeros(5), np.full(5, NEVER))
    now = now_of(env_of(sizes, 2), info, 0, None if available is None else jnp.asarray(available))
    draw = jax.jit(jax.vmap(lambda key: strategy.candidates(key, (), now)))
    rows = np.asarray(draw(jax.random.split(jax.random.key(1), 20_000)))
    assert_law(rows, without_replacement(sizes if available is None else sizes * available, 3))


def test_reported_losses_follow_the_law_of_the_candidates():
    """rpow-d: each set of candidates, by its probability, gives its K largest; a client that never trained is first."""
    sizes, k, d = np.array([10, 40, 30, 15, 5, 20]), 2, 4
    values, ages = np.array([0.3, 2.0, 0.1, 9.0, 0.7, 1.0]), np.array([0, 4, 1, NEVER, 7, 2])
    strategy = pow_d(variant="rpow-d", num_candidates=d)
    now = now_of(env_of(sizes, k), table(strategy, np.where(ages == NEVER, 0.0, values), ages), 5)
    select = jax.jit(jax.vmap(lambda key: strategy.select(key, NEW[:6], now)))
    selection = select(jax.random.split(jax.random.key(3), 20_000))
    law = dict.fromkeys(itertools.combinations(range(6), k), 0.0)
    for named, probability in without_replacement(sizes, d).items():
        law[tuple(sorted(sorted(named, key=lambda i: -values[i])[:k]))] += probability
    assert np.asarray(selection.mask).all()
    assert_law(np.asarray(selection.ids), law)


@pytest.mark.fast_cases(1)
@pytest.mark.parametrize("n,k", [(7, 2), (6, 1), (5, 5)])
def test_reported_losses_over_several_rounds(n, k):
    """rpow-d with all as candidates, against a twin with infinite first values."""
    games, rounds = 200, 8
    strategy = pow_d(variant="rpow-d", num_candidates=n)
    reports = np.random.default_rng(n).uniform(0, 5, size=(games, rounds, n)).astype(np.float32)

    def game(key, reports):
        def step(carry, round):
            value, age = carry
            now = now_of(env_of([5] * n, k), table(strategy, value, age), round)
            selection = strategy.select(jax.random.fold_in(key, round), NEW[:n], now)
            value = value.at[selection.ids].set(reports[round, selection.ids])
            return (value, jnp.minimum(age.at[selection.ids].set(0) + 1, NEVER)), selection.ids

        start = jnp.zeros(n), jnp.full(n, NEVER)
        return jax.lax.scan(step, start, jnp.arange(rounds))[1]

    cohorts = np.asarray(jax.jit(jax.vmap(game))(jax.random.split(jax.random.key(4), games), reports))
    for history, reported in zip(cohorts, reports):
        value = np.full(n, np.inf)
        for round, ids in enumerate(history):
            np.testing.assert_array_equal(np.sort(value[ids]), np.sort(value)[n - k :])
            value[ids] = reported[round, ids]
        assert set(history[: -(-n // k)].reshape(-1).tolist()) == set(range(n))


@pytest.mark.slow
@pytest.mark.parametrize("there", [(1, 4, 5), (3,), ()])
def test_unavailable_clients_do_not_report(there):
    strategy = pow_d(variant="rpow-d", num_candidates=4)
    info = table(strategy, np.arange(6), [0, 0, NEVER, NEVER, 0, 0])
    now = now_of(env_of([5] * 6, 2), info, 0, jnp.isin(jnp.arange(6), jnp.array(there, jnp.int32)))
    for seed in range(30):
        selection = strategy.select(jax.random.key(seed), NEW[:6], now)
        assert selection.ids[selection.mask].tolist() == sorted(there, reverse=True)[:2]


@pytest.mark.parametrize("variant", ["pow-d", "rpow-d"])
def test_equal_losses_are_ties_at_random(variant):
    strategy = pow_d(variant=variant, num_candidates=6)
    now = now_of(env_of([5] * 6, 2), table(strategy, np.ones(6), 0))
    select = jax.jit(jax.vmap(lambda key: strategy.select(key, NEW[:6], now).ids))
    pairs = {pair: 1 / 15 for pair in itertools.combinations(range(6), 2)}
    assert_law(np.asarray(select(jax.random.split(jax.random.key(5), 20_000))), pairs)


@pytest.mark.parametrize("variant,n,k,expected", [
    ("pow-d", 100, 5, 10), ("pow-d", 100, 10, 20), ("pow-d", 7, 5, 7), ("train-first", 100, 5, 10),
    ("train-first", 100, 20, 20), ("train-first", 8, 3, 8),
])  # fmt: skip
def test_the_usual_number_of_candidates(variant, n, k, expected):
    candidates = pow_d(variant=variant).candidates
    assert jax.eval_shape(candidates, jax.random.key(0), (), now_of(env_of([5] * n, k))).shape == (expected,)


@pytest.mark.parametrize("variant,kind,who,options", [
    ("pow-d", "loss", CANDIDATES, ()),
    ("cpow-d", "loss", CANDIDATES, (("batch_size", 16),)),
    ("rpow-d", "training_loss", SELECTED, ()),
    ("train-first", "training_loss", CANDIDATES, (("statistic", "last-pass"),)),
])  # fmt: skip
def test_what_it_buys(variant, kind, who, options):
    strategy = pow_d(variant=variant, **({"batch_size": 16} if variant == "cpow-d" else {}))
    (request,) = strategy.requests
    assert (request.kind, request.who, request.options) == (kind, who, options)
    assert request.when.in_every_round and not request.when.before_first_round
    assert (strategy.candidates is not None) == (who == CANDIDATES)
    assert not strategy.with_replacement


def test_bad_parameters_are_refused():
    with pytest.raises(UserError, match=r"^pow_d: batch_size=16 has no effect with variant=pow-d; set variant=cpow-d$"):
        pow_d(batch_size=16)
    for variant in ("pow-d", "rpow-d"):
        for count, problem in ((3, "is below the cohort size 4"), (1000, "exceeds the 9 clients; give at most 9")):
            strategy = pow_d(variant=variant, num_candidates=count)
            now = now_of(env_of([5] * 9, 4), table(strategy, np.zeros(9), 0))
            with pytest.raises(UserError, match=f"pow_d: num_candidates={count} {problem}"):
                (strategy.candidates or strategy.select)(jax.random.key(0), NEW[:9], now)
