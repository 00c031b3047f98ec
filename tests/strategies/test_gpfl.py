"""GPFL against a slow NumPy twin over several rounds, its edge cases, and how it behaves in the long run."""

import functools
import importlib
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from fedjax_sel.errors import UserError
from fedjax_sel.strategies.contract import Evaluation, Outcome, Selection, ServerMetrics
from fedjax_sel.strategies.facts import ALL, NEVER, SERVER
from fedjax_sel.strategies.gpfl import gpfl
from fedjax_sel.strategies.protocol import initial_state
from tests.strategies.hooks import env_of, info_of, now_of, started

TENSORS = {"bias": (2,), "kernel": (2, 3)}
P, ROUNDS, GAMES, EXAMPLES = 8, 7, 200, 20
LENGTHS = np.linspace(0.05, 2.0, 7).astype(np.float32)  # learning rate times steps of each client
QUALITY = np.random.default_rng(0).normal(size=100)  # of the clients of a long run

rewards = importlib.import_module("fedjax_sel.strategies.gpfl")  # the package exports the function of that name

C = dict(direction="previous", scale="gradient", projection="flat", softmax="cohort", mean="selections",
         alpha="linear", rho=1.0, outcome="corrected", start="sweep", n="rounds", smoothing=0.1, t0=1)  # fmt: skip
REF = C | dict(direction="current", scale="update", projection="per-tensor-mean", mean="selections-and-zero",
               alpha="tent", outcome="sign", start="warm-up-sweep", t0=0, warm_up_rounds=20)  # fmt: skip


class Twin:
    """GPFL in float64 loops over dictionaries; every option spelled out."""

    def __init__(self, n, k, option, start_updates=None):
        self.n, self.k, self.option = n, k, option
        self.sums, self.count = [0.0] * n, [0] * n
        self.last, self.g = {}, None
        if option["start"] == "all-clients":
            good = {i: u for i, u in enumerate(np.float64(start_updates)) if np.isfinite(u).all()}
            self.g = sum(good.values()) / len(good)
            self.last = {i: float(u @ self.g) / np.linalg.norm(self.g) for i, u in good.items()}
            total = sum(math.exp(c) for c in self.last.values())
            self.sums = [math.exp(self.last[i]) / total if i in good else 0.0 for i in range(n)]
            self.count = [1] * n

    def scores(self, round):
        o, scores = self.option, []
        t = max(round + o["t0"], 1)
        alpha = {"linear": t / ROUNDS, "const": 1.0, "decay": 1 - t / ROUNDS,
                 "tent": t / 100 if t < 100 else 200 / (t + 100)}[o["alpha"]] * o["rho"]  # fmt: skip
        plays = t * self.k if o["n"] == "total-plays" else t
        for s, m in zip(self.sums, self.count):
            if m == 0:
                scores.append(math.inf)
                continue
            mean = {"selections": s / m, "rounds": s / t, "selections-and-zero": s / (m + 1)}[o["mean"]]
            scores.append(mean + alpha * math.sqrt(2 * math.log(plays) / m))
        return scores

    def check(self, round, ids, mask, available):
        """Whether the cohort is one that the scores allow."""
        scores, chosen = self.scores(round), ids[mask].tolist()
        there = [i for i in range(self.n) if available[i]]
        size = min(self.k, len(there))
        if self.option["start"] == "warm-up-sweep":
            chunk = min(self.k, math.ceil(self.n / self.option["warm_up_rounds"]))
            unseen = [i for i in there if self.count[i] == 0]
            if round < math.ceil(self.n / chunk) and unseen:
                size = min(chunk, len(unseen))
                assert set(chosen) <= set(unseen)
        assert len(set(chosen)) == len(chosen) == size and set(chosen) <= set(there)
        worst = min((scores[i] for i in chosen), default=0.0)
        assert all(scores[i] <= worst + 1e-5 for i in there if i not in chosen)

    def update(self, ids, mask, updates, finite, metrics):
        """`updates`: {tensor: [K, ...]}."""
        o = self.option
        cohort = [j for j in range(len(ids)) if mask[j]]
        good = [j for j in cohort if finite[j]]
        flat = {j: np.concatenate([np.float64(updates[name][j]).ravel() for name in TENSORS]) for j in good}
        step = sum(flat.values()) / len(good) if good else np.zeros(P)
        g = step if o["direction"] == "current" or self.g is None else self.g
        parts = np.split(np.arange(P), np.cumsum([np.prod(shape) for shape in TENSORS.values()])[:-1])
        if o["projection"] == "flat":
            parts = [np.arange(P)]
        fresh = {}
        for j in good:
            cosines = [flat[j][p] @ g[p] / np.linalg.norm(g[p]) if np.linalg.norm(g[p]) > 0 else 0.0 for p in parts]
            fresh[j] = np.mean(cosines) / (LENGTHS[ids[j]] if o["scale"] == "gradient" else 1.0)
        for j in cohort:
            self.last.pop(int(ids[j]), None)
        self.last |= {int(ids[j]): c for j, c in fresh.items()}
        over = self.last.values() if o["softmax"] == "all-with-stale" else fresh.values()
        total = sum(math.exp(c) for c in over)
        (correct, loss), (correct_after, loss_after) = metrics
        if o["outcome"] == "sign":
            f = np.sign(correct_after - correct) or 0.5 * np.sign(loss - loss_after)
        elif correct_after != correct:
            f = 2 * math.exp(correct_after / EXAMPLES - correct / EXAMPLES)
        else:
            f = math.exp(loss - loss_after if o["outcome"] == "corrected" else loss_after - loss)
        for j in cohort:
            self.count[int(ids[j])] += 1
            if j in fresh:
                self.sums[int(ids[j])] += f * math.exp(fresh[j]) / total
        if good and o["direction"] == "smoothed":
            self.g = (0 if self.g is None else o["smoothing"] * self.g) + step
        elif good:
            self.g = step


