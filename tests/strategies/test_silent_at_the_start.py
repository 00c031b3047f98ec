"""Clients that never answered the question before the first round, as a server of real clients may have them.

Their rows of the tables are zeros of age NEVER, which are no losses, no profiles and no gradients.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_sel import strategies
from fedjax_sel.core.jax_settings import enable_x64
from fedjax_sel.strategies.afl import known_or_largest
from fedjax_sel.strategies.contract import Selection
from fedjax_sel.strategies.facts import NEVER
from fedjax_sel.strategies.fl_dp3s import similarity_of_profiles
from tests.strategies import hooks
from tests.strategies.hooks import env_of, info_of, now_of, outcome_of

N, K, SILENT = 8, 3, 5
RNG = np.random.default_rng(3)
PROFILES = RNG.normal(loc=5.0, size=(N, 4)).astype(np.float32)
PROFILES[SILENT] = 0.0
AGE = np.where(np.arange(N) == SILENT, NEVER, 0).astype(np.int32)


def started(name, kind, table, **parameters):
    strategy = strategies.make(name, **parameters)
    now = now_of(env_of([10] * N, K), info_of(strategy.name, **{kind: (table, AGE)}))
    return strategy, hooks.started(strategy, now, 9), now._replace(round=jnp.int32(1))


def often(strategy, state, now, count=4000):
    """How often each client is in a cohort."""
    select = jax.jit(jax.vmap(lambda key: strategy.select(key, state, now).ids))
    ids = np.asarray(select(jax.random.split(jax.random.key(0), count)))
    return np.bincount(ids.ravel(), minlength=N) / count


@pytest.mark.slow
@pytest.mark.parametrize("pool", [None, N])
def test_fl_dp3s_takes_them_for_nobody_special(pool):
    strategy, state, now = started("fl_dp3s", "profile", PROFILES, pool=pool)
    others = np.arange(N) != SILENT
    if pool is None:
        with enable_x64(True):
            expected = similarity_of_profiles(jnp.float64(PROFILES[others]))
        np.testing.assert_allclose(state.similarity[others][:, others], expected, rtol=1e-5, atol=1e-6)
    found = often(strategy, state, now)
    assert 0 < found[SILENT] < found[others].min()  # zeros, far from all, would be in nearly every cohort


@pytest.mark.slow
def test_divfl_lets_them_represent_nobody_else():
    strategy, state, now = started("divfl", "gradient", PROFILES)
    others = np.arange(N) != SILENT
    largest = state.distances[others][:, others].max()
    np.testing.assert_array_equal(state.distances[SILENT, others], largest)
    assert state.distances[SILENT, SILENT] == 0
    found = often(strategy, state, now, 200)
    assert found[SILENT] == 1.0  # nobody stands for it, so that it is tried
    assert (found[others] == 1.0).sum() == K - 1  # beside those who represent the others
    # Members that report say nothing of who is still silent, nor does a silent member without a gradient.
    ids = jnp.int32([0, SILENT, 2])
    after = strategy.update(state, now, Selection(ids, None, jnp.ones(K, bool)), outcome_of([True] * K))
    np.testing.assert_array_equal(after.distances[SILENT], state.distances[SILENT])
    np.testing.assert_allclose(after.distances, state.distances, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_divfl_tries_the_silent_where_nobody_answered_at_first(monkeypatch):
    """At no distance from anybody they would stand for everybody, and be selected first for ever."""
    monkeypatch.setitem(globals(), "AGE", np.full(N, NEVER, np.int32))
    strategy, state, now = started("divfl", "gradient", np.zeros((N, 4), np.float32))
    members = jnp.int32([0, 1, 2])
    age = np.full(N, NEVER, np.int32)
    age[members] = 0
    now = now_of(now.env, info_of("divfl", gradient=(PROFILES, age)))
    after = strategy.update(state, now, Selection(members, None, jnp.ones(3, bool)), outcome_of([True] * 3)).distances
    largest = after[members][:, members].max()
    assert largest > 0
    np.testing.assert_array_equal(after[3:, :3], largest)
    np.testing.assert_array_equal(after[3:, 3:], largest * (1 - np.eye(N - 3)))


@pytest.mark.parametrize(
    "name,parameters", [("afl", {"alpha3": 0.0}), ("fedsae", {"temperature": 1.0}), ("fedsae", {"variant": "greedy"})]
)
def test_losses_that_nobody_told_are_like_the_largest(name, parameters):
    losses = np.float32([1, 2, 3, 1, 2, 0, 1, 4])
    found = often(*started(name, "loss", losses, **parameters))
    assert found[SILENT] == pytest.approx(found[7], abs=0.06) and found[SILENT] > 0.5


@pytest.mark.slow
def test_where_nobody_answered_all_are_alike(monkeypatch):
    monkeypatch.setitem(globals(), "AGE", np.full(N, NEVER, np.int32))
    for name, kind, table in (
        ("fl_dp3s", "profile", np.zeros((N, 4), np.float32)), ("divfl", "gradient", np.zeros((N, 4), np.float32)),
        ("afl", "loss", np.zeros(N, np.float32)), ("fedsae", "loss", np.zeros(N, np.float32)),
    ):  # fmt: skip
        np.testing.assert_allclose(often(*started(name, kind, table)), K / N, atol=0.05)


def test_the_largest_loss_may_be_below_zero():
    """Losses of a task of one's own, such as logarithms of a density."""
    losses, age = jnp.asarray([-3.0, 0.0, -2.0]), jnp.asarray([0, NEVER, 4])
    np.testing.assert_array_equal(known_or_largest(losses, age), [-3.0, -2.0, -2.0])
    np.testing.assert_array_equal(known_or_largest(losses, jnp.full(3, NEVER)), [0.0, 0.0, 0.0])
