"""Oort against a slow NumPy twin that follows its algorithm step by step, and the laws of its draws."""

import inspect
import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedjax_sel
from fedjax_sel.errors import UserError
from fedjax_sel.strategies.contract import Selection
from fedjax_sel.strategies.facts import ALL, NEVER, SELECTED, Request, at_start
from fedjax_sel.strategies.oort import known_or_median, oort
from tests.strategies import hooks
from tests.strategies.hooks import env_of, info_of, now_of, outcome_of
from tests.strategies.laws import assert_law, without_replacement


class Twin:
    """Float64 loops. It does not draw: it tells who may be drawn, and how likely.

    With `durations`, its pacer is that of the authors' code (oort.py, `pacer` and `getTopK`).
    """

    def __init__(
        self, sizes, decay=0.95, cap=0.98, cut=0.7, limit=None, least=0.2,
        durations=None, threshold=30.0, step=20, delta=5.0, beta=0.0,
    ):  # fmt: skip
        n = len(sizes)
        self.durations, self.threshold, self.step, self.delta = durations, threshold, step, delta
        self.history, self.exploited, self.reported, self.moves = [], [], [], []
        self.sizes, self.cap, self.cut, self.limit, self.decay, self.least = sizes, cap, cut, limit, decay, least
        self.utility, self.last, self.count, self.epsilon = [0.0] * n, [0] * n, [0] * n, 0.9
        self.beta, self.staleness = beta, [[] for _ in sizes]
        self.factor = [1.0] * n
        self.exploring = True

    def left_out(self):
        """Whom `max_participations` excludes; None where the choice is between equal counts."""
        n = len(self.sizes)
        if self.limit is None:
            return set()
        over = sorted((i for i in range(n) if self.count[i] > self.limit), key=lambda i: -self.count[i])
        most = math.floor(0.3 * n + 1e-9)
        if len(over) > most and self.count[over[most - 1]] == self.count[over[most]]:
            return None
        return set(over[:most])

    def scores(self, tried, t):
        lags = {i: self.staleness[i][-5:] or [0] for i in tried}
        utility = {i: self.utility[i] / (sum(lags[i]) / len(lags[i]) + 1) ** self.beta for i in tried}
        ordered = sorted(utility.values())
        clip = ordered[min(int(len(ordered) * self.cap + 1e-9), len(ordered) - 1)]
        spread = max(ordered[-1] - ordered[0], 1e-4)
        return {
            i: ((min(utility[i], clip) - ordered[0]) / spread + math.sqrt(0.1 * math.log(t) / self.last[i]))
            * self.factor[i]
            for i in tried
        }

    def plan(self, k, t, available):
        """How many are exploited and explored, from whom, and the scores."""
        n = len(self.sizes)
        if self.durations is not None:
            self.pace(t)
        self.now = max(self.epsilon * self.decay, self.least) if self.exploring else 0.0
        welcome = [i for i in range(n) if available[i] and i not in self.left_out()]
        tried = [i for i in welcome if self.count[i] > 0]
        untried = [i for i in range(n) if available[i] and self.count[i] == 0]
        exploit = min(math.floor(k * (1 - self.now) + 1e-4), len(tried))
        scores = self.scores(tried, t) if tried else {}
        marginal = sorted(scores.values(), reverse=True)[exploit - 1] if exploit else 0.0
        near = {i for i in tried if scores[i] >= self.cut * marginal - 1e-5}
        explore = min(len(untried), k - exploit)
        reward = {i: 1 / self.durations[i] if self.durations else self.sizes[i] * self.factor[i] for i in untried}
        pool_size = min(math.floor(5 * explore), len(untried))
        bound = sorted(reward.values(), reverse=True)[pool_size - 1] if pool_size else 0.0
        pool = {i for i in untried if reward[i] >= bound}
        return exploit, near, explore, pool, scores, welcome

    def pace(self, t):
        reported = [self.utility[i] for i in self.exploited if i in self.reported]
        self.history.append(sum(reported) / max(len(reported), 1))
        if t >= 2 * self.step and t % self.step == 0:
            before, now = sum(self.history[-2 * self.step : -self.step]), sum(self.history[-self.step :])
            old = self.threshold
            if abs(now - before) <= before * 0.1:
                self.threshold = min(100.0, self.threshold + self.delta)
            elif abs(now - before) >= before * 5:
                self.threshold = max(self.delta, self.threshold - self.delta)
            self.moves.append(self.threshold - old)
        n, preferred = len(self.sizes), math.inf
        if self.threshold < 100:
            preferred = sorted(self.durations)[min(int(n * self.threshold / 100), n - 1)]
        self.factor = [(preferred / t_i) ** 2 if t_i > preferred else 1.0 for t_i in self.durations]

    def update(self, cohort, losses, t, staleness=None):
        if all(c > 0 for c in self.count):
            self.exploring = False
        self.epsilon = self.now if self.exploring else 0.0
        for i in cohort:
            self.utility[i], self.last[i] = self.sizes[i] * float(losses[i]), t
            self.count[i] += 1
            self.staleness[i].append(0 if staleness is None else staleness[i])