def environment(n, k, rounds=ROUNDS):
    return env_of([5] * n, k, rounds, 2, P)


def evaluation(correct, loss):
    return Evaluation(jnp.int32(correct), jnp.float32(correct) / EXAMPLES, jnp.float32(loss))


def world(n, seed):
    """Updates with clients that diverge, metrics with rounds that change nothing, clients that are away."""
    rng = np.random.default_rng(seed)
    updates = {name: rng.normal(size=(GAMES, ROUNDS, n, *s)).astype(np.float32) for name, s in TENSORS.items()}
    finite = rng.random((GAMES, ROUNDS, n)) > 0.15
    finite[0] = False  # a game in which nobody's update is finite
    updates["kernel"][..., 0, 0] = np.where(finite, updates["kernel"][..., 0, 0], np.nan)
    correct = rng.integers(8, 11, size=(GAMES, ROUNDS + 1))
    loss = rng.choice([0.5, 0.75, 1.5, 2.0], size=(GAMES, ROUNDS + 1)).astype(np.float32)
    return updates, finite, correct, loss


def all_started(strategy, env, keys, start_updates):
    bought = any(request.kind == "update" for request in strategy.requests)

    def init(key, updates):
        return strategy.init(key, now_of(env, info_of("gpfl", **({"update": updates} if bought else {}))))

    return initial_state(strategy._replace(init=jax.vmap(init)), keys, start_updates)


def play(strategy, env, states, keys, updates, finite, correct, loss, available):
    def game(state, key, updates, finite, correct, loss):
        def step(state, round):
            now = now_of(env, round=round, available=None if available is None else available[round])
            selection = strategy.select(jax.random.fold_in(key, round), state, now)
            mine = jax.tree.map(lambda leaf: leaf[round, selection.ids], updates)
            ok = finite[round, selection.ids]
            good = selection.mask & ok

            def mean(leaf):
                kept = jnp.where(good.reshape((-1,) + (1,) * (leaf.ndim - 1)), leaf, 0.0)
                return kept.sum(axis=0) / jnp.maximum(good.sum(), 1)

            metrics = ServerMetrics(*(evaluation(correct[round + i], loss[round + i]) for i in (0, 1)))
            lengths = jnp.asarray(LENGTHS)[selection.ids]
            outcome = Outcome(mine, None, None, jax.tree.map(mean, mine), selection.mask, ok, metrics, lengths)
            state = strategy.update(state, now, selection, outcome)
            return state, (selection, state)

        return jax.lax.scan(step, state, jnp.arange(ROUNDS))[1]

    return jax.device_get(jax.jit(jax.vmap(game))(states, keys, updates, finite, correct, loss))


