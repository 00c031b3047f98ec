"""TiFL against a NumPy twin of its Algorithm 2, and the law of its cohorts by enumeration."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import fedjax_sel
from fedjax_sel.errors import UserError
from fedjax_sel.strategies.contract import Selection
from fedjax_sel.strategies.facts import ALL, NEVER
from fedjax_sel.strategies.tifl import losses_of_tiers, tiers_of, tifl
from tests.strategies import hooks
from tests.strategies.hooks import env_of, info_of, now_of, outcome_of

DRAWS = 20_000


def known(sizes, k, rounds=20, round=0, available=None, **tables):
    return now_of(env_of(sizes, k, rounds), info_of("tifl", **tables), round, available)


def started(strategy, seconds, sizes, k, rounds=20, seed=9):
    return hooks.started(strategy, known(sizes, k, rounds, seconds=seconds, loss=np.zeros(len(seconds))), seed)


class Twin:
    """Algorithm 2 in plain loops: profiling, A_t of each tier, ChangeProbs, credits."""

    def __init__(self, seconds, sizes, num_tiers, interval, rounds, credits=None):
        n = len(seconds)
        self.tier = {}
        for rank, client in enumerate(sorted(range(n), key=lambda i: seconds[i])):
            self.tier[client] = next(t for t in range(num_tiers) if rank < math.ceil((t + 1) * n / num_tiers))
        self.m, self.interval, self.sizes = num_tiers, interval, sizes
        self.first = credits or -(-rounds // num_tiers)
        self.credits, self.probabilities = [self.first] * num_tiers, [1 / num_tiers] * num_tiers
        self.history, self.current = {}, 0

    def open(self, round, losses):
        if round % self.interval:
            return
        accuracies = []
        for tier in range(self.m):
            members = [i for i in self.tier if self.tier[i] == tier]
            total = sum(self.sizes[i] for i in members)
            accuracies.append(-sum(self.sizes[i] * np.float64(losses[i]) for i in members) / total)
        self.history[round] = accuracies
        if round >= self.interval and accuracies[self.current] <= self.history[round - self.interval][self.current]:
            paying = sorted((t for t in range(self.m) if self.credits[t] > 0), key=lambda t: accuracies[t])
            n = len(paying)
            self.probabilities = [0.0] * self.m
            for i, tier in enumerate(paying):
                self.probabilities[tier] = (n - i) / (n * (n + 1) / 2)

    def close(self, cohort):
        (self.current,) = {self.tier[int(i)] for i in cohort}
        assert self.credits[self.current] > 0 and self.probabilities[self.current] > 0
        self.credits[self.current] -= 1
        if sum(self.credits) == 0:
            self.credits, self.probabilities = [self.first] * self.m, [1 / self.m] * self.m


@pytest.mark.fast_cases(1)
@pytest.mark.parametrize("num_tiers,interval,credits", [(4, 2, None), (3, 3, 2), (5, 1, 3)])
def test_states_follow_the_twin(num_tiers, interval, credits):
    """Losses that rise as often as they fall, so that many tests of A_cur fail."""
    n, k, rounds = 17, 3, 24
    rng = np.random.default_rng(num_tiers)
    seconds, sizes = rng.uniform(1, 9, n), rng.integers(5, 50, n)
    strategy = tifl(num_tiers=num_tiers, interval=interval, credits=credits)
    observe, select, update = map(jax.jit, (strategy.observe, strategy.select, strategy.update))
    changes = 0
    for game in range(4):
        state = started(strategy, seconds, sizes, k, rounds, seed=game)
        twin = Twin(seconds, sizes, num_tiers, interval, rounds, credits)
        assert np.asarray(state.tiers).tolist() == [twin.tier[i] for i in range(n)]
        for round in range(rounds):
            losses = rng.uniform(0.5, 2, n).astype(np.float32)
            now = known(sizes, k, rounds, round, seconds=seconds, loss=losses)
            before = list(twin.probabilities)
            state = observe(state, now)
            twin.open(round, losses)
            changes += before != twin.probabilities
            np.testing.assert_allclose(state.probabilities, twin.probabilities, rtol=1e-6)
            selection = select(jax.random.key(100 * game + round), state, now)
            assert selection.mask.all() and len(set(selection.ids.tolist())) == k
            state = update(state, now, selection, outcome_of(selection.mask))
            twin.close(selection.ids)
            assert state.credits.tolist() == twin.credits
    assert changes > 4


def law_of(tier_of, probabilities, credits, k, available):
    """The probability of each cohort: a tier with credits, its clients uniformly, then the next faster, then slower."""
    m = len(probabilities)
    is_open = [any(available[i] for i, own in enumerate(tier_of) if own == tier) for tier in range(m)]
    paying = [p if c > 0 and here else 0.0 for p, c, here in zip(probabilities, credits, is_open)]
    law = {}
    for tier, p in enumerate(paying):
        branches, left = {(): p / sum(paying)}, k
        for t in [*range(tier, -1, -1), *range(tier + 1, m)]:
            members = [i for i, own in enumerate(tier_of) if own == t and available[i]]
            subsets = list(itertools.combinations(members, min(left, len(members))))
            left -= min(left, len(members))
            branches = {a + b: q / len(subsets) for a, q in branches.items() for b in subsets}
        for cohort, q in branches.items():
            key = tuple(sorted(cohort))
            law[key] = law.get(key, 0.0) + q
    return {cohort: q for cohort, q in law.items() if q > 0}


@pytest.mark.fast_cases(2)
@pytest.mark.parametrize("k,absent", [
    (2, ()), (4, ()), (2, (0, 1, 5)), (3, (4, 5, 8)), (1, ()),
], ids=["within", "fill", "few", "none", "one"])  # fmt: skip
def test_cohorts_have_the_enumerated_law(k, absent):
    """Nine clients in three tiers; `few` leaves a tier with one client, and `none` (tier 1) with none."""
    tier_of = [0, 0, 2, 2, 1, 1, 0, 2, 1]
    seconds = np.array([1.0, 1.1, 5.0, 6.0, 3.0, 3.5, 0.9, 7.0, 2.5])
    strategy = tifl(num_tiers=3)
    probabilities = [0.5, 0.2, 0.3]
    state = started(strategy, seconds, np.full(9, 5), k)
    assert state.tiers.tolist() == tier_of
    available = ~np.isin(np.arange(9), absent)
    now = known(np.full(9, 5), k, round=3, available=jnp.asarray(available) if absent else None)
    select = jax.jit(jax.vmap(lambda key, state: strategy.select(key, state, now), (0, None)))
    for credits in ([3, 1, 2], [0, 1, 2]):
        state = state._replace(probabilities=jnp.float32(probabilities), credits=jnp.int32(credits))
        found = select(jax.random.split(jax.random.key(0), DRAWS), state)
        assert np.asarray(found.mask).all()
        law = law_of(tier_of, probabilities, credits, k, available)
        cohorts, counts = np.unique(np.sort(found.ids, axis=1), axis=0, return_counts=True)
        seen = {tuple(cohort): int(count) for cohort, count in zip(cohorts.tolist(), counts)}
        assert set(seen) <= set(law)
        if len(law) > 1:
            expected = [DRAWS * q for q in law.values()]
            assert stats.chisquare([seen.get(cohort, 0) for cohort in law], expected).pvalue > 1e-4


def test_a_tier_that_nobody_reaches_keeps_no_other_from_new_credits():
    strategy = tifl(num_tiers=3, credits=2)
    state = started(strategy, np.arange(6.0), np.full(6, 5), 2)
    now = known(np.full(6, 5), 2, available=jnp.array([True, True, False, False, True, True]))
    select, update, found = jax.jit(strategy.select), jax.jit(strategy.update), []
    for round in range(40):
        selection = select(jax.random.key(round), state, now)
        state = update(state, now, selection, outcome_of(selection.mask))
        found.append(int(state.current))
        if round % 4 == 3:
            assert state.credits.tolist() == [2, 2, 2] and sorted(found[-4:]) == [0, 0, 2, 2]


def test_without_credits_the_tiers_that_are_open_now_are_equal():
    strategy = tifl(num_tiers=3, credits=2)
    state = started(strategy, np.arange(6.0), np.full(6, 5), 2)._replace(credits=jnp.int32([0, 1, 0]))
    now = known(np.full(6, 5), 2, available=jnp.array([True, True, False, False, True, True]))
    found = {int(state.tiers[strategy.select(jax.random.key(i), state, now).ids[0]]) for i in range(20)}
    assert found == {0, 2}


def test_the_tier_of_the_first_report_pays_where_empty_places_come_first():
    """Asynchronous rounds can have fewer reports than places."""
    strategy = tifl(num_tiers=3, credits=2)
    state = started(strategy, np.arange(6.0), np.full(6, 5), 2)
    selection = Selection(jnp.array([0, 5]), None, jnp.array([False, True]))
    after = strategy.update(state, known(np.full(6, 5), 2), selection, outcome_of(selection.mask))
    assert after.credits.tolist() == [2, 2, 1]


def test_a_round_without_clients_costs_no_tier():
    strategy = tifl(num_tiers=3, credits=2)
    state = started(strategy, np.arange(6.0), np.full(6, 5), 2)._replace(current=jnp.int32(2))
    now = known(np.full(6, 5), 2, available=jnp.zeros(6, bool))
    selection = strategy.select(jax.random.key(0), state, now)
    after = strategy.update(state, now, selection, outcome_of(selection.mask))
    assert after.credits.tolist() == [2, 2, 2] and after.current == 2


def test_absent_clients_count_with_their_last_loss():
    strategy = tifl(num_tiers=2, interval=5)
    sizes = [10, 30, 20, 20]
    state = started(strategy, np.arange(4.0), sizes, 1)
    losses = [1.0, 2.0, 9.0, 3.0], [0, 5, NEVER, 0]
    state = strategy.observe(state, known(sizes, 1, round=5, loss=losses))
    np.testing.assert_allclose(state.losses, [(10 * 1 + 30 * 2) / 40, 3.0])


def test_a_tier_without_a_measured_loss_is_not_the_best():
    losses, tiers = jnp.float32([1, 0, 4]), jnp.int32([0, 1, 2])
    np.testing.assert_array_equal(losses_of_tiers(losses, jnp.float32([10, 0, 30]), tiers, 3), [1, 4, 4])
    np.testing.assert_array_equal(losses_of_tiers(losses, jnp.zeros(3), tiers, 3), [0, 0, 0])


def test_tiers_have_equal_sizes_and_random_ties():
    seconds, ages = jnp.array([4.0, 1.0, 0.0, 2.0, 3.0, 5.0, 6.0]), jnp.int32([0, 0, NEVER, 0, 0, 0, 0])
    tiers = tiers_of(seconds, ages, jnp.arange(7), 3)
    assert tiers.tolist() == [1, 0, 2, 0, 0, 1, 2]  # the third client did not answer
    shuffled = jax.vmap(lambda key: tiers_of(jnp.ones(7), jnp.zeros(7, jnp.int32), jax.random.permutation(key, 7), 3))
    found = np.asarray(shuffled(jax.random.split(jax.random.key(0), 3000)))
    assert (np.sort(found, axis=1) == [0, 0, 0, 1, 1, 2, 2]).all()
    np.testing.assert_allclose((found == 0).mean(axis=0), 3 / 7, atol=0.05)


def test_it_buys_durations_once_and_losses_every_interval():
    profile, loss = tifl(interval=4).requests
    assert (profile.kind, profile.who) == ("seconds", ALL)
    assert profile.when.before_first_round and not profile.when.rules
    assert (loss.kind, loss.who) == ("loss", ALL)
    assert [t for t in range(10) if bool(loss.when.due(jnp.int32(t)))] == [0, 4, 8]


@pytest.mark.slow
def test_a_run_waits_for_one_tier_only():
    """Each cohort is within a tier of the devices, and a round of the slow tier takes longest."""
    config = fedjax_sel.Config().replace(
        dataset="synthetic:train_size=200,test_size=20,num_classes=4,image_size=4", num_clients=10, num_selected=2,
        local_steps=1, rounds=12, chunk=12, algo="tifl", algo_args={"interval": 3}, timing="lognormal",
    )  # fmt: skip
    result = fedjax_sel.run(config)
    each = [frozenset(cohort) for cohort in result.cohorts[0].tolist()]
    assert len(set(each)) <= 5 and all(a == b or not a & b for a in each for b in each)
    with pytest.raises(UserError, match="--algo tifl: it buys clients' durations; add --timing"):
        fedjax_sel.run(config.replace(timing="none"))
