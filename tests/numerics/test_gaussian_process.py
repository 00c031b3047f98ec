"""The Gaussian process of FedCor against dense float64 mathematics and against the facts that its paper proves."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from fedjax_sel.core.jax_settings import enable_x64
from fedjax_sel.numerics import gaussian_process as gp
from fedjax_sel.numerics.gaussian_process import optimal_embeddings


def twin_picks(sigma, p, alpha, k, mean=None, allowed=None):
    """Alg. 1 as printed: predict every client's loss change, take the best for the weighted mean, condition on it."""
    n = len(p)
    mean, sigma = (np.zeros(n) if mean is None else mean.copy()), sigma.copy()
    picks, gains = [], []
    for _ in range(k):
        best, best_total = None, np.inf
        for c in range(n):
            if c in picks or (allowed is not None and not allowed[c]):
                continue
            value = mean[c] - alpha[c] * np.sqrt(sigma[c, c])
            total = sum(p[i] * (mean[i] + sigma[i, c] * (value - mean[c]) / sigma[c, c]) for i in range(n))
            if total < best_total:
                best, best_total = c, total
        value = mean[best] - alpha[best] * np.sqrt(sigma[best, best])
        gains.append(p @ mean - best_total)
        mean = mean + sigma[:, best] * (value - mean[best]) / sigma[best, best]
        sigma = sigma - np.outer(sigma[:, best], sigma[best]) / sigma[best, best]
        picks.append(best)
    return picks, gains


def instance(seed, d, n):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(d, n)) / np.sqrt(d)
    return x, rng.dirichlet(np.ones(n) * 3), rng.uniform(0.5, 1, n), rng


greedily = jax.jit(gp.select_greedily, static_argnums=3)
gains_of = jax.jit(gp.posterior_gains)
fit = jax.jit(gp.fit_embeddings)


def covariance(x, noise):
    return x.T @ x + noise**2 * jnp.eye(x.shape[1])


def log_likelihood(x, residuals, weights, noise):
    return weights @ jax.scipy.stats.multivariate_normal.logpdf(residuals, jnp.zeros(x.shape[1]), covariance(x, noise))


likelihood = jax.jit(log_likelihood)


def float32(*arrays):
    return [jnp.asarray(array, jnp.float32) for array in arrays]


@pytest.mark.parametrize("d,n,k", [(15, 20, 10), (4, 12, 4), (3, 9, 7), (2, 6, 6)])  # the last two: beyond the rank
def test_picks_equal_the_dense_twins(d, n, k):
    cases = [instance(seed, d, n)[:3] for seed in range(100)]
    with enable_x64(k > d):  # beyond the rank all that is left is noise^2, which float32 does not resolve
        batch = [
            jnp.stack([jnp.asarray(case[i], jnp.float64 if k > d else jnp.float32) for case in cases]) for i in range(3)
        ]
        picks = np.asarray(jax.jit(jax.vmap(lambda x, p, a: gp.select_greedily(x, p, a, k, 0.05)))(*batch))
    for (x, p, alpha), ids in zip(cases, picks):
        assert list(ids) == twin_picks(x.T @ x + 0.05**2 * np.eye(n), p, alpha, k)[0]


def test_picks_equal_those_by_posterior():
    k, noise = 6, 0.05

    def by_posterior(x, p, alpha):
        mean, sigma = jnp.zeros(12), covariance(x, noise)
        taken, ids = jnp.zeros(12, bool), []
        for _ in range(k):
            spread = jnp.sqrt(jnp.where(taken, 1.0, jnp.diagonal(sigma)))
            score = jnp.where(taken, -jnp.inf, alpha * (p @ sigma) / spread)
            best = jnp.argmax(score)
            mean, sigma = gp.posterior(mean, sigma, best, mean[best] - alpha[best] * spread[best])
            taken, ids = taken.at[best].set(True), [*ids, best]
        return jnp.stack(ids)

    with enable_x64(True):
        cases = [instance(1000 + seed, 4, 12)[:3] for seed in range(200)]
        batch = [jnp.asarray(np.stack([case[i] for case in cases])) for i in range(3)]
        dense = jax.jit(jax.vmap(by_posterior))(*batch)
        cheap = jax.jit(jax.vmap(lambda x, p, a: gp.select_greedily(x, p, a, k, noise)))(*batch)
    np.testing.assert_array_equal(dense, cheap)


@pytest.mark.parametrize("seed", range(20))
def test_mean_and_a_common_factor_of_alpha_drop_out(seed):
    x, p, alpha, rng = instance(seed, 5, 12)
    sigma = x.T @ x + 1e-4 * np.eye(12)
    picks, _ = twin_picks(sigma, p, alpha, 5)
    assert picks == twin_picks(sigma, p, 7.3 * alpha, 5, mean=rng.normal(size=12))[0]
    for factor in (1.0, 7.3, 1e-6):
        assert picks == list(greedily(*float32(x, p, factor * alpha), 5, 0.01))


