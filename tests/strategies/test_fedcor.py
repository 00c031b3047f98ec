"""FedCor and FedGP against a NumPy twin of the authors' loop, fed with losses by hand."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from scipy import stats

from fedjax_sel import strategies
from fedjax_sel.core import plugins
from fedjax_sel.errors import UserError
from fedjax_sel.strategies import checks
from fedjax_sel.strategies.contract import Env, Fact, Information, Outcome
from fedjax_sel.strategies.facts import ALL, NEVER
from fedjax_sel.strategies.fedcor import fedcor, importance_of
from fedjax_sel.strategies.fedgp import fedgp
from tests.strategies.hooks import env_of, now_of

N, K, D, T = 12, 3, 4, 34
SMALL = {"dimension": D, "noise": 0.1, "warmup_steps": 4, "steps": 3, "learning_rate": 0.05}


ADAMS = {"warmup_steps", "steps", "learning_rate", "warmup_reuse", "reuse"}


def make(preset, **overrides):
    if preset == "closed-form":  # it has no steps, and refuses numbers of them
        overrides = {name: value for name, value in overrides.items() if name not in ADAMS}
    return fedgp(**overrides) if preset == "fedgp" else fedcor(preset=preset, **overrides)


ENV = env_of(np.full(N, 5), K, T, 10)
START = now_of(ENV)


EMPTY = Fact(jnp.zeros((N, 1)), jnp.full(N, NEVER))
YES = jnp.ones(K, bool)
OUTCOME = Outcome(updates=None, losses_before=None, losses_after=None, step=None, reported=YES, finite=YES)


def play(strategy, state, key, losses, changes, missing, available=None, num_rounds=T, env=ENV):
    """Rounds in the simulator's order. Facts that are not due keep a stale value and grow older."""

    def step(carry, round):
        state, ages = carry
        facts, new_ages = {}, []
        for request, table, age in zip(strategy.requests, (losses, changes), ages):
            due = request.when.due(round)
            fresh = jnp.where(missing[round], NEVER, 0)
            age = jnp.where(due, fresh, age)
            value = jnp.where(due, table[round], 777.0)  # whoever reads a stale one is found out
            facts[request.kind] = Fact(value, age)
            new_ages.append(jnp.minimum(age + 1, NEVER))
        info = Information(strategy.name, facts)
        now = now_of(env, info, round, None if available is None else available[round])
        state = strategy.observe(state, now)
        selection = strategy.select(jax.random.fold_in(key, round), state, now)
        log_scale = state.log_scale
        state = strategy.update(state, now, selection, OUTCOME._replace(reported=selection.mask))
        return (state, tuple(new_ages)), (selection.ids, selection.mask, state.embeddings, log_scale)

    ages = (jnp.full(losses.shape[1:], NEVER, jnp.int32),) * 2
    return lax.scan(step, (state, ages), jnp.arange(num_rounds, dtype=jnp.int32))[1]


# What the presets mean, written down a second time (papers' and public code's numbers for Fashion-MNIST).
RULES = {
    "paper": {"last": 0, "theta": 0.9, "beta": 0.95, "window": "spaced", "M": (10, 1)},
    "fedgp": {"last": 0, "theta": 0.9, "beta": 0.95, "window": "spaced", "M": (1, 1)},
    "proxy": {"last": 0, "theta": 0.9, "beta": 0.95, "window": "spaced", "M": (10, 1)},
    "code-2022": {"last": 1, "theta": 0.8, "beta": 0.95, "window": "newest", "M": (10, 1)},
    "code-2023": {"last": 1, "theta": 0.95, "beta": 0.95, "window": "recent", "M": (100, 100)},
    "gpfl-port": {"last": 1, "theta": 0.99, "beta": 0.9, "window": "recent", "M": (500, 500)},
    "closed-form": {"last": 0, "theta": 0.9, "beta": 0.95, "window": "everything", "M": None},
}