def known(env, losses, ages=0, round=0, available=None):
    return now_of(env, info_of("oort", training_loss=(losses, ages)), round, available)


def begin(strategy, sizes, k, durations=None):
    """The environment, and the state of the first round; `durations` [N] are bought before it."""
    env = env_of(sizes, k, has_clock=True)
    return env, hooks.started(strategy, now_of(env, None if durations is None else info_of("oort", seconds=durations)))


def slowness_of(strategy, env, state):
    """The system factors with which `select` multiplies."""
    return inspect.getclosurevars(strategy.select).nonlocals["slowness"](state, env.sizes.astype(jnp.float32))


def play(strategy, sizes, k, losses, games, seed=0, available=None, durations=None, seconds=None, late=False,
         staleness=0):  # fmt: skip
    """Rounds of `losses` [T, N]: ids, masks [games, T, K], and the states and system factors after each round.

    With a clock, `seconds` [T, N] are those of reports; `late` [T, N] marks reports that do not count.
    """
    env, state = begin(strategy, sizes, k, durations)
    everyone = jnp.zeros(len(losses)) if available is None else jnp.asarray(available)
    seconds, late, staleness = (
        jnp.broadcast_to(x, np.shape(losses)) for x in (0.0 if seconds is None else seconds, late, staleness)
    )

    def game(key):
        def one(state, given):
            round, loss, there, own, too_late, lags = given
            there = None if available is None else there
            now = known(env, loss, 0, round, there)
            selection = strategy.select(jax.random.fold_in(key, round), state, now)
            reported = selection.mask & ~too_late[selection.ids]
            age = jnp.full(len(sizes), 3).at[jnp.where(reported, selection.ids, 99)].set(0, mode="drop")
            own = jnp.where(reported, own[selection.ids], 0.0)
            outcome = outcome_of(reported, seconds=own, staleness=lags[selection.ids])
            state = strategy.update(state, known(env, loss, age, round, there), selection, outcome)
            return state, (selection.ids, selection.mask, state, slowness_of(strategy, env, state))

        rounds = jnp.arange(len(losses), dtype=jnp.int32)
        return jax.lax.scan(one, state, (rounds, jnp.float32(losses), everyone, seconds, late, staleness))[1]

    return jax.device_get(jax.jit(jax.vmap(game))(jax.random.split(jax.random.key(seed), games)))


@pytest.mark.fast_cases(1)
@pytest.mark.parametrize(
    "hyper,twin,share",
    [
        ({}, {}, None),
        ({"preset": "paper"}, {"decay": 0.98, "cap": 0.95, "cut": 0.95, "limit": 10}, None),
        ({"exploration_min": 0.0}, {"least": 0.0}, None),
        ({"max_participations": 4, "cap": 0.5}, {"limit": 4, "cap": 0.5}, None),
        ({}, {}, 0.4),
        ({"staleness_discount": 0.5}, {"beta": 0.5}, None),
    ],
)
def test_thirty_rounds_follow_the_twin(hyper, twin, share):
    n, k, rounds, games = 30, 4, 30, 40
    rng = np.random.default_rng(5)
    sizes = rng.permutation(np.arange(10, 10 + n))
    losses = rng.uniform(0.1, 3, (rounds, n)).astype(np.float32)
    available = None if share is None else rng.uniform(size=(rounds, n)) < share
    staleness = rng.integers(0, 9, (rounds, n))
    settings = {"available": available, "staleness": staleness}
    all_ids, all_masks, states, _ = play(oort(**hyper), sizes, k, losses, games, **settings)
    exploited_rounds, filled, unclear = 0, 0, 0
    for game in range(games):
        reference = Twin(sizes.tolist(), **twin)
        for round in range(rounds):
            t, there = round + 1, np.ones(n, bool) if available is None else available[round]
            ids, mask = all_ids[game, round], all_masks[game, round]
            cohort = ids[mask].tolist()
            assert len(set(ids.tolist())) == k and len(cohort) == min(k, there.sum()) and there[cohort].all()
            if reference.left_out() is None:  # the method's choice among equals: nothing to compare it with
                unclear += 1
                reference.now = max(reference.epsilon * reference.decay, reference.least) * reference.exploring
            else:
                exploit, near, explore, pool, _, welcome = reference.plan(k, t, there)
                assert set(cohort[:exploit]) <= near
                assert set(cohort[exploit : exploit + explore]) <= pool
                rest = cohort[exploit + explore :]
                assert set(rest) <= set(welcome) or set(welcome) <= set(cohort)
                exploited_rounds += exploit > 0
                filled += len(rest)
            reference.update(cohort, losses[round], t, staleness[round])
            state = jax.tree.map(lambda leaf, g=game, r=round: leaf[g, r], states)
            np.testing.assert_allclose(state.utilities, reference.utility, rtol=1e-6)
            assert state.last.tolist() == reference.last and state.count.tolist() == reference.count
            assert state.exploration == pytest.approx(reference.epsilon, rel=1e-5)
    assert exploited_rounds > 10 * games and unclear < 5 * games
    assert filled > 0 or "max_participations" not in hyper
    assert all(c > 0 for c in reference.count) or share is not None  # exploration has come to its end