@pytest.mark.slow
@pytest.mark.parametrize("n,k,parameters,away", [
    (7, 3, {}, False),
    (7, 3, {}, True),
    (7, 3, {"scale": "update"}, True),
    (5, 1, {}, False),
    (4, 4, {}, False),
    (7, 3, {"preset": "gpfl-ref"}, False),
    (7, 3, {"preset": "gpfl-ref", "warm_up_rounds": 3}, True),
    (7, 2, {"preset": "gpfl-ref", "start": "sweep", "rho": 0.5, "softmax": "all-with-stale"}, False),
    (7, 3, {"direction": "smoothed", "smoothing": 0.7, "mean": "rounds", "alpha": "const"}, False),
    (7, 3, {"start": "all-clients", "outcome": "printed", "alpha": "decay", "n": "total-plays"}, False),
    (6, 2, {"start": "all-clients", "softmax": "all-with-stale", "direction": "smoothed"}, True),
    (7, 3, {"direction": "current", "projection": "per-tensor-mean", "start": "all-clients", "alpha": "tent"}, False),
])  # fmt: skip
def test_games_equal_the_twins(n, k, parameters, away):
    strategy = gpfl(**parameters)
    option = (REF if parameters.get("preset") == "gpfl-ref" else C) | parameters
    rng = np.random.default_rng(n * k)
    updates, finite, correct, loss = world(n, n + k)
    start_updates = rng.normal(size=(GAMES, n, P)).astype(np.float32)
    start_updates[:20, 0, 0] = np.nan
    # Everybody but for one away, in one round only one, in one nobody.
    available = rng.permuted(np.tile(np.arange(n) > 0, (ROUNDS, 1)), axis=1)
    available[3], available[5] = np.arange(n) == 1, False
    available = available if away else np.ones((ROUNDS, n), bool)
    keys = jax.random.split(jax.random.key(n), GAMES)
    env = environment(n, k)
    states = all_started(strategy, env, keys, start_updates)
    there = jnp.asarray(available) if away else None
    selections, after = play(strategy, env, states, keys, updates, finite, correct, loss, there)
    assert selections.ids.dtype == np.int32 and selections.weights is None
    for game in range(GAMES):
        twin = Twin(n, k, option, start_updates[game])
        for round in range(ROUNDS):
            ids, mask = selections.ids[game, round], selections.mask[game, round]
            twin.check(round, ids, mask, available[round])
            metrics = [(int(correct[game, round + i]), float(loss[game, round + i])) for i in (0, 1)]
            mine = {name: table[game, round, ids] for name, table in updates.items()}
            twin.update(ids, mask, mine, finite[game, round, ids], metrics)
            np.testing.assert_array_equal(after.count[game, round], twin.count)
            np.testing.assert_allclose(after.reward_sum[game, round], twin.sums, rtol=2e-5, atol=1e-6)
            if option["direction"] != "current" and twin.g is not None:
                np.testing.assert_allclose(after.direction[game, round], twin.g, rtol=1e-4, atol=1e-6)
            last = [twin.last.get(i, -math.inf) for i in range(n)]
            np.testing.assert_allclose(after.projections[game, round], last, rtol=1e-4, atol=1e-5)


