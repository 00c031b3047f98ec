"""The k-DPP against enumeration of all subsets."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from fedjax_sel.core.jax_settings import enable_x64
from fedjax_sel.numerics import kdpp

N, K, DRAWS = 6, 3, 40_000
SUBSETS = list(itertools.combinations(range(N), K))


def random_similarity(seed, n=N):
    a = np.random.default_rng(seed).normal(size=(n, n))
    return (a + a.T) / 2


def law_by_enumeration(kernel, k):
    """P(Y) = det L_Y / sum of all such determinants, in float64."""
    subsets = itertools.combinations(range(len(kernel)), k)
    determinants = np.array([max(np.linalg.det(kernel[np.ix_(s, s)]), 0.0) for s in subsets])
    return determinants / determinants.sum()


def counts_of_draws(key, eigenvalues, eigenvectors, n=N, k=K, draws=DRAWS):
    sample = jax.jit(jax.vmap(lambda key: kdpp.sample(key, eigenvalues, eigenvectors, k)))
    picked = np.sort(np.asarray(sample(jax.random.split(key, draws))), axis=1)
    assert (np.diff(picked, axis=1) > 0).all(), "an item stands twice in a sample"
    codes, counts = np.unique(picked @ n ** np.arange(k), return_counts=True)
    by_code = dict(zip(codes, counts))
    return np.array([by_code.get(int(np.array(s) @ n ** np.arange(k)), 0) for s in itertools.combinations(range(n), k)])


def assert_law(counts, law):
    possible = law > 1e-9
    assert counts[~possible].sum() == 0
    if possible.sum() == 1:
        return
    assert stats.chisquare(counts[possible], law[possible] * counts.sum()).pvalue > 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_samples_follow_the_determinant(seed):
    similarity = random_similarity(seed)
    pairs = kdpp.eigendecompose(jnp.asarray(similarity, jnp.float32))
    counts = counts_of_draws(jax.random.key(seed), *pairs)
    assert_law(counts, law_by_enumeration(similarity @ similarity, K))


def test_the_law_does_not_depend_on_the_order_of_the_eigenvalues():
    similarity = random_similarity(3)
    values, vectors = kdpp.eigendecompose(jnp.asarray(similarity, jnp.float32))
    shuffled = np.random.default_rng(0).permutation(N)
    counts = counts_of_draws(jax.random.key(3), values[shuffled], vectors[:, shuffled])
    assert_law(counts, law_by_enumeration(similarity @ similarity, K))


def test_identity_gives_uniform_subsets():
    counts = counts_of_draws(jax.random.key(0), *kdpp.eigendecompose(jnp.eye(N)))
    assert_law(counts, np.full(len(SUBSETS), 1 / len(SUBSETS)))


@pytest.mark.slow
def test_duplicates_are_never_drawn_together():
    base = random_similarity(4, 4)
    kernel = np.block(
        [[base @ base, (base @ base)[:, :1]], [(base @ base)[:1], (base @ base)[:1, :1]]]
    )  # item 4 = item 0
    values, vectors = np.linalg.eigh(kernel)
    values = np.where(values > 1e-9, values, 0.0)
    sample = jax.vmap(lambda key: kdpp.sample(key, jnp.float32(values), jnp.float32(vectors), 3))
    picked = np.asarray(sample(jax.random.split(jax.random.key(0), 5000)))
    assert not ((picked == 0).any(axis=1) & (picked == 4).any(axis=1)).any()
    assert (picked == 4).any()


@pytest.mark.parametrize("k", [1, N - 1, N])
def test_extreme_sizes(k):
    similarity = random_similarity(5)
    pairs = kdpp.eigendecompose(jnp.asarray(similarity, jnp.float32))
    counts = counts_of_draws(jax.random.key(5), *pairs, k=k, draws=5000)
    assert_law(counts, law_by_enumeration(similarity @ similarity, k))


@pytest.mark.fast_cases(4)
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("zeros", [0, 2])
def test_inclusion_probabilities(seed, zeros):
    similarity = random_similarity(seed, 7)
    values, vectors = np.linalg.eigh(similarity)
    values[:zeros] = 0.0
    kernel = (vectors * values**2) @ vectors.T
    law = law_by_enumeration(kernel, K)
    expected = [sum(p for p, s in zip(law, itertools.combinations(range(7), K)) if i in s) for i in range(7)]
    found = kdpp.inclusion_probabilities(jnp.float32(values**2), jnp.float32(vectors), K)
    np.testing.assert_allclose(found, expected, atol=2e-5)
    np.testing.assert_allclose(found.sum(), K, rtol=1e-5)


def test_elementary_symmetric_polynomials_against_the_product_of_linear_factors():
    values = np.random.default_rng(0).gamma(1.0, size=9)
    expected = np.poly(-values)  # prod (x + lambda_i) has e_j as coefficients
    found = np.exp(kdpp.log_elementary_symmetric_polynomials(jnp.float32(values), 9))
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_polynomials_beyond_the_rank_are_zero_and_the_spread_of_real_profiles_fits():
    values = jnp.concatenate([jnp.zeros(88), jnp.full(2, 1e-5), jnp.linspace(1.0, 500.0, 10)])
    logs = np.asarray(kdpp.log_elementary_symmetric_polynomials(values, 20))
    assert np.isfinite(logs[:13]).all() and (logs[13:] == -np.inf).all()
    exact = np.array([np.log(np.poly(-np.asarray(values[88:], np.float64))[j]) for j in range(13)])
    np.testing.assert_allclose(logs[:13], exact, rtol=1e-4, atol=1e-3)


def test_eigenpairs_rebuild_the_kernel_and_small_eigenvalues_survive():
    # ten tight groups of ten: the eleventh eigenvalue is eight orders below the first
    rng = np.random.default_rng(0)
    profiles = np.repeat(rng.normal(size=(10, 30)), 10, axis=0) + 1e-4 * rng.normal(size=(100, 30))
    distances = np.linalg.norm(profiles[:, None] - profiles[None], axis=2)
    similarity = 1 - distances / distances.max()
    with enable_x64(True):
        values, vectors = jax.device_get(kdpp.eigendecompose(jnp.asarray(similarity)))
    exact = np.sort(np.linalg.eigvalsh(similarity) ** 2)
    np.testing.assert_allclose(values, exact, rtol=1e-6, atol=1e-20)
    np.testing.assert_allclose((vectors * values) @ vectors.T, similarity @ similarity, atol=1e-10)
    assert (np.asarray(values, np.float32) > 0).all()


@pytest.mark.parametrize("spread,rank", [(1e-4, 20), (0.0, 4), (np.inf, 0)])  # of the clients of a group
def test_the_decomposition_by_eigenvectors_is_that_by_singular_values(spread, rank):
    rng = np.random.default_rng(1)
    similarity = np.zeros((20, 20))
    if rank:
        profiles = np.repeat(rng.normal(size=(4, 8)), 5, axis=0) + spread * rng.normal(size=(20, 8))
        distances = np.linalg.norm(profiles[:, None] - profiles[None], axis=2)
        similarity = 1 - distances / distances.max()
    for num_available in (20, 13, 1, 0):
        available = rng.permutation(20) < num_available
        with enable_x64(True):
            given = jnp.asarray(similarity), jnp.asarray(available)
            (expected, left), (values, right) = jax.device_get(
                [kdpp._subset_by_lapack(*given), kdpp._subset_by_eigenvectors(*given)]
            )
        assert (values > 0).sum() == (expected > 0).sum() <= min(rank, num_available)
        np.testing.assert_allclose(values, expected, rtol=1e-8, atol=0)
        np.testing.assert_allclose((right * values) @ right.T, (left * expected) @ left.T, atol=1e-12)
        lengths = (right**2).sum(axis=0)
        np.testing.assert_allclose(right.T @ right, np.diag(np.round(lengths)), atol=1e-12)
        assert round(lengths.sum()) == num_available and not right[~available].any()


@pytest.mark.slow
@pytest.mark.parametrize("missing", [(), (1,), (0, 3, 6)])
@pytest.mark.parametrize("deficient", [False, True])
def test_subset_is_the_law_of_the_submatrix(missing, deficient):
    n = 8
    similarity = random_similarity(7, n)
    if deficient:
        values, vectors = np.linalg.eigh(similarity)
        values[np.argsort(np.abs(values))[:2]] = 0.0
        similarity = (vectors * values) @ vectors.T
    available = np.ones(n, bool)
    available[list(missing)] = False
    values, vectors = kdpp.eigendecompose_subset(jnp.float32(similarity), jnp.asarray(available))
    kernel = np.where(np.outer(available, available), similarity @ similarity, 0.0)
    np.testing.assert_allclose((vectors * values) @ vectors.T, kernel, atol=1e-4)
    columns = np.asarray((vectors**2).sum(axis=0))
    np.testing.assert_allclose(np.sort(columns), np.sort(available.astype(float)), atol=1e-5)
    counts = counts_of_draws(jax.random.key(0), values, vectors, n=n)
    assert_law(counts, law_by_enumeration(kernel, K))