def twin(preset, x, p, losses, changes, missing, cohorts, warmup, begin, interval, num_rounds=T):
    """The loop in float64, one round after another; cohorts tell who trained.

    Returns the cohorts that it would choose, the embeddings, and by how much each cohort's closest pick was ahead.
    """
    rule = RULES[preset]
    noise, shift = SMALL["noise"], rule["last"]
    n = len(p)
    p = np.full(n, 1 / n) if preset == "gpfl-port" else p
    alpha, collections, chosen, embeddings, leads = np.ones(n), [], [], [], []

    def training_set(label, in_warmup):
        pairs = []
        for position, (when, samples) in enumerate(collections):
            spacing, reuse = (1, rule["M"][0]) if in_warmup else (interval, rule["M"][1])
            age = label - when
            if rule["window"] == "spaced" and (age % spacing or age > reuse * spacing):
                continue
            if rule["window"] == "newest":
                if position > reuse:
                    continue
                age = position * spacing
            if rule["window"] == "recent" and age > reuse:
                continue
            pairs += [(rule["theta"] ** age, sample) for sample in samples]
        return pairs

    def fit(x, label, in_warmup):
        if rule["window"] == "everything":
            pairs = [(rule["theta"] ** (label - when), s) for when, samples in collections for s in samples]
            if not pairs:
                return x
            moment = sum(g * np.outer(r, r) for g, r in pairs) / sum(g for g, _ in pairs)
            values, vectors = np.linalg.eigh(moment)
            return np.sqrt(np.maximum(values[::-1][:D] - noise**2, 0))[:, None] * vectors[:, ::-1][:, :D].T
        pairs = training_set(label, in_warmup)
        total = sum(g for g, _ in pairs)
        if preset in ("code-2023", "gpfl-port") and pairs:
            mean = sum(g * r for g, r in pairs) / total
            pairs = [(g, r - mean) for g, r in pairs]
        moment = sum((g * np.outer(r, r) for g, r in pairs), np.zeros((n, n)))
        first, second = np.zeros_like(x), np.zeros_like(x)
        for t in range(1, (SMALL["warmup_steps"] if in_warmup else SMALL["steps"]) + 1):
            inverse = np.linalg.inv(x.T @ x + noise**2 * np.eye(n))
            gradient = x @ (total * inverse - inverse @ moment @ inverse)
            first, second = 0.9 * first + 0.1 * gradient, 0.999 * second + 0.001 * gradient**2
            x = x - SMALL["learning_rate"] * (first / (1 - 0.9**t)) / (np.sqrt(second / (1 - 0.999**t)) + 1e-8)
        return x

    def greedy(x):
        sigma = x.T @ x + noise**2 * np.eye(n)
        if preset == "proxy":
            return np.argsort(-(p @ sigma))[:K], np.inf
        picks, lead = [], np.inf
        for _ in range(K):
            scores = [-np.inf if c in picks else alpha[c] * (p @ sigma[:, c]) / np.sqrt(sigma[c, c]) for c in range(n)]
            best = int(np.argmax(scores))
            lead = min(lead, (scores[best] - np.sort(scores)[-2]) / abs(scores[best]))
            sigma = sigma - np.outer(sigma[:, best], sigma[best]) / sigma[best, best]
            picks.append(best)
        return picks, lead

    for t in range(num_rounds):
        if begin < t <= warmup:
            whole = not (missing[t].any() or missing[t - 1].any())
            collections.insert(0, (t - 1, [losses[t] - losses[t - 1]] if whole else []))
            if t == warmup or preset not in ("code-2023", "gpfl-port", "closed-form"):
                x = fit(x, t - 1, True)
        update = t - shift >= warmup and (t - shift) % interval == 0
        if update:
            whole = not missing[t].any()
            collections.insert(0, (t - shift, list(changes[t].T) if whole else []))
            x = fit(x, t - shift, False)
            alpha = np.ones(n)
        picks, lead = greedy(x) if t >= warmup else (None, np.inf)
        chosen.append(picks)
        leads.append(lead)
        embeddings.append(x)
        if t >= warmup:
            alpha[cohorts[t]] *= rule["beta"]
    return chosen, embeddings, leads


