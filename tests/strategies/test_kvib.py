"""K-Vib against a NumPy twin over many rounds, with lost reports and unavailable clients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedjax_sel
from fedjax_sel.strategies.contract import Selection
from fedjax_sel.strategies.kvib import State, kvib, probabilities
from tests.strategies import hooks
from tests.strategies.hooks import env_of, now_of, outcome_of
from tests.strategies.test_ocs import optimal

N, K, T = 12, 3, 40


class Twin:
    """The sampler in float64, with the closed form of the probabilities."""

    def __init__(self, importance, theta, bound, root):
        self.importance, self.theta, self.bound, self.root = importance, theta, bound, root
        self.omega = np.zeros(N)

    def probabilities(self, available):
        n, p = available.sum(), np.zeros(N)
        gamma = (self.bound or 0.0) ** 2 * N / (self.theta * K)
        a = self.omega + gamma if self.bound else np.ones(N)
        a = np.sqrt(a) if self.root else a
        p[available] = optimal(a[available], K) if n > K else 1.0
        return np.where(available, (1 - self.theta) * p + self.theta * min(1, K / n), 0.0)

    def learn(self, ids, norms, p):
        pi = self.importance[ids] * norms
        self.omega[ids] += pi**2 / p[ids]
        if self.bound is None and len(ids):
            self.bound = pi.max()


@pytest.mark.fast_cases(1)
@pytest.mark.parametrize("parameters", [{}, {"theta": 0.1, "law": "linear"}, {"bound": 0.05}])
def test_probabilities_equal_the_twins_over_forty_rounds(parameters):
    strategy, rng = kvib(**parameters), np.random.default_rng(0)
    sizes = rng.integers(5, 60, N)
    env = env_of(sizes, K, T)
    state = hooks.started(strategy, now_of(env))
    select, update, inclusion = map(jax.jit, (strategy.select, strategy.update, strategy.inclusion))
    theta = parameters.get("theta", (N / (T * K)) ** (1 / 3))
    twin = Twin(sizes / sizes.sum(), theta, parameters.get("bound"), parameters.get("law") != "linear")
    spread = []
    for round in range(T):
        available = rng.random(N) < (1.0 if round % 3 else 0.7)
        now = now_of(env, None, round, None if available.all() else jnp.asarray(available))
        p = twin.probabilities(available)
        np.testing.assert_allclose(inclusion(state, now), p, rtol=1e-4, atol=1e-7)
        answer = select(jax.random.key(round), state, now)
        ids, mask = np.asarray(answer.ids), np.asarray(answer.mask)
        shares = np.where(available, sizes, 0) / sizes[available].sum()
        np.testing.assert_allclose(
            answer.weights, np.where(mask, shares[ids] / np.where(mask, p[ids], 1), 0), rtol=1e-4
        )
        arrived, finite = mask & (rng.random(len(ids)) < 0.8), rng.random(len(ids)) < 0.9
        updates = rng.normal(size=(len(ids), 7)) * (1 + ids[:, None])
        updates[~finite] = np.nan
        tree = {"a": jnp.float32(updates[:, :3]), "b": jnp.float32(updates[:, 3:].reshape(-1, 2, 2))}
        state = update(state, now, answer, outcome_of(arrived, tree, finite))
        counts = arrived & finite
        twin.learn(ids[counts], np.linalg.norm(updates[counts], axis=1), p)
        np.testing.assert_allclose(state.feedback, twin.omega, rtol=1e-4, atol=1e-7)
        spread.append(p[available].max() / p[available].min())
    assert spread[0] == 1 and max(spread) > 1.5


def test_one_step_by_hand():
    """N = 4, K = 2, equal clients: omega = (0.04, 0, 0, 0) and gamma = 0.01 give a = (0.2236, 0.1, 0.1, 0.1)."""
    strategy = kvib(theta=0.5, bound=0.05)  # gamma = 0.0025 * 4 / (0.5 * 2) = 0.01
    now = now_of(env_of([10] * 4, 2))
    state = hooks.started(strategy, now)
    np.testing.assert_allclose(strategy.inclusion(state, now), 0.5)
    ids, mask = jnp.array([0, 0, 0, 0]), jnp.array([True, False, False, False])
    norm = 4 * np.sqrt(0.04 * 0.5)  # pi = norm / 4, and pi^2 / p = 0.04
    outcome = outcome_of(mask, {"a": jnp.full((4, 1), norm)}, jnp.ones(4, bool))
    state = strategy.update(state, now, Selection(ids, None, mask), outcome)
    np.testing.assert_allclose(state.feedback, [0.04, 0, 0, 0], rtol=1e-5)
    a = np.sqrt([0.05, 0.01, 0.01, 0.01])
    np.testing.assert_allclose(strategy.inclusion(state, now), 0.5 * 2 * a / a.sum() + 0.5 * 0.5, rtol=1e-5)


@pytest.mark.parametrize("norm", [1e17, 1e20])
def test_an_update_whose_square_overflows_changes_nothing(norm):
    strategy, now = kvib(theta=0.5), now_of(env_of([10] * 4, 2))
    state = hooks.started(strategy, now)
    cohort = Selection(jnp.arange(2), None, jnp.ones(2, bool))
    outcome = outcome_of([True, True], {"a": jnp.float32([[4.0], [norm]])}, jnp.ones(2, bool))
    state = strategy.update(state, now, cohort, outcome)
    np.testing.assert_allclose(state.feedback, [1 / 0.5, 0, 0, 0])
    assert state.bound == 1 and np.isfinite(strategy.inclusion(state, now)).all()


def test_theta_is_at_most_one():
    state = State(bound=jnp.float32(0.1), feedback=jnp.arange(N) / 10)
    for rounds, theta in ((1, 1.0), (500, (N / (500 * K)) ** (1 / 3))):
        found = kvib().inclusion(state, now_of(env_of([10] * N, K, rounds)))
        np.testing.assert_allclose(found, probabilities(state.feedback, state.bound, theta, K, "root", None), rtol=1e-6)
        assert (found.max() > 1.01 * found.min()) == (theta < 1)


@pytest.mark.slow
@pytest.mark.parametrize("algo", ["ocs", "kvib", "kvib[law=linear]"])
@pytest.mark.parametrize("optimizer", ["fedavg", "scaffold", "fedadam"])
def test_it_learns_under_other_optimizers_with_failures(algo, optimizer):
    config = fedjax_sel.preset("quickstart").replace(
        rounds=20, seeds=2, optimizer=optimizer, available="0.8", report_failure_rate=0.1, timing="tiers"
    )
    name, _, rest = algo.partition("[")
    result = fedjax_sel.run(config.replace(algo=name, algo_args=dict([rest[:-1].split("=")]) if rest else {}))
    assert np.isfinite(result.test_loss).all() and (result.test_loss[:, -1] < result.test_loss[:, 0]).all()