def test_the_mean_projection_on_the_rounds_own_step_is_its_length():
    def projected(updates):
        step = jax.tree.map(lambda leaf: leaf.mean(axis=0), updates)
        return rewards.project(updates, step, jnp.ones(4, bool), False).mean(), step

    updates = {name: np.random.default_rng(0).normal(size=(GAMES, 4, *s)) for name, s in TENSORS.items()}
    means, steps = jax.jit(jax.vmap(projected))(jax.tree.map(jnp.float32, updates))
    norms = np.sqrt(sum((np.float64(leaf).reshape(GAMES, -1) ** 2).sum(axis=1) for leaf in steps.values()))
    np.testing.assert_allclose(means, norms, rtol=1e-5)


@pytest.mark.parametrize("scale", [0.0, 1e-30, 1e-3, 1e3, 1e30])
@pytest.mark.parametrize("per_tensor", [False, True])
def test_projections_at_any_scale(scale, per_tensor):
    rng = np.random.default_rng(1)
    updates = {name: jnp.float32(rng.normal(size=(3, *shape))) for name, shape in TENSORS.items()}
    direction = {name: jnp.float32(rng.normal(size=shape)) for name, shape in TENSORS.items()}
    usable = jnp.array([True, False, True])
    expected = rewards.project(updates, direction, usable, per_tensor)
    scaled = jax.tree.map(lambda leaf: leaf * jnp.float32(scale), direction)
    found = rewards.project(updates, scaled, usable, per_tensor)
    assert found[1] == -jnp.inf
    np.testing.assert_allclose(found[::2], expected[::2] if scale else 0.0, rtol=1e-5)
    huge = jax.tree.map(lambda leaf: jnp.full_like(leaf, 3e38), updates)
    ones = jax.tree.map(jnp.ones_like, direction)
    assert (rewards.project(huge, ones, jnp.ones(3, bool), per_tensor) == -jnp.inf).all()


def test_a_tensor_of_zeros_projects_to_zero():
    updates = {"bias": jnp.ones((1, 2)), "kernel": jnp.ones((1, 2, 3))}
    direction = {"bias": jnp.zeros(2), "kernel": jnp.ones((2, 3))}
    found = rewards.project(updates, direction, jnp.ones(1, bool), True)
    np.testing.assert_allclose(found, np.sqrt(6) / 2, rtol=1e-6)


def test_shares():
    np.testing.assert_allclose(
        rewards.shares(jnp.array([1e4, 1e4 - 1.0])), [1 / (1 + math.exp(-1)), 1 / (1 + math.e)], 1e-6
    )
    assert rewards.shares(jnp.array([-jnp.inf, 3.0])).tolist() == [0, 1]
    assert rewards.shares(jnp.full(3, -jnp.inf)).tolist() == [0, 0, 0]


@pytest.mark.parametrize("rule,rise,fall,loss_fell,loss_rose,same", [
    ("corrected", 2 * math.exp(0.1), 2 * math.exp(-0.1), math.exp(0.5), math.exp(-0.5), 1.0),
    ("printed", 2 * math.exp(0.1), 2 * math.exp(-0.1), math.exp(-0.5), math.exp(0.5), 1.0),
    ("sign", 1.0, -1.0, 0.5, -0.5, 0.0),
])  # fmt: skip
def test_the_outcomes_factor(rule, rise, fall, loss_fell, loss_rose, same):
    factor = functools.partial(rewards.outcome_factor, rule=rule)
    start = evaluation(10, 1.0)
    assert factor(start, evaluation(12, 9.0)) == pytest.approx(rise)
    assert factor(start, evaluation(8, 0.1)) == pytest.approx(fall)
    assert factor(start, evaluation(10, 0.5)) == pytest.approx(loss_fell)
    assert factor(start, evaluation(10, 1.5)) == pytest.approx(loss_rose)
    assert factor(start, evaluation(10, 1.0)) == pytest.approx(same)
    # Counts decide, not floats: a share that rounding moved is the same accuracy.
    assert factor(start, Evaluation(jnp.int32(10), jnp.float32(0.5000001), jnp.float32(0.5))) == pytest.approx(
        loss_fell
    )
    error = [
        Evaluation(jnp.float32(-64.0 * value), jnp.float32(value), jnp.float32(1.0)) for value in (1.0, 0.5, 300.0)
    ]
    better, worse, far_worse = factor(error[0], error[1]), factor(error[1], error[0]), factor(error[0], error[2])
    assert better == pytest.approx(1.0 if rule == "sign" else 2 * np.exp(0.5))  # of an error, less is better
    assert worse == pytest.approx(-1.0 if rule == "sign" else 2 * np.exp(-0.5)) and far_worse <= worse
    assert np.isfinite(factor(error[2], error[0]))
    assert np.isfinite(factor(evaluation(10, 1e6), evaluation(10, 0.0)))
    assert np.isfinite(factor(evaluation(10, 0.0), evaluation(10, 1e6)))