def tables(seed, probes=1, num_rounds=T):
    rng = np.random.default_rng(seed)
    group = rng.normal(size=(num_rounds, 4))[:, np.arange(N) % 4]
    losses = np.cumsum(0.5 * group + 0.3 * rng.normal(size=(num_rounds, N)) - 0.2, axis=0)
    changes = 0.5 * rng.normal(size=(num_rounds, 4, probes))[:, np.arange(N) % 4]
    changes = changes + 0.3 * rng.normal(size=changes.shape)
    missing = np.zeros((num_rounds, N), bool)
    missing[rng.permutation(num_rounds)[:4], rng.integers(0, N, 4)] = True
    return losses, changes, missing


def played(preset, seeds, probes=1, available=None, **overrides):
    strategy = make(preset, **SMALL, **overrides, **({"probes": probes} if probes > 1 else {}))
    facts = [tables(seed, probes) for seed in seeds]
    sizes = [np.random.default_rng(seed).integers(5, 30, N) for seed in seeds]

    def one(key, sizes, losses, changes, missing):
        env = env_of(sizes, K, T, 10)
        state = strategy.init(key, now_of(env))
        return state.embeddings, play(strategy, state, key, losses, changes, missing, available, env=env)

    keys = jax.vmap(jax.random.key)(jnp.asarray(list(seeds)))
    stacked = [
        jnp.asarray(np.stack([fact[i] for fact in facts]), (jnp.float32, jnp.float32, bool)[i]) for i in range(3)
    ]
    start, record = jax.device_get(jax.jit(jax.vmap(one))(keys, jnp.asarray(np.stack(sizes)), *stacked))
    return facts, [s / s.sum() for s in sizes], start, record


@pytest.mark.slow
@pytest.mark.parametrize("preset", list(RULES))
def test_cohorts_equal_the_twins(preset):
    warmup, begin = (14, 10) if preset == "code-2022" else (8, 0)
    facts, shares, start, (ids, mask, embeddings, _) = played(preset, range(30), warmup=warmup, interval=5)
    assert mask.all() and ids.dtype == np.int32
    close = 0
    for i, (losses, changes, missing) in enumerate(facts):
        chosen, fitted, leads = twin(
            preset, start[i].astype(float), shares[i], losses, changes, missing, ids[i], warmup, begin, 5
        )
        for t in range(T):
            if preset != "closed-form":  # there, up to a rotation
                np.testing.assert_allclose(embeddings[i, t], fitted[t], atol=2e-3)
            np.testing.assert_allclose(
                embeddings[i, t].T @ embeddings[i, t], fitted[t].T @ fitted[t], atol=1e-2, err_msg=f"{i}, {t}"
            )
            assert len(set(ids[i, t])) == K
            if t >= warmup and leads[t] > 1e-4:
                assert list(ids[i, t]) == list(chosen[t]), (i, t)
            close += leads[t] <= 1e-4  # float32 may well see the other one ahead
    assert close <= 0.01 * 30 * T


@pytest.mark.slow
@pytest.mark.parametrize("preset", ["paper", "fedgp", "closed-form", "code-2023"])
def test_an_update_that_is_due_when_the_warmup_ends_equals_the_twins(preset):
    """Alg. 2 has it: round `warmup` opens with the last sample of the warm-up, a fit, a probe and another fit."""
    strategy = make(preset, warmup=8, interval=4)
    assert due(strategy, T)[1][0] == (9 if preset == "code-2023" else 8)
    facts, shares, start, (ids, _, embeddings, _) = played(preset, range(10), warmup=8, interval=4)
    for i, (losses, changes, missing) in enumerate(facts):
        chosen, fitted, _ = twin(preset, start[i].astype(float), shares[i], losses, changes, missing, ids[i], 8, 0, 4)
        for t in range(T):
            np.testing.assert_allclose(
                embeddings[i, t].T @ embeddings[i, t], fitted[t].T @ fitted[t], atol=1e-2, err_msg=f"{i}, {t}"
            )
            if t >= 8:
                assert list(ids[i, t]) == list(chosen[t]), (i, t)