@pytest.mark.fast_cases(1)
@pytest.mark.parametrize(
    "threshold,delta,growth,moves",
    [
        (30, 10.0, [1, 1, 10, 10, 10, 40, 40, 40], {10, -10, 0}),  # flat: q rises; tenfold: q falls; fourfold: it stays
        (95, 20.0, [1] * 8, {5, 0}),  # up to 100: T is infinite
        (30, 20.0, 10.0 ** np.arange(8), {-10, 0}),  # down to Delta
    ],
)
def test_the_clock_follows_the_twin(threshold, delta, growth, moves):
    n, k, rounds, games, step = 30, 6, 32, 5, 4
    rng = np.random.default_rng(7)
    sizes = rng.permutation(np.arange(10, 10 + n))
    losses = np.float32(rng.uniform(0.95, 1.05, (rounds, n)) * np.repeat(growth, step)[:, None])
    seconds = rng.lognormal(0, 1, (rounds + 1, n)).astype(np.float32)  # the first row is bought
    late = rng.uniform(size=(rounds, n)) < 0.2
    clock = {"system": "clock", "round_threshold": threshold, "pacer_step": step, "pacer_delta": delta}
    strategy = oort(**clock, exploration=0.5, exploration_min=0.3)
    all_ids, _, states, slowness = play(
        strategy, sizes, k, losses, games, durations=seconds[0], seconds=seconds[1:], late=late
    )  # fmt: skip
    seen = set()
    for game in range(games):
        own = {"durations": seconds[0].tolist(), "threshold": threshold, "step": step, "delta": delta}
        twin = Twin(sizes.tolist(), least=0.3, **own)
        twin.epsilon = 0.5
        for round in range(rounds):
            ids = all_ids[game, round].tolist()
            exploit, near, explore, pool, _, _ = twin.plan(k, round + 1, [True] * n)
            assert set(ids[:exploit]) <= near and set(ids[exploit : exploit + explore]) <= pool
            if round:  # the state before this selection
                assert states.pacer.percentile[game, round - 1] == twin.threshold
                np.testing.assert_allclose(slowness[game, round - 1], twin.factor, rtol=1e-5)
            cohort = [i for i in ids if not late[round, i]]
            twin.exploited, twin.reported = ids[:exploit], cohort
            twin.update(cohort, losses[round], round + 1)
            for i in cohort:
                twin.durations[i] = float(seconds[round + 1, i])
            np.testing.assert_allclose(states.utilities[game, round], twin.utility, rtol=1e-6)
            np.testing.assert_array_equal(states.pacer.durations[game, round], np.float32(twin.durations))
        seen |= set(twin.moves)
    assert seen == moves


def mid_game(sizes, k, utilities, last, count, exploration, durations=None, **hyper):
    strategy = oort(**hyper)
    env, state = begin(strategy, sizes, k, durations)
    state = state._replace(
        utilities=jnp.float32(utilities),
        last=jnp.int32(last),
        count=jnp.int32(count),
        exploration=jnp.float32(exploration),
    )
    return strategy, env, state


def draw(strategy, env, state, round, count=20_000, available=None):
    now = known(env, np.zeros(env.num_clients), 0, round, available)
    select = jax.jit(jax.vmap(lambda key: strategy.select(key, state, now)))
    return jax.device_get(select(jax.random.split(jax.random.key(3), count)))