@pytest.mark.parametrize("rule", ["corrected", "printed", "sign"])
def test_what_is_no_number_before_or_after_changes_no_reward(rule):
    """A regression whose predictions left float32: a NaN in a client's sum of rewards would never leave it."""
    unknown = Evaluation(jnp.float32(jnp.nan), jnp.float32(jnp.nan), jnp.float32(jnp.inf))
    known = Evaluation(jnp.float32(-6.0), jnp.float32(2.0), jnp.float32(1.0))
    for before, after in ((unknown, unknown), (known, unknown), (unknown, known)):
        assert np.isfinite(rewards.outcome_factor(before, after, rule))
    same = 0.0 if rule == "sign" else 1.0
    assert rewards.outcome_factor(unknown, unknown, rule) == pytest.approx(same)


def test_exploration_over_the_rounds():
    def bonus(t, count):
        return float(rewards.exploration("linear", 1.0, jnp.float32(t), 500)) * math.sqrt(2 * math.log(t) / count)

    assert [round(bonus(100, m), 2) for m in (1, 5, 25)] == [0.61, 0.27, 0.12]
    assert [round(bonus(500, m), 1) for m in (1, 5, 25)] == [3.5, 1.6, 0.7]
    for rule, expected in {
        "linear": [0.5 * 50 / 400, 0.5 * 100 / 400, 0.5],
        "const": [0.5, 0.5, 0.5],
        "decay": [0.5 * 350 / 400, 0.5 * 300 / 400, 0.0],
        "tent": [0.25, 0.5, 0.2],
    }.items():
        found = [float(rewards.exploration(rule, 0.5, jnp.float32(t), 400)) for t in (50, 100, 400)]
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_a_round_without_a_finite_update_pays_nobody():
    strategy, now = gpfl(), now_of(environment(5, 2))
    state = started(strategy, now)
    state = state._replace(direction=jnp.arange(8.0), known=jnp.bool_(True), reward_sum=jnp.arange(5.0))
    bad = {name: jnp.full((2, *shape), jnp.nan) for name, shape in TENSORS.items()}
    step = {name: jnp.zeros(shape) for name, shape in TENSORS.items()}
    metrics = ServerMetrics(evaluation(5, 1.0), evaluation(5, 1.0))
    selection = Selection(jnp.array([3, 1]), None, jnp.ones(2, bool))
    outcome = Outcome(bad, None, None, step, selection.mask, ~selection.mask, metrics)
    after = strategy.update(state, now, selection, outcome)
    assert after.reward_sum.tolist() == [0, 1, 2, 3, 4] and after.count.tolist() == [0, 1, 0, 1, 0]
    assert after.direction.tolist() == state.direction.tolist()