def test_several_probes_an_update_equal_the_twins():
    facts, shares, start, (ids, _, _, _) = played("paper", range(10), probes=3, warmup=8, interval=5)
    for i, (losses, changes, missing) in enumerate(facts):
        chosen, _, _ = twin("paper", start[i].astype(float), shares[i], losses, changes, missing, ids[i], 8, 0, 5)
        for t in range(8, T):
            assert list(ids[i, t]) == list(chosen[t]), (i, t)


@pytest.mark.slow
def test_alpha_is_annealed_and_reset_by_updates():
    _, _, _, (ids, _, _, log_scale) = played("paper", range(3), warmup=8, interval=7, anneal=0.5)
    for i in range(3):
        times = np.zeros(N)
        for t in range(T):
            if t > 8 and t % 7 == 0:
                times[:] = 0
            np.testing.assert_allclose(log_scale[i, t], np.log(0.5) * times, rtol=1e-6)
            if t >= 8:
                times[ids[i, t]] += 1


def test_an_extreme_anneal_does_not_select_twice_before_a_reset():
    strategy = fedcor(anneal=1e-30, warmup=1, interval=100, dimension=D)
    state = strategy.init(jax.random.key(0), START)
    state = state._replace(embeddings=jnp.abs(state.embeddings[:, :1]) * jnp.ones(N))  # all gains positive at first
    seen, select = [], jax.jit(strategy.select)
    for t in range(1, 5):
        selection = select(jax.random.key(t), state, now_of(ENV, round=t))
        state = strategy.update(state, now_of(ENV, round=t), selection, OUTCOME)
        seen.append(int(selection.ids[0]))  # later picks see noise alone: all clients are alike
        assert np.isfinite(state.log_scale).all()
    assert len(set(seen)) == 4


def test_who_is_never_there_does_not_take_the_others_scale():
    """All but one were selected very often; a common factor of those who can be reached changes nothing."""
    strategy = fedcor(warmup=1, interval=100, dimension=D)
    state = strategy.init(jax.random.key(0), START)
    often = state._replace(log_scale=jnp.where(jnp.arange(N) == 0, 0.0, -200.0).astype(jnp.float32))
    select = jax.jit(strategy.select)
    for key in jax.random.split(jax.random.key(1), 5):
        one, other = (select(key, at, now_of(ENV, round=3, available=jnp.arange(N) > 0)) for at in (state, often))
        np.testing.assert_array_equal(one.ids, other.ids)
    nobody = select(jax.random.key(1), often, now_of(ENV, round=3, available=jnp.zeros(N, bool)))
    assert not nobody.mask.any()


def test_who_did_not_report_is_not_annealed():
    strategy = fedcor(warmup=1)
    state = strategy.init(jax.random.key(0), START)
    selection = strategy.select(jax.random.key(0), state, now_of(ENV, round=3))
    selection = selection._replace(ids=jnp.array([4, 5, 6]))
    outcome = OUTCOME._replace(reported=jnp.array([True, False, True]))
    after = strategy.update(state, now_of(ENV, round=3), selection, outcome)
    np.testing.assert_array_equal(np.flatnonzero(after.log_scale), [4, 6])
    early = strategy.update(state, now_of(ENV, round=0), selection, outcome)
    assert (early.log_scale == 0).all()  # warm-up cohorts are not counted


def test_a_broken_sample_changes_nothing():
    strategy = fedcor(warmup=3, interval=4, **SMALL)
    state = strategy.init(jax.random.key(0), START)
    losses, changes, _ = tables(0)
    missing = np.zeros((T, N), bool)
    missing[1::2, 5] = True  # every change of the warm-up lacks a client
    _, _, embeddings, _ = play(strategy, state, jax.random.key(0), *map(jnp.asarray, (losses, changes, missing)))
    np.testing.assert_array_equal(embeddings[3], state.embeddings)
    assert np.abs(embeddings[4] - state.embeddings).max() > 0.01  # the probe of round 4 is whole


