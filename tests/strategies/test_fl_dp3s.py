"""FL-DP3S against a slow NumPy twin and against the law that the paper states."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from fedjax_sel import metrics, strategies
from fedjax_sel.errors import UserError
from fedjax_sel.strategies.contract import UndeclaredFactError
from fedjax_sel.strategies.facts import NEVER
from fedjax_sel.strategies.fl_dp3s import known_or_mean, similarity_of_profiles
from tests.strategies.hooks import env_of, info_of, now_of, started
from tests.strategies.laws import assert_law


def twin_similarity(profiles):
    """Eq. 12 and 13 in float64 loops."""
    distances = np.array([[np.sqrt(((a - b) ** 2).sum()) for b in profiles] for a in profiles])
    return 1 - (distances - distances.min()) / (distances.max() - distances.min())


def twin_law(profiles, k, available=None):
    """Eq. 12-14 in float64 loops: the probability of every cohort."""
    n = len(profiles)
    similarity = twin_similarity(profiles)
    kernel = similarity.T @ similarity
    cohorts = [c for c in itertools.combinations(range(n), k) if available is None or all(available[i] for i in c)]
    weights = np.array([max(np.linalg.det(kernel[np.ix_(c, c)]), 0.0) for c in cohorts])
    return dict(zip(cohorts, weights / weights.sum()))


def begun(profiles, k, **parameters):
    """The strategy, its first state, and what the server knows in round 3."""
    strategy = strategies.make("fl_dp3s", **parameters)
    info = info_of(strategy.name, **{strategy.requests[0].kind: profiles})
    now = now_of(env_of([5] * len(profiles), k), info)
    return strategy, started(strategy, now), now._replace(round=jnp.int32(3))


def draw(strategy, state, now, count, available=None, seed=0):
    def select(key):
        return strategy.select(key, state, now._replace(available=available))

    return jax.device_get(jax.jit(jax.vmap(select))(jax.random.split(jax.random.key(seed), count)))


@pytest.mark.fast_cases(1)
@pytest.mark.parametrize("seed", range(4))
def test_cohorts_follow_the_twins_law(seed):
    profiles = np.random.default_rng(seed).normal(size=(6, 4))
    strategy, state, now = begun(profiles, 3)
    assert_law(draw(strategy, state, now, 20_000, seed=seed).ids, twin_law(profiles, 3))


def test_two_hundred_small_kernels_equal_the_twins():
    kernel = jax.jit(similarity_of_profiles)
    for seed in range(200):  # one shape, one compilation
        rng = np.random.default_rng(seed)
        profiles = rng.normal(size=(7, 5)) * 10 ** rng.uniform(-3, 3)
        distances = np.linalg.norm(profiles[:, None] - profiles[None], axis=2)
        np.testing.assert_allclose(kernel(jnp.float32(profiles)), 1 - distances / distances.max(), atol=2e-6)


@pytest.mark.slow
def test_availability_gives_the_law_of_the_submatrix():
    profiles = np.random.default_rng(9).normal(size=(7, 4))
    available = np.array([True, True, False, True, True, False, True])
    strategy, state, now = begun(profiles, 3)
    selection = draw(strategy, state, now, 20_000, available=jnp.asarray(available))
    assert selection.mask.all()
    assert_law(selection.ids, twin_law(profiles, 3, available))
    everyone = draw(strategy, state, now, 20_000, available=jnp.ones(7, bool))
    assert_law(everyone.ids, twin_law(profiles, 3))


def near_duplicates(seed, n=8, groups=3, noise=1e-6):
    """Profiles in groups, with what keeps those of a group apart at 1e-12 of the largest eigenvalue."""
    rng = np.random.default_rng(seed)
    centers = rng.normal(size=(groups, 4))[np.arange(n) % groups]
    return np.float32(centers + noise * rng.normal(size=(n, 4))).astype(np.float64)


def twin_law_of_near_duplicates(profiles, k, available):
    """`twin_law` where float64 would lose the determinants: det L_Y is the squared volume of S's columns of Y."""
    similarity = twin_similarity(profiles)
    cohorts = list(itertools.combinations(np.flatnonzero(available), k))
    logs = np.array([2 * np.log(np.linalg.svd(similarity[:, c], compute_uv=False)).sum() for c in cohorts])
    weights = np.exp(logs - logs.max())
    return dict(zip([tuple(map(int, c)) for c in cohorts], weights / weights.sum()))