@pytest.mark.parametrize("seed", range(50))
def test_first_and_second_pick_are_those_of_equations_12_and_13(seed):
    x, p, alpha, _ = instance(seed, 5, 10)
    sigma = x.T @ x + 1e-4 * np.eye(10)
    spread = np.sqrt(np.diag(sigma))
    r = sigma / np.outer(spread, spread)
    first = alpha * ((p * spread) @ r)
    k1 = int(np.argmax(first))
    with np.errstate(divide="ignore", invalid="ignore"):
        second = alpha * ((p * spread) @ r - r[k1] * ((p * spread) @ r[:, k1])) / np.sqrt(1 - r[k1] ** 2)
    second[k1] = -np.inf
    ids = greedily(*float32(x, p, alpha), 2, 0.01)
    assert list(ids) == [k1, int(np.argmax(second))]
    gains = gains_of(*float32(x, p, alpha), ids, 0.01)
    np.testing.assert_allclose(gains, [first.max(), second.max()], rtol=1e-4)


@pytest.mark.parametrize("seed", range(20))
def test_gains_are_the_predicted_decreases_and_bounded(seed):
    x, p, alpha, _ = instance(seed, 6, 12)
    sigma = x.T @ x + 1e-4 * np.eye(12)
    picks, gains = twin_picks(sigma, p, alpha, 6)
    found = np.asarray(gains_of(*float32(x, p, alpha), jnp.asarray(picks), 0.01))
    np.testing.assert_allclose(found, gains, rtol=2e-3, atol=1e-5)
    assert (np.abs(found) / alpha[picks] <= np.sqrt(p @ sigma @ p) * (1 + 1e-5)).all()  # Cauchy and Schwarz


@pytest.mark.slow
def test_conditioning_on_everybody_keeps_the_covariance_symmetric_and_positive():
    x, p, _, rng = instance(3, 5, 15)
    with enable_x64(True):
        mean, sigma = jnp.asarray(rng.normal(size=15)), covariance(jnp.asarray(x), 0.01)
        values = rng.normal(size=15)
        for client in rng.permutation(15):
            mean, sigma = gp.posterior(mean, sigma, int(client), values[client])
            np.testing.assert_allclose(sigma, sigma.T, atol=1e-14)
            assert (jnp.diagonal(sigma) >= -1e-10).all()
            assert np.abs(sigma[client]).max() < 1e-12 and abs(mean[client] - values[client]) < 1e-9
            remaining = np.setdiff1d(np.arange(15), [client])
            np.testing.assert_allclose(p @ sigma, p[remaining] @ sigma[remaining], atol=1e-12)
    np.testing.assert_allclose(mean, values, atol=1e-6)


@pytest.mark.parametrize("seed", range(5))
def test_posterior_equals_joint_conditioning(seed):
    x, _, _, rng = instance(seed, 4, 9)
    with enable_x64(True):
        prior = covariance(jnp.asarray(x), 0.1)
        mu, known, values = rng.normal(size=9), [7, 2, 5], rng.normal(size=3)
        mean, sigma = jnp.asarray(mu), prior
        for client, value in zip(known, values):
            mean, sigma = gp.posterior(mean, sigma, client, value)
    full = x.T @ x + 0.01 * np.eye(9)
    solve = full[:, known] @ np.linalg.inv(full[np.ix_(known, known)])
    np.testing.assert_allclose(mean, mu + solve @ (values - mu[known]), atol=1e-10)
    np.testing.assert_allclose(sigma, full - solve @ full[known], atol=1e-10)


def test_one_of_each_group():
    groups = np.tile(np.arange(5), 4)
    x = jnp.asarray(np.eye(5)[groups].T, jnp.float32)
    pick = jax.jit(jax.vmap(lambda key: gp.select_greedily(x, jnp.ones(20) / 20, jnp.ones(20), 5, 0.01, key)))
    ids = np.asarray(pick(jax.random.split(jax.random.key(0), 4000)))
    assert (np.sort(groups[ids], axis=1) == np.arange(5)).all()
    assert stats.chisquare(np.bincount(ids.reshape(-1), minlength=20)).pvalue > 1e-4  # ties are broken at random
    first = greedily(x, jnp.ones(20) / 20, jnp.ones(20), 5, 0.01)
    np.testing.assert_array_equal(first, np.arange(5))  # without a key by index