def test_a_round_without_a_step_keeps_the_direction_and_a_short_path_breaks_no_share():
    strategy, now = gpfl(), now_of(environment(5, 2))
    state = started(strategy, now)._replace(direction=jnp.arange(8.0), known=jnp.bool_(True))
    metrics = ServerMetrics(evaluation(5, 1.0), evaluation(5, 2.0))
    selection = Selection(jnp.array([3, 1]), None, jnp.ones(2, bool))
    updates = {name: jnp.ones((2, *shape)).at[0].mul(1e38) for name, shape in TENSORS.items()}
    step = {name: jnp.zeros(shape) for name, shape in TENSORS.items()}
    outcome = Outcome(updates, None, None, step, selection.mask, selection.mask, metrics, path_lengths=jnp.full(2, 0.1))
    after = jax.jit(strategy.update)(state, now, selection, outcome)
    assert after.direction.tolist() == state.direction.tolist()
    assert jnp.isfinite(after.reward_sum).all() and after.reward_sum[3] == 0 != after.reward_sum[1]


@pytest.mark.fast_cases(1)
@pytest.mark.parametrize("n,k", [(100, 7), (12, 5), (6, 6)])
def test_a_sweep_sees_everybody_in_the_fewest_rounds(n, k):
    rounds = math.ceil(n / k)
    counts = bandit({}, np.zeros(n), n, k, rounds, games=20)
    assert counts.min() == 1 and (counts.sum(axis=1) == rounds * k).all()


@pytest.mark.fast_cases(2)
@pytest.mark.parametrize(
    "n,k,sizes", [(100, 10, [5] * 20), (90, 5, [5] * 18), (50, 10, [3] * 16 + [2]), (200, 5, [5] * 40)]
)
def test_the_released_codes_warm_up_is_a_partition_into_chunks(n, k, sizes):
    strategy = gpfl(preset="gpfl-ref")
    env = environment(n, k)
    state, seen, select = started(strategy, now_of(env)), [], jax.jit(strategy.select)
    for round, size in enumerate(sizes):
        ids, _, mask = select(jax.random.key(round), state, now_of(env, round=round))
        assert mask.sum() == size
        seen += ids[mask].tolist()
        state = state._replace(count=state.count.at[ids[mask]].add(1))
    assert sorted(seen) == list(range(n)) and seen != sorted(seen)
    assert select(jax.random.key(99), state, now_of(env, round=len(sizes))).mask.all()


@pytest.mark.parametrize("seen", [False, True])
@pytest.mark.parametrize("preset", ["gpfl-c", "gpfl-ref"])
def test_equal_scores_are_ties_at_random(preset, seen):
    strategy, now = gpfl(preset=preset), now_of(environment(6, 2), round=5)
    state = started(strategy, now)
    state = state._replace(count=jnp.full(6, int(seen)), reward_sum=jnp.full(6, 0.3))
    draw = jax.jit(jax.vmap(lambda key: strategy.select(key, state, now)))
    selection = jax.device_get(draw(jax.random.split(jax.random.key(1), 20_000)))
    counts = np.bincount(selection.ids[selection.mask], minlength=6)
    assert stats.chisquare(counts).pvalue > 1e-4


def test_relabelling_relabels():
    strategy, order = gpfl(), np.array([3, 0, 5, 1, 4, 2])
    sums, counts = np.float32([0.1, 0.9, 0.5, 0.7, 0.2, 0.4]), np.array([1, 2, 1, 3, 1, 2])
    now = now_of(environment(6, 3), round=4)
    state = started(strategy, now)
    here = state._replace(reward_sum=jnp.asarray(sums), count=jnp.asarray(counts))
    there = state._replace(reward_sum=jnp.asarray(sums[order]), count=jnp.asarray(counts[order]))
    ids = np.asarray(strategy.select(jax.random.key(0), there, now).ids)
    assert order[ids].tolist() == strategy.select(jax.random.key(1), here, now).ids.tolist()


def test_who_was_away_at_the_start_is_unseen():
    info = info_of(update=(jnp.ones((4, P)).at[2].set(0.0), [0, 0, NEVER, 0]))
    state = started(gpfl(start="all-clients"), now_of(environment(4, 2), info))
    assert state.count.tolist() == [1, 1, 0, 1]
    np.testing.assert_allclose(state.reward_sum, [1 / 3, 1 / 3, 0, 1 / 3], rtol=1e-6)
    np.testing.assert_allclose(state.direction, np.ones(P), rtol=1e-6)