@pytest.fixture
def on_a_tpu(monkeypatch):
    """Float64 is decomposed as it is there."""
    monkeypatch.setattr(jax.lax, "platform_dependent", lambda *given, tpu, **others: tpu(*given))


@pytest.fixture
def on_cuda(monkeypatch):
    """Float64 is decomposed as it is there."""
    monkeypatch.setattr(
        jax.lax, "platform_dependent", lambda *given, default, cuda=None, **others: (cuda or default)(*given)
    )


@pytest.mark.slow
def test_near_duplicates_keep_their_law_on_cuda(on_cuda):
    assert_law_of_near_duplicates_where_some_are_away(0)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_near_duplicates_keep_their_law_on_a_tpu(seed, on_a_tpu):
    assert_law_of_near_duplicates_where_some_are_away(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_near_duplicates_keep_their_law_where_some_are_away(seed):
    assert_law_of_near_duplicates_where_some_are_away(seed)


def assert_law_of_near_duplicates_where_some_are_away(seed):
    profiles, available = near_duplicates(seed), np.arange(8) != 6
    spectrum = np.linalg.svd(twin_similarity(profiles)[:, available], compute_uv=False) ** 2
    assert 1e-14 < spectrum[3] / spectrum[0] < 1e-11
    law = twin_law_of_near_duplicates(profiles, 5, available)
    assert max(law.values()) > 10 * min(law.values())
    strategy, state, now = begun(profiles, 5)
    assert_law(draw(strategy, state, now, 20_000, jnp.asarray(available)).ids, law)
    expected = [sum(p for cohort, p in law.items() if i in cohort) for i in range(8)]
    found = strategy.inclusion(state, now._replace(available=jnp.asarray(available)))
    np.testing.assert_allclose(found, expected, rtol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("n,k", [(50, 10), (100, 30)])
def test_inclusion_on_a_tpu_is_that_of_the_law(n, k, on_a_tpu):
    """In a chunk: under scan and vmap, each replicate with other clients away."""
    profiles = near_duplicates(0, n, groups=n // 5, noise=1e-4)
    strategy, state, now = begun(profiles, k)
    available = np.random.default_rng(0).random((3, n)) < 0.7
    available[2] = True

    def step(count, _):
        inclusion = jax.vmap(lambda there: strategy.inclusion(state, now._replace(available=there)))
        return count + 1, inclusion(jnp.asarray(available))

    count, (found, _) = jax.jit(lambda: jax.lax.scan(step, 0, length=2))()
    assert count.dtype == np.int32 and found.dtype == np.float32
    for there, ours in zip(available, found):
        similarity = twin_similarity(profiles)[:, there]
        expected = np.zeros(n)
        _, values, rows = np.linalg.svd(similarity)
        expected[there] = inclusion_of_spectrum(values**2, rows.T, k)
        np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("available", [None, [True] * 5 + [False, True, True]])
def test_near_duplicates_keep_their_law_in_a_pool(available):
    profiles = near_duplicates(1)
    there = np.ones(8, bool) if available is None else np.array(available)
    law = twin_law_of_near_duplicates(profiles, 5, there)
    given = None if available is None else jnp.array(available)
    assert_law(draw(*begun(profiles, 5, pool=8), 20_000, given).ids, law)


def inclusion_in_float64(kernel, k):
    return inclusion_of_spectrum(*np.linalg.eigh(kernel), k)


def inclusion_of_spectrum(values, vectors, k):
    """P(i in Y) = sum_n V_in^2 lambda_n e_{k-1}(lambda without n) / e_k(lambda), polynomials by their recurrence."""
    logs = np.log(np.maximum(values, 1e-300))

    def polynomials(logs):
        rows = [np.r_[0.0, np.full(k, -np.inf)]]
        for log in logs:
            rows.append(np.r_[0.0, np.logaddexp(rows[-1][1:], log + rows[-1][:-1])])
        return np.array(rows)

    before, after = polynomials(logs), polynomials(logs[::-1])[::-1]
    without = np.logaddexp.reduce(before[:-1, :k] + after[1:, :k][:, ::-1], axis=1)
    return vectors**2 @ np.exp(logs + without - before[-1, k])


@pytest.fixture(scope="module")
def thousand():
    """A thousand clients in ten groups of near-duplicates, of whom nine hundred are there; expected inclusion of 30."""
    rng = np.random.default_rng(0)
    profiles = np.repeat(rng.normal(size=(10, 16)), 100, axis=0) + 0.02 * rng.normal(size=(1000, 16))
    profiles = np.float32(profiles).astype(np.float64)
    available = np.ones(1000, bool)
    available[rng.choice(1000, 100, replace=False)] = False
    distances = np.stack([np.sqrt(((profiles - one) ** 2).sum(axis=1)) for one in profiles])
    similarity = (1 - distances / distances.max())[:, available]
    expected = np.zeros(1000)
    expected[available] = inclusion_in_float64(similarity.T @ similarity, 30)
    return begun(profiles, 30), jnp.asarray(available), expected


@pytest.mark.slow
def test_inclusion_among_a_thousand_near_duplicates(thousand):
    (strategy, state, now), available, expected = thousand
    found = jax.jit(strategy.inclusion)(state, now._replace(available=available))
    np.testing.assert_allclose(found, expected, rtol=1e-4)


@pytest.mark.slow
def test_a_thousand_near_duplicates_are_drawn_as_often_as_the_law_says(thousand):
    (strategy, state, now), available, expected = thousand

    @jax.jit
    def drawn(key):
        there = now._replace(available=available)
        return jax.vmap(lambda key: strategy.select(key, state, there).ids)(jax.random.split(key, 200))

    ids = np.concatenate([drawn(jax.random.key(seed)) for seed in range(10)])
    there = np.asarray(available)
    assert there[ids].all()
    shares, expected = np.bincount(ids.reshape(-1), minlength=1000)[there] / len(ids), expected[there]
    scores = (shares - expected) / np.sqrt(expected * (1 - expected) / len(ids))
    assert (scores**2).mean() < 1.15  # 1, give or take 0.05, where only chance keeps them apart
    groups = np.flatnonzero(there) // 100
    np.testing.assert_allclose(np.bincount(groups, shares), np.bincount(groups, expected), rtol=0.03)


def test_fewer_available_than_selected_gives_all_of_them():
    strategy, state, now = begun(np.random.default_rng(0).normal(size=(7, 4)), 4)
    available = jnp.array([False, True, False, False, True, False, False])
    selection = draw(strategy, state, now, 50, available=available)
    assert (selection.mask.sum(axis=1) == 2).all()
    assert (np.sort(np.where(selection.mask, selection.ids, 99), axis=1)[:, :2] == [1, 4]).all()


@pytest.mark.parametrize("broken", [np.nan, np.inf])
def test_a_profile_that_is_not_finite_is_as_one_that_never_came(broken):
    good = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)
    bad = good.copy()
    bad[2, 1] = broken
    asked, missing = np.zeros(6, np.int32), np.where(np.arange(6) == 2, NEVER, 0)
    np.testing.assert_array_equal(known_or_mean(jnp.array(bad), asked), known_or_mean(jnp.array(good), missing))


def test_equal_profiles_give_uniform_cohorts():
    strategy, state, now = begun(np.ones((8, 3)), 3)
    counts = np.bincount(draw(strategy, state, now, 20_000).ids.reshape(-1), minlength=8)
    assert stats.chisquare(counts).pvalue > 1e-4


@pytest.mark.slow
def test_more_clients_than_rank():
    profiles = np.repeat(np.eye(3), 3, axis=0)  # exact duplicates: rank 3
    strategy, state, now = begun(profiles, 3)
    assert int((state.eigenvalues > 0).sum()) == 3
    assert (np.sort(draw(strategy, state, now, 500).ids // 3, axis=1) == [0, 1, 2]).all()
    strategy, state, now = begun(profiles, 5)
    ids = draw(strategy, state, now, 500).ids
    assert all(len(set(row)) == 5 and set(row // 3) == {0, 1, 2} for row in ids)
    available = jnp.arange(9) < 6  # two groups of three left
    selection = draw(strategy, state, now, 500, available=available)
    assert selection.mask.all() and (selection.ids < 6).all()
    assert all(len(set(row)) == 5 for row in selection.ids)


@pytest.mark.parametrize("k", [1, 9, 10])
def test_extreme_cohort_sizes(k):
    strategy, state, now = begun(np.random.default_rng(1).normal(size=(10, 4)), k)
    ids = draw(strategy, state, now, 200).ids
    assert ids.shape == (200, k) and ids.dtype == np.int32
    assert all(len(set(row)) == k and min(row) >= 0 and max(row) < 10 for row in ids)


@pytest.mark.slow
def test_one_label_clients_in_ten_groups_make_cohorts_of_all_labels():
    rng = np.random.default_rng(0)
    profiles = np.repeat(rng.normal(size=(10, 64)), 10, axis=0) + 1e-3 * rng.normal(size=(100, 64))
    labels = jnp.asarray(np.repeat(np.eye(10, dtype=np.int32), 10, axis=0) * 600)
    strategy, state, now = begun(profiles, 10)

    def mean_gemd(ids):
        return jax.vmap(lambda row: metrics.group_earth_movers_distance(labels[row], labels.sum(axis=0)))(ids).mean()

    assert mean_gemd(draw(strategy, state, now, 100).ids) < 0.02
    uniform = np.stack([rng.choice(100, 10, replace=False) for _ in range(400)])
    assert abs(mean_gemd(uniform) - 0.66) < 0.03


@pytest.mark.slow
def test_compiled_equals_eager_and_batched_equals_single():
    strategy, state, now = begun(np.random.default_rng(3).normal(size=(12, 5)), 4)
    keys = jax.random.split(jax.random.key(5), 3)
    batched = draw(strategy, state, now, 3, seed=5).ids
    for key, ids in zip(keys, batched):
        np.testing.assert_array_equal(strategy.select(key, state, now).ids, ids)


@pytest.mark.parametrize(
    "profile,kind", [("fc1", "profile"), ("gradient", "gradient"), ("representative-gradient", "update")]
)
def test_what_it_buys(profile, kind):
    (request,) = strategies.make("fl_dp3s", profile=profile).requests
    assert request.kind == kind
    assert request.when.before_first_round and not request.when.rules


def test_reading_what_was_not_bought_names_strategy_and_fact():
    with pytest.raises(UndeclaredFactError, match=r"'fl_dp3s' reads the fact 'profile' without buying it"):
        started(strategies.make("fl_dp3s"), now_of(env_of([5] * 3, 2), info_of("fl_dp3s")))


@pytest.mark.parametrize("available", [None, [True, True, False, True, True]])
def test_a_pool_is_drawn_first_and_the_cohort_from_its_k_dpp(available):
    profiles = np.random.default_rng(3).normal(size=(5, 4))
    there = [i for i in range(5) if available is None or available[i]]
    law = dict.fromkeys(itertools.combinations(range(5), 2), 0.0)
    pools = list(itertools.combinations(there, 3))
    for pool in pools:
        for cohort, probability in twin_law(profiles[list(pool)], 2).items():
            law[tuple(pool[i] for i in cohort)] += probability / len(pools)
    given = None if available is None else jnp.array(available)
    assert_law(draw(*begun(profiles, 2, pool=3), 20_000, given).ids, law)


def test_a_pool_of_everyone_is_the_whole_law():
    profiles = np.random.default_rng(4).normal(size=(5, 4))
    assert_law(draw(*begun(profiles, 2, pool=5), 20_000).ids, twin_law(profiles, 2))


@pytest.mark.slow
def test_fewer_available_than_a_pool_or_a_cohort():
    profiles = np.random.default_rng(5).normal(size=(6, 4))
    for there in (2, 1, 0):
        selection = draw(*begun(profiles, 2, pool=4), 50, jnp.arange(6) < there)
        assert (selection.mask.sum(axis=1) == there).all()
        assert (np.sort(np.where(selection.mask, selection.ids, 9), axis=1)[:, :there] == np.arange(there)).all()


def test_a_pool_below_the_cohort_is_refused():
    with pytest.raises(UserError, match=r"pool=2 is below the cohort size 3; give at least 3"):
        draw(*begun(np.eye(5), 3, pool=2), 1)
    with pytest.raises(UserError, match=r"pool=6 exceeds the 5 clients; give at most 5"):
        draw(*begun(np.eye(5), 3, pool=6), 1)