@pytest.mark.slow
def test_figure_1_of_fedgp():
    position = np.arange(30)
    sigma = np.exp(-((position[:, None] - position) ** 2) / 25)
    p = np.ones(30) / 30
    assert twin_picks(sigma, p, np.ones(30), 3)[0] in ([14, 23, 5], [15, 6, 24])
    scores, mean, rest = [], jnp.zeros(30), jnp.asarray(sigma)
    for client in (14, 23, 5):
        scores.append(float(p @ rest[:, client] / jnp.sqrt(rest[client, client])))
        mean, rest = gp.posterior(mean, rest, client, -1.0)
    np.testing.assert_allclose(scores, [0.2954, 0.2744, 0.2670], atol=5e-5)
    # The same through embeddings: X^T X + noise^2 I with d = N.
    eigenvalues, vectors = np.linalg.eigh(sigma - 1e-6 * np.eye(30))
    x = (vectors * np.sqrt(np.maximum(eigenvalues, 0))).T
    with enable_x64(True):
        picks = list(gp.select_greedily(jnp.asarray(x), jnp.asarray(p), jnp.ones(30), 3, 1e-3))
        gains = gains_of(jnp.asarray(x), jnp.asarray(p), jnp.ones(30), jnp.asarray(picks), 1e-3)
    assert picks in ([14, 23, 5], [15, 6, 24])
    np.testing.assert_allclose(gains, [0.2954, 0.2744, 0.2670], atol=5e-5)


def test_unavailable_clients_come_last_and_stay_in_the_gaussian():
    for seed in range(30):
        x, p, alpha, rng = instance(seed, 8, 12)
        available = rng.permutation(12) < 6
        expected, _ = twin_picks(x.T @ x + 1e-4 * np.eye(12), p, alpha, 5, allowed=available)
        found = greedily(*float32(x, p, alpha), 5, 0.01, None, jnp.asarray(available))
        assert list(found) == expected
        more = greedily(*float32(x, p, alpha), 9, 0.01, jax.random.key(seed), jnp.asarray(available))
        assert available[np.asarray(more)[:6]].all() and len(set(np.asarray(more).tolist())) == 9


def test_known_clients_come_after_the_others():
    x = jnp.asarray([[1.0, 1.0, 0.1, 0.0], [0.0, 0.0, 0.0, 0.1]])  # without noise, 0 tells all about 1 and 2
    ids = greedily(x, jnp.asarray([0.4, 0.4, 0.1, 0.1]), jnp.ones(4), 4, 0.0)
    assert list(ids)[:2] == [0, 3] and sorted(ids.tolist()) == [0, 1, 2, 3]
    nothing = greedily(jnp.zeros((2, 4)), jnp.ones(4) / 4, jnp.ones(4), 4, 0.0, jax.random.key(1))
    assert sorted(nothing.tolist()) == [0, 1, 2, 3]


@pytest.mark.slow
def test_gradient_equals_finite_differences_and_automatic_ones():
    x, _, _, rng = instance(0, 4, 9)
    with enable_x64(True):
        rest = (jnp.asarray(rng.normal(size=(6, 9))), jnp.asarray(rng.uniform(0, 1, 6)), 0.2)
        found = np.asarray(gp.log_likelihood_gradient(jnp.asarray(x), *rest))
        np.testing.assert_allclose(found, jax.grad(log_likelihood)(jnp.asarray(x), *rest), rtol=1e-8, atol=1e-8)
        for row in range(4):
            for column in range(9):
                step = np.zeros_like(x)
                step[row, column] = 1e-5
                up, down = (float(likelihood(jnp.asarray(x + s), *rest)) for s in (step, -step))
                assert abs((up - down) / 2e-5 - found[row, column]) < 1e-5 * max(1.0, abs(found[row, column]))


def twin_adam(x, residuals, weights, noise, steps, rate):
    """The authors' fit: Adam on the dense negative log-likelihood."""
    n = x.shape[1]
    first, second = np.zeros_like(x), np.zeros_like(x)
    moment = sum(g * np.outer(r, r) for g, r in zip(weights, residuals))
    for t in range(1, steps + 1):
        inverse = np.linalg.inv(x.T @ x + noise**2 * np.eye(n))
        gradient = x @ (weights.sum() * inverse - inverse @ moment @ inverse)
        first, second = 0.9 * first + 0.1 * gradient, 0.999 * second + 0.001 * gradient**2
        x = x - rate * (first / (1 - 0.9**t)) / (np.sqrt(second / (1 - 0.999**t)) + 1e-8)
    return x


def test_fit_equals_the_twins_adam():
    for seed in range(20):
        x, _, _, rng = instance(seed, 4, 10)
        residuals, weights = rng.normal(size=(6, 10)), rng.uniform(0.1, 1, 6)
        expected = twin_adam(x, residuals, weights, 0.1, 60, 0.01)
        with enable_x64(True):
            exact = fit(*map(jnp.asarray, (x, residuals, weights)), 0.1, 60, 0.01)
        np.testing.assert_allclose(exact, expected, atol=1e-9)
        np.testing.assert_allclose(fit(*float32(x, residuals, weights), 0.1, 60, 0.01), expected, atol=2e-3)