def test_a_warmup_round_without_a_server_step_gives_no_sample():
    """As in asynchronous rounds that wait for no report."""
    strategy = fedcor(warmup=3, interval=4, **SMALL)
    state, losses = strategy.init(jax.random.key(0), START), jnp.asarray(tables(0)[0])
    for t in (0, 1, 2):
        info = Information("fedcor", {"loss": Fact(losses[t // 2], jnp.zeros(N, jnp.int32)), "loss_change": EMPTY})
        state = strategy.observe(state, now_of(ENV, info, t, None))
    assert state.memory.valid.sum() == 1


@pytest.mark.slow
def test_who_was_not_there_counts_as_unchanged():
    """Unlike a broken loss, an absent client does not cost the sample: its entry is zero, the others' stand."""
    strategy = fedcor(warmup=3, interval=4, **SMALL)
    losses = jnp.asarray(tables(0)[0])
    there = jnp.arange(N) != 5

    def after_two_rounds(available):
        state = strategy.init(jax.random.key(0), START)
        for t, ages in ((0, jnp.zeros(N, jnp.int32)), (1, jnp.where(there, 0, 1))):
            info = Information("fedcor", {"loss": Fact(losses[t], ages), "loss_change": EMPTY})
            state = strategy.observe(state, now_of(ENV, info, t, available))
        return state.memory

    memory = after_two_rounds(there)
    assert memory.valid[0, 0]
    np.testing.assert_allclose(memory.values[0, 0], np.where(there, losses[1] - losses[0], 0.0), atol=1e-6)
    assert not after_two_rounds(None).valid[0, 0]  # everyone was asked, and one gave no number


def test_a_client_without_budget_does_not_cost_the_sample():
    """With --privacy, a client answers until its budget is spent; then it counts as unchanged."""
    strategy = fedcor(warmup=3, interval=4, **SMALL)
    losses, private = jnp.asarray(tables(0)[0]), dataclasses.replace(ENV, noise={"loss": jnp.ones(N)})
    state = strategy.init(jax.random.key(0), START)
    for t, ages in ((0, jnp.zeros(N, jnp.int32)), (1, jnp.arange(N) == 5)):
        info = Information("fedcor", {"loss": Fact(losses[t], ages.astype(jnp.int32)), "loss_change": EMPTY})
        state = strategy.observe(state, now_of(private, info, t))
    assert state.memory.valid[0, 0]
    expected = np.where(np.arange(N) == 5, 0.0, losses[1] - losses[0])
    np.testing.assert_allclose(state.memory.values[0, 0], expected, atol=1e-6)


@pytest.mark.parametrize("preset", ["paper", "proxy"])
def test_ties_are_broken_at_random(preset):
    strategy = fedcor(preset=preset)
    state = strategy.init(jax.random.key(0), START)
    state = state._replace(embeddings=jnp.zeros_like(state.embeddings))
    select = jax.jit(jax.vmap(lambda key: strategy.select(key, state, now_of(ENV, round=20)).ids))
    ids = np.asarray(select(jax.random.split(jax.random.key(1), 6000)))
    assert all(len(set(row)) == K for row in ids[:200].tolist())
    assert stats.chisquare(np.bincount(ids.reshape(-1), minlength=N)).pvalue > 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("preset", ["paper", "closed-form"])
def test_clients_with_equal_losses_are_chosen_alike(preset):
    strategy = make(preset, warmup=2, **SMALL)
    losses = jnp.broadcast_to(jnp.asarray([2.0, 1.5, 1.1])[:, None], (3, N))

    def first_greedy(key):
        state = strategy.init(key, START)
        return play(strategy, state, key, losses, losses[..., None], jnp.zeros((3, N), bool), num_rounds=3)[0][2]

    ids = np.asarray(jax.jit(jax.vmap(first_greedy))(jax.random.split(jax.random.key(0), 3000)))
    assert stats.chisquare(np.bincount(ids.reshape(-1), minlength=N)).pvalue > 1e-4


def test_warmup_cohorts_are_uniform_and_ignore_the_embeddings():
    strategy = fedcor()
    state = strategy.init(jax.random.key(0), START)

    def cohorts(count, round):
        keys = jax.random.split(jax.random.key(1), count)
        return jax.vmap(lambda key: strategy.select(key, state, now_of(ENV, round=round)).ids)(keys)

    cohorts = jax.jit(cohorts, static_argnums=0)
    assert stats.chisquare(np.bincount(cohorts(6000, 14).reshape(-1), minlength=N)).pvalue > 1e-4
    assert len({tuple(ids) for ids in cohorts(6000, 15).tolist()}) == 1  # greedy cohorts do not depend on the key


@pytest.mark.parametrize("preset", ["paper", "proxy"])
def test_unavailable_clients(preset):
    strategy = fedcor(preset=preset)
    state = strategy.init(jax.random.key(0), START)
    sigma = np.float64(state.embeddings).T @ np.float64(state.embeddings) + 1e-4 * np.eye(N)

    @jax.jit
    def select(available, round):
        return strategy.select(jax.random.key(1), state, now_of(ENV, round=round, available=available))

    available = np.arange(N) % 3 != 1
    for round in (3, 20):
        selection = select(available, round)
        assert selection.mask.all() and available[selection.ids].all() and len(set(selection.ids.tolist())) == K
        if round == 20:
            score = sigma.mean(axis=0) / (np.sqrt(np.diag(sigma)) if preset == "paper" else 1)
            assert selection.ids[0] == np.argmax(np.where(available, score, -np.inf))
        selection = select(np.arange(N) == 7, round)
        assert selection.mask.sum() == 1 and selection.ids[selection.mask].tolist() == [7]
        assert len(set(selection.ids.tolist())) == K
        assert not select(np.zeros(N, bool), round).mask.any()


@pytest.mark.fast_cases(3)
@pytest.mark.parametrize("k", [1, N - 1, N])
@pytest.mark.parametrize("preset", ["paper", "proxy"])
def test_extreme_cohort_sizes(k, preset):
    strategy = fedcor(preset=preset)
    env = env_of(np.full(N, 5), k, T, 10)
    state = strategy.init(jax.random.key(0), now_of(env))
    select = jax.jit(lambda t: strategy.select(jax.random.key(t), state, now_of(env, round=t)))
    for t in (0, 30):
        selection = select(t)
        assert len(set(selection.ids.tolist())) == k and selection.mask.all() and selection.ids.dtype == jnp.int32


@pytest.mark.slow
def test_dimension_follows_the_cohort():
    def embeddings(n, k, **parameters):
        return fedcor(**parameters).init(jax.random.key(0), now_of(env_of(np.full(n, 5), k, T, 10))).embeddings

    def shape(k, **parameters):
        return embeddings(40, k, **parameters).shape

    assert shape(5) == (15, 40) and shape(20) == (20, 40) and shape(5, dimension=5) == (5, 40)
    assert shape(5, dimension=4) == (4, 40)
    x = embeddings(2000, K)
    assert abs(float((x**2).sum(axis=0).mean()) - 1) < 0.03  # N(0, 1/d)


def ordered(strategy, env, seed=0):
    """A cohort of everybody where noise is all there is: the largest p_i first."""
    state = strategy.init(jax.random.key(0), now_of(env))
    state = state._replace(embeddings=jnp.zeros_like(state.embeddings))
    return strategy.select(jax.random.key(seed), state, now_of(env, round=99)).ids.tolist()


def test_importance():
    env = env_of(np.arange(1, N + 1), N, T, 10)
    np.testing.assert_allclose(importance_of(env, "shares"), env.sizes / env.sizes.sum(), rtol=1e-6)
    np.testing.assert_allclose(importance_of(env, "uniform"), 1 / N)
    assert ordered(fedcor(), env) == ordered(fedgp(), env) == list(reversed(range(N)))
    for strategy in (fedcor(importance="uniform"), fedcor(preset="gpfl-port"), fedgp(importance="uniform")):
        assert ordered(strategy, env) != ordered(strategy, env, seed=1)  # ties


def test_held_out_examples_count_in_the_importance():
    """As in the authors' code, which takes p_i before it splits a client's data (utils.get_dataset, update.py)."""
    sizes, held = jnp.array([3, 3, 10]), jnp.array([0, 1, 2])
    env = env_of(sizes, 3, T, 10, all_sizes=sizes + held)
    np.testing.assert_allclose(importance_of(env, "shares"), np.array([3, 4, 12]) / 19)
    assert ordered(fedcor(), env) == ordered(fedgp(), env) == [2, 1, 0]
    np.testing.assert_array_equal(Env(3, 1, T, 10, 100, sizes, sizes / 16).all_sizes, sizes)  # nothing held out


def due(strategy, num_rounds):
    return [np.flatnonzero(request.when.due(jnp.arange(num_rounds))) for request in strategy.requests]


@pytest.mark.parametrize(
    "strategy,losses,updates",
    [
        (fedcor(), (0, 15), (20, 10)),
        (fedcor(task="cifar10"), (0, 20), (50, 50)),
        (fedcor(preset="code-2022"), (10, 16), (21, 10)),
        (fedcor(preset="code-2022", task="cifar10"), (10, 21), (51, 50)),
        (fedcor(preset="code-2023"), (0, 16), (21, 10)),
        (fedcor(preset="code-2023", task="cifar10"), (0, 21), (51, 50)),
        (fedcor(preset="gpfl-port"), (0, 21), (51, 50)),
        (fedcor(preset="gpfl-port", task="cifar10"), (0, 21), (51, 50)),
        (fedcor(preset="closed-form"), (0, 15), (20, 10)),
        (fedcor(preset="proxy"), (0, 15), (20, 10)),
        (fedgp(), (0, 15), (20, 10)),
        (fedgp(task="cifar10"), (0, 15), (50, 50)),
        (fedcor(interval=500), (0, 15), (500, 500)),
        (fedcor(preset="code-2023", interval=500), (0, 16), (501, 500)),
        (fedcor(interval=1, warmup=4), (0, 4), (4, 1)),
        (fedcor(interval=5, warmup=10), (0, 10), (10, 5)),
        (fedcor(preset="code-2023", interval=5, warmup=10), (0, 10), (11, 5)),
        (fedcor(preset="code-2023", interval=4, warmup=8), (0, 8), (9, 4)),
    ],
)
def test_what_it_buys_and_when(strategy, losses, updates):
    loss, change = strategy.requests
    assert (loss.kind, loss.who, loss.options) == ("loss", ALL, (("nonfinite", "missing"),))
    assert (change.kind, change.who) == ("loss_change", ALL)
    assert [pair for pair in change.options if pair[0] != "restored"] == [("probes", 1), ("nonfinite", "missing")]
    assert not loss.when.before_first_round and not change.when.before_first_round
    found = due(strategy, 120)
    np.testing.assert_array_equal(found[0], np.arange(losses[0], losses[1] + 1))
    np.testing.assert_array_equal(found[1], np.arange(updates[0], 120, updates[1]))


@pytest.mark.parametrize("make", [fedcor, fedgp])
def test_only_gpfls_port_restores_the_model_before_a_probes_losses(make):
    def restored(**parameters):
        return make(**parameters).requests[1].option("restored", False)

    presets = ["paper", "code-2022", "code-2023", "closed-form", "proxy", "gpfl-port"]
    assert [preset for preset in presets if restored(preset=preset)] == ["gpfl-port"]
    assert restored(restored_probes=True) and not restored(preset="gpfl-port", restored_probes=False)


@pytest.mark.parametrize("preset,warmup_models", [("paper", 1600), ("code-2023", 1700)])
def test_models_sent_down(preset, warmup_models):
    n, k, probes = 100, 10, 2
    strategy = fedcor(preset=preset, probes=probes)
    losses, updates = due(strategy, 60)
    assert n * len(losses) == warmup_models
    asked = len(losses) + len(updates)  # whoever is asked has the model already when the cohort trains
    down = n * asked + probes * n * len(updates) + k * (60 - asked)
    assert down == warmup_models + 4 * (100 + 100 * probes) + (60 - warmup_models // 100 - 4) * 10
    assert dict(strategy.requests[1].options)["probes"] == probes


def test_a_fit_is_a_real_branch_in_a_batch():
    strategy = fedcor(**SMALL)
    facts = {
        "loss": Fact(jnp.zeros(N), jnp.zeros(N, jnp.int32)),
        "loss_change": Fact(jnp.zeros((N, 1)), jnp.zeros(N, jnp.int32)),
    }
    info = Information("fedcor", facts)
    states = jax.vmap(lambda key: strategy.init(key, START))(jax.random.split(jax.random.key(0), 2))
    batched = jax.vmap(lambda state, round: strategy.observe(state, now_of(ENV, info, round)), in_axes=(0, None))
    program = jax.make_jaxpr(lambda round: batched(states, round))(jnp.int32(3))
    outside = [equation.primitive.name for equation in program.jaxpr.eqns]
    assert outside.count("cond") >= 3 and "while" not in outside and "cholesky" not in outside


@pytest.mark.parametrize(
    "parameters,message",
    [
        ({"preset": "code-2021"}, "preset=code-2021 of fedcor: unknown"),
        ({"preset": "fedgp"}, "preset=fedgp of fedcor: unknown .* choose from"),
        ({"preset": "closed-form", "steps": 5}, "steps=5 has no effect with preset=closed-form; leave it out"),
        ({"preset": "proxy", "anneal": 0.9}, "anneal=0.9 has no effect with preset=proxy"),
        ({"task": "mnist"}, "task=mnist of fedcor: unknown"),
    ],
)
def test_wrong_hyperparameters(parameters, message):
    with pytest.raises(UserError, match=message):
        strategies.make("fedcor", **parameters)


def test_names_and_hyperparameters_as_texts():
    kinds = plugins.parameters_of(fedcor)[0]
    assert {name for name, kind in kinds.items() if kind.default is None} == set(kinds) - {"preset", "task"}
    values = plugins.convert_parameters(
        "--algo-args", "fedcor", fedcor, {"warmup": "20", "anneal": "0.9", "mean": "discounted"}
    )
    assert values == {"warmup": 20, "anneal": 0.9, "mean": "discounted"}
    assert fedcor(**values).name == "fedcor" and fedgp().name == "fedgp"


def largest_array(jaxpr) -> int:
    """Elements of the largest array that a program makes anywhere."""
    sizes = [0]
    for equation in jaxpr.eqns:
        sizes += [variable.aval.size for variable in equation.outvars if hasattr(variable.aval, "size")]
        for value in jax.tree.leaves(list(equation.params.values()), is_leaf=lambda leaf: hasattr(leaf, "eqns")):
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                sizes.append(largest_array(inner))
    return max(sizes)


@pytest.mark.fast_cases(5)
@pytest.mark.parametrize("preset", ["paper", "code-2022", "code-2023", "proxy", "fedgp"])
@pytest.mark.parametrize("everyone", [True, False])
def test_memory_is_linear_in_the_number_of_clients(preset, everyone):
    n = 997
    hooks = checks.traced(make(preset), (n, K, 500), everyone)
    for name, (hook, shapes) in hooks.items():
        assert largest_array(jax.make_jaxpr(hook)(*shapes).jaxpr) <= 120 * n, name  # samples: up to 100 x N


def test_memory_that_is_not_linear_is_found():
    hook, shapes = checks.traced(make("closed-form"), (997, K, 500), True)["observe"]
    assert largest_array(jax.make_jaxpr(hook)(*shapes).jaxpr) >= 997**2


@pytest.mark.parametrize("algo", ["fedcor", "fedgp"])
def test_importance_stays_above_zero_where_sizes_add_up_to_more_than_an_int32(algo):
    """As an int32 the sum of a thousand clients' three million examples each is below zero, and turns every choice."""
    sizes = jnp.full((1000,), 3_000_000, jnp.int32).at[7].set(2_900_000)
    env = Env(1000, 10, 40, 10, 100, sizes, jnp.full((1000,), 1e-3))
    np.testing.assert_allclose(importance_of(env, "shares"), sizes / (1000 * 3e6 - 1e5), rtol=1e-5)
    assert 7 not in ordered({"fedcor": fedcor, "fedgp": fedgp}[algo](), env)