def bandit(parameters, quality, n, k, rounds=500, games=1):
    """How often each client is selected, [games, N]: one parameter, updates of a fixed quality and noise."""
    strategy, env = gpfl(**parameters), environment(n, k, rounds)

    def game(key):
        state = strategy.init(key, now_of(env))
        state = state._replace(direction=state.direction[:1])

        def step(carry, round):
            state, before = carry
            keys = jax.random.split(jax.random.fold_in(key, round), 3)
            now = now_of(env, round=round)
            selection = strategy.select(keys[0], state, now)
            drawn = jnp.float32(quality)[selection.ids] + 0.3 * jax.random.normal(keys[1], (k,))
            share = 0.85 * (1 - jnp.exp(-(round + 1) / 100)) + 0.01 * jax.random.normal(keys[2])
            after = Evaluation((share * 10_000).astype(jnp.int32), share, 1 - share)
            step = {"w": jnp.ones(1)}
            everyone, metrics = jnp.ones(k, bool), ServerMetrics(before, after)
            outcome = Outcome({"w": drawn[:, None]}, None, None, step, everyone, everyone, metrics)
            return (strategy.update(state, now, selection, outcome), after), None

        start = Evaluation(jnp.int32(0), jnp.float32(0), jnp.float32(1))
        (state, _), _ = jax.lax.scan(step, (state, start), jnp.arange(rounds))
        return state.count

    return np.asarray(jax.jit(jax.vmap(game))(jax.random.split(jax.random.key(0), games)))


@pytest.mark.slow
@pytest.mark.parametrize("alpha,most", [("linear", 55), ("tent", 100)])
def test_the_printed_factor_makes_a_favorite_and_the_sign_does_not(alpha, most):
    """100 clients that differ clearly: the long tail of the paper's Fig. 5 comes with the factor as printed."""
    favorite = bandit({"outcome": "printed", "alpha": alpha}, 3 * QUALITY, 100, 5, games=4)
    assert (np.abs(favorite.max(axis=1) - 480) <= 10).all() and (favorite.sum(axis=1) == 2500).all()
    even = bandit({"outcome": "sign", "alpha": alpha}, 3 * QUALITY, 100, 5, games=4)
    assert (even.max(axis=1) >= 30).all() and (even.max(axis=1) <= most).all()
    assert (np.abs(np.median(even, axis=1) - 25) <= 2).all()


@pytest.mark.slow
def test_a_softmax_over_all_is_round_robin():
    """Shares are then about 1 / N, and the bonus decides."""
    everyone = bandit({"softmax": "all-with-stale"}, 0.5 * QUALITY, 100, 5, games=4)
    assert everyone.min() >= 23 and everyone.max() <= 30
    assert bandit({}, 0.5 * QUALITY, 100, 5, games=4).max() > 60


@pytest.mark.parametrize("parameters,part", [
    ({}, "validation"), ({"preset": "gpfl-ref"}, "test"), ({"accuracy_on": "test"}, "test"),
    ({"preset": "gpfl-ref", "accuracy_on": "validation"}, "validation"),
])  # fmt: skip
def test_what_it_buys(parameters, part):
    (request,) = gpfl(**parameters).requests
    assert (request.kind, request.who, request.options) == ("server_metrics", SERVER, (("on", part),))
    assert request.when.in_every_round and not request.when.before_first_round
    update, metrics = gpfl(start="all-clients", **parameters).requests
    assert (update.kind, update.who, update.options) == ("update", ALL, ())
    assert update.when.before_first_round and not update.when.rules
    assert metrics == request


@pytest.mark.parametrize("parameters,message", [
    ({"smoothing": 0.5}, r"gpfl: smoothing=0.5 has no effect without direction=smoothed"),
    ({"warm_up_rounds": 5}, r"gpfl: warm_up_rounds=5 has no effect without start=warm-up-sweep"),
])  # fmt: skip
def test_bad_parameters_are_refused(parameters, message):
    with pytest.raises(UserError, match=message):
        gpfl(**parameters)