@pytest.mark.slow
def test_exploited_by_score_and_explored_by_size():
    # K = 4, eps = 0.5: 2 of the 5 tried, 2 of the 4 untried.
    sizes, k, t = [10, 20, 30, 40, 50, 10, 20, 30, 40], 4, 7
    utilities, last = [40.0, 100.0, 75.0, 90.0, 20.0, 0, 0, 0, 0], [3, 6, 2, 4, 5, 0, 0, 0, 0]
    strategy, env, state = mid_game(sizes, k, utilities, last, [1] * 5 + [0] * 4, 0.5 / 0.95)
    twin = Twin(sizes)
    twin.utility, twin.last, twin.count, twin.epsilon = utilities, last, [1] * 5 + [0] * 4, 0.5 / 0.95
    exploit, near, explore, pool, scores, _ = twin.plan(k, t, [True] * 9)
    assert (exploit, explore) == (2, 2) and near == {1, 2, 3} and pool == {5, 6, 7, 8}
    selection = draw(strategy, env, state, t - 1)
    assert selection.weights is None and selection.mask.all() and selection.ids.dtype == np.int32
    assert_law(selection.ids[:, :2], without_replacement({i: scores[i] for i in near}, 2))
    assert_law(selection.ids[:, 2:], without_replacement({i: sizes[i] for i in pool}, 2))


@pytest.mark.slow
def test_the_first_cohort_is_of_the_five_k_largest_by_size():
    sizes = list(range(1, 13))
    strategy = oort()
    ids = draw(strategy, *begin(strategy, sizes, 2), 0).ids
    assert_law(ids, without_replacement({i: sizes[i] for i in range(2, 12)}, 2))


@pytest.mark.slow
def test_the_clock_prefers_fast_clients():
    # T is the second of nine durations, 1 s: clients 1 to 4 lose score; the unexplored have 1 / t_i.
    sizes, k, t = [10, 20, 30, 40, 50, 10, 20, 30, 40], 4, 7
    durations = [0.5, 1.25, 1.5, 2.0, 8.0, 1.0, 2.0, 4.0, 8.0]
    utilities, last = [40.0, 100.0, 75.0, 90.0, 20.0, 0, 0, 0, 0], [3, 6, 2, 4, 5, 0, 0, 0, 0]
    hyper = {"durations": durations, "system": "clock", "round_threshold": 15}
    strategy, env, state = mid_game(sizes, k, utilities, last, [1] * 5 + [0] * 4, 0.5 / 0.95, **hyper)
    factor = [1, (1 / 1.25) ** 2, (1 / 1.5) ** 2, 1 / 4, 1 / 64]
    np.testing.assert_allclose(slowness_of(strategy, env, state)[:5], factor, rtol=1e-6)
    twin = Twin(sizes, durations=durations, threshold=15)
    twin.utility, twin.last, twin.count, twin.epsilon = utilities, last, [1] * 5 + [0] * 4, 0.5 / 0.95
    exploit, near, explore, pool, scores, _ = twin.plan(k, t, [True] * 9)
    assert (exploit, explore) == (2, 2) and len(near) > 2 and pool == {5, 6, 7, 8}
    ids = draw(strategy, env, state, t - 1).ids
    assert_law(ids[:, :2], without_replacement({i: scores[i] for i in near}, 2))
    assert_law(ids[:, 2:], without_replacement({i: 1 / durations[i] for i in pool}, 2))


@pytest.mark.slow
@pytest.mark.parametrize("utilities", [[0.0] * 6, [7.0] * 6, [1e9] * 6])
def test_equal_utilities_give_uniform_cohorts(utilities):
    strategy, env, state = mid_game([10] * 6, 2, utilities, [1] * 6, [1] * 6, 0.0, exploration_min=0.0)
    for round in (0, 5):  # in round 0 all scores are zero
        assert_law(draw(strategy, env, state, round).ids, dict.fromkeys(itertools.combinations(range(6), 2), 1 / 15))


def test_all_tried_are_exploited_where_there_are_no_more():
    # The place after the last exploited does not exist.
    utilities, count = [5.0, 9.0, 0, 0, 0, 0], [1, 1, 0, 0, 0, 0]
    strategy, env, state = mid_game([10] * 6, 4, utilities, count, count, 0.2)
    selection = draw(strategy, env, state, 3, 500)
    assert (np.sort(selection.ids[:, :2], axis=1) == [0, 1]).all() and (selection.ids[:, 2:] >= 2).all()