def test_fit_of_a_batch_with_traced_or_static_steps():
    x, _, _, rng = instance(1, 3, 8)
    residuals, weights = float32(rng.normal(size=(4, 5, 8)), np.ones(5))
    (start,) = float32(x)
    batched = jax.jit(jax.vmap(lambda r: gp.fit_embeddings(start, r, weights, 0.1, 10, 0.01)))(residuals)
    for one, r in zip(batched, residuals):
        traced = fit(start, r, weights, 0.1, jnp.int32(10), 0.01)
        np.testing.assert_allclose(one, traced, atol=1e-5)


def test_fit_without_weight_or_with_a_broken_sample_keeps_the_embeddings():
    (x,) = float32(instance(2, 3, 8)[0])
    kept = fit(x, jnp.ones((2, 8)), jnp.zeros(2), 0.01, 50, 0.01)
    np.testing.assert_array_equal(kept, x)
    kept = fit(x, jnp.full((2, 8), jnp.nan), jnp.ones(2), 0.01, 50, 0.01)
    np.testing.assert_array_equal(kept, x)
    huge = fit(x, jnp.full((2, 8), 1e6), jnp.ones(2), 0.01, 50, 0.01)
    assert jnp.isfinite(huge).all() and not (huge == x).all()


@pytest.mark.slow
def test_many_clients_with_an_indefinite_rounded_matrix():
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.normal(size=(15, 1)) @ rng.normal(size=(1, 20_000)), jnp.float32)  # rank 1, eigenvalue 3e5
    assert jnp.isnan(jnp.linalg.cholesky(x @ x.T + 1e-4 * jnp.eye(15))).any()
    gradient = gp.log_likelihood_gradient(x, jnp.ones((2, 20_000)), jnp.ones(2), 0.01)
    assert jnp.isfinite(gradient).all()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_closed_form_is_the_optimum_that_long_fits_approach(seed):
    rng = np.random.default_rng(seed)
    n, d, noise = 8, 2, 0.3
    true = rng.normal(size=(d, n))
    samples = rng.multivariate_normal(np.zeros(n), true.T @ true + noise**2 * np.eye(n), size=40)
    weights = rng.uniform(0.2, 1, 40)
    second = np.einsum("s,si,sj->ij", weights, samples, samples) / weights.sum()
    with enable_x64(True):
        rest = (jnp.asarray(samples), jnp.asarray(weights), noise)
        best = optimal_embeddings(jnp.asarray(second), d, noise)
        assert np.abs(gp.log_likelihood_gradient(best, *rest)).max() < 1e-9 * np.abs(samples).sum()
        top = float(likelihood(best, *rest))
        start = jnp.asarray(rng.normal(size=(d, n)) / np.sqrt(d))
        short, long = (fit(start, *rest, steps, 0.01) for steps in (100, 4000))
        likelihoods = [float(likelihood(x, *rest)) for x in (start, short, long)]
    assert likelihoods[0] < likelihoods[1] < top and likelihoods[2] <= top + 1e-9
    assert top - likelihoods[2] < 1e-4 * abs(top)
    short, long, best = map(np.asarray, (short, long, best))
    assert np.abs(long.T @ long - best.T @ best).max() < 0.02 * np.abs(best.T @ best).max()
    assert np.abs(short.T @ short - best.T @ best).max() > 0.1 * np.abs(best.T @ best).max()


def test_closed_form_with_few_samples_or_a_large_dimension():
    sample = np.random.default_rng(0).normal(size=6)
    best = optimal_embeddings(jnp.asarray(np.outer(sample, sample), jnp.float32), 9, 0.1)
    assert best.shape == (9, 6)
    assert (np.abs(best[1:]) < 1e-6).all()  # one sample, one direction
    np.testing.assert_allclose(best.T @ best, np.outer(sample, sample) * (1 - 0.01 / (sample @ sample)), atol=1e-5)


def test_embeddings_find_groups_and_cohorts_cover_them():
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(10), 10)
    changes = 0.1 * rng.normal(size=(16, 10))[:, labels] + 0.01 * rng.normal(size=(16, 100))
    start = rng.normal(size=(15, 100)) / np.sqrt(15)

    def purity(x):
        x = x / np.linalg.norm(x, axis=0)
        similarity = x.T @ x - 2 * np.eye(100)
        return (labels[similarity.argmax(axis=1)] == labels).mean()

    fitted = np.asarray(fit(*float32(start, changes, 0.95 ** np.arange(16)), 0.01, 1000, 0.01))
    assert purity(start) < 0.3
    assert purity(fitted) > 0.9
    ids = np.asarray(greedily(*float32(fitted, np.ones(100) / 100, np.ones(100)), 10, 0.01))
    assert len(set(labels[ids])) >= 9  # 6.5 for random cohorts