@pytest.mark.slow
def test_clients_selected_often_are_left_out_and_fill_last():
    count = [11, 12, 13, 5, 5, 5, 5, 5, 5, 5]
    utilities = [99.0, 99.0, 99.0, *[5.0] * 7]
    for k, there in ((3, None), (7, None), (9, None), (3, jnp.arange(10) < 4)):
        strategy, env, state = mid_game([10] * 10, k, utilities, [4] * 10, count, 0.3, preset="paper")
        selection = draw(strategy, env, state, 9, 300, there)
        assert selection.mask.all()
        old = (selection.ids < 3).sum(axis=1)
        assert (old == (2 if there is not None else max(k - 7, 0))).all()
    # At most three of ten, those selected most.
    strategy, env, state = mid_game([10] * 10, 6, utilities, [4] * 10, [50, 60, 70, *[40] * 7], 0.3, preset="paper")
    assert (draw(strategy, env, state, 9, 300).ids >= 3).all()


@pytest.mark.parametrize("k", [1, 6])
def test_extreme_cohort_sizes(k):
    losses = np.random.default_rng(0).uniform(0.1, 3, (12, 6))
    ids, mask, states, _ = play(oort(), [5, 8, 13, 9, 2, 4], k, losses, 20)
    assert mask.all() and (np.sort(ids, axis=2)[..., 1:] > np.sort(ids, axis=2)[..., :-1]).all()
    assert (states.count[:, -1].sum(axis=1) == 12 * k).all()
    # With K = 1 nobody is exploited before everybody was tried; then exploration ends.
    assert (states.count[:, 5] == (6 if k == 6 else 1)).all()
    assert (states.exploration[:, -1] == 0).all() and (states.exploration[:, 0] > 0).all()


@pytest.mark.slow
def test_fewer_available_than_selected_gives_all_of_them():
    strategy, env, state = mid_game([10] * 7, 4, [3.0] * 4 + [0.0] * 3, [1] * 4 + [0] * 3, [1] * 4 + [0] * 3, 0.5)
    for there in ([1, 5], [6], [0, 1, 2], []):
        available = jnp.isin(jnp.arange(7), jnp.array(there, jnp.int32))
        selection = draw(strategy, env, state, 3, 50, available)
        for ids, mask in zip(selection.ids, selection.mask):
            assert sorted(ids[mask]) == there and len(set(ids)) == 4


def test_who_is_masked_or_did_not_answer_stays_unknown():
    strategy, env, state = mid_game([10] * 5, 3, [0.0] * 5, [0] * 5, [0] * 5, 0.9)
    now, reported = known(env, np.full(5, 2.0), [NEVER, 0, 0, 0, 0], 4), jnp.array([True, False, True])
    for mask in (reported, jnp.ones(3, bool)):  # client 1 is not selected, or its report is lost
        after = strategy.update(state, now, Selection(jnp.array([3, 1, 0]), None, mask), outcome_of(reported))
        assert after.utilities.tolist() == [0, 0, 0, 20, 0]
        assert after.count.tolist() == [0, 0, 0, 1, 0] and after.last.tolist() == [0, 0, 0, 5, 0]


def test_a_client_silent_at_the_start_has_the_median_duration():
    found = known_or_median(jnp.float32([0, 4, 2, 7, 0]), jnp.int32([NEVER, 0, 3, 0, 0]))
    np.testing.assert_allclose(found, [4, 4, 2, 7, 1e-6])  # no duration is zero: weights are 1 / t
    np.testing.assert_array_equal(known_or_median(jnp.zeros(3), jnp.full(3, NEVER)), [1, 1, 1])


@pytest.mark.slow
def test_losses_at_the_limits_do_not_break_it():
    losses = np.random.default_rng(1).choice([1e6, 0.0, 1.0], (20, 8))
    ids, _, states, _ = play(oort(), [40_000, 1, 5, 600, 3, 2, 9, 70], 3, losses, 20)
    for leaf in jax.tree.leaves(states):
        assert np.isfinite(leaf).all()
    assert all(len(set(row)) == 3 for row in ids.reshape(-1, 3).tolist())


def test_what_it_buys():
    (request,) = oort().requests
    assert (request.kind, request.who, request.options) == (
        "training_loss", SELECTED, (("statistic", "rms-first-pass"),),
    )  # fmt: skip
    assert request.when.in_every_round and not request.when.before_first_round
    assert oort(system="clock").requests == (request, Request("seconds", ALL, at_start()))


def test_the_clock_needs_simulated_time():
    with pytest.raises(UserError, match="add --timing"):
        fedjax_sel.run(fedjax_sel.Config().replace(algo="oort", algo_args={"system": "clock"}))
    with pytest.raises(UserError, match="pacer_step=5 has no effect with system=none; set system=clock"):
        oort(pacer_step=5)
