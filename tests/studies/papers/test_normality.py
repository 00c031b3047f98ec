"""Whether samples are Gaussian, and how alike covariances are: against SciPy, by hand, and by simulation."""

import warnings

import numpy as np
import pytest
from scipy import stats

from studies.papers import normality

RNG = np.random.default_rng


def test_anderson_darling_is_scipys():
    samples = RNG(0).gamma(2.0, size=(3, 40))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # newer versions ask which p-value is wanted
        expected = [stats.anderson(one, "norm").statistic for one in samples]
    np.testing.assert_allclose(normality.anderson_darling(samples), expected, rtol=1e-9)


def test_the_distance_is_scipys():
    samples = RNG(1).gamma(2.0, size=(3, 40))
    expected = [stats.kstest(one, stats.norm(one.mean(), one.std(ddof=1)).cdf).statistic for one in samples]
    np.testing.assert_allclose(normality.distance(samples), expected, rtol=1e-9)


def test_scale_and_place_do_not_matter_and_far_tails_are_finite():
    samples = RNG(2).normal(size=50)
    for of in (normality.distance, normality.anderson_darling):
        assert of(3 - 7 * samples) == pytest.approx(of(-samples))
        assert np.isfinite(of(np.append(np.zeros(2000), 1e9))) and np.isfinite(of(np.zeros(5)))


def test_principal_components_by_hand():
    along, across = np.array([0.6, 0.8]), np.array([-0.8, 0.6])
    ways, other = np.array([3.0, -3.0, 0.0, 0.0]), np.array([0.0, 0.0, 1.0, -1.0])
    samples = 5 + ways[:, None] * along + other[:, None] * across
    scores, shares = normality.principal_components(samples, 2)
    np.testing.assert_allclose(np.abs(scores), np.abs([ways, other]), atol=1e-12)
    np.testing.assert_allclose(shares, [0.9, 0.1])
    with pytest.raises(ValueError, match="not finite"):
        normality.principal_components([[0.0, np.nan]], 1)


@pytest.mark.slow
def test_components_of_a_gaussian_are_rejected_as_often_as_the_level_says():
    """Also of a covariance that is nearly singular, and of the directions that the samples themselves single out."""
    rng, spread = RNG(3), 10.0 ** -np.arange(20)
    p = np.array(
        [
            normality.anderson_darling_test(normality.principal_components(rng.normal(size=(300, 20)) * spread, 5)[0])
            for _ in range(2000)
        ]
    )
    rejected = (p <= 0.05).mean(axis=0)
    assert np.all(np.abs(rejected - 0.05) < 4 * np.sqrt(0.05 * 0.95 / len(p))), rejected


def test_what_is_not_gaussian_is_rejected():
    rng = RNG(4)
    assert normality.anderson_darling_test(rng.normal(size=300), 199) > 0.05
    for law in (rng.exponential(size=300), rng.uniform(size=300), rng.standard_t(3, size=300)):
        assert normality.anderson_darling_test(law, 199) == 1 / 200


@pytest.mark.parametrize("samples", [[1.0, np.nan, 2.0, 3.0], [np.inf, 1.0], [1.0], []])
def test_what_cannot_be_standardised_is_refused(samples):
    for function in (normality.anderson_darling_test, normality.anderson_darling, normality.distance):
        with pytest.raises(ValueError, match=r"not finite|no values|one sample"):
            function(samples)


def test_a_cosine_of_covariances_has_no_scale():
    one, other = np.diag([1.0, 2.0]), np.diag([3.0, 1.0])
    assert normality.cosine(one, other) == pytest.approx(5 / np.sqrt(5 * 10))
    assert normality.cosine(1e-6 * one, 1e3 * other) == pytest.approx(normality.cosine(one, other))
    assert normality.cosine(one, 4 * one) == pytest.approx(1.0)


def test_a_covariance():
    samples = RNG(5).normal(size=(7, 3))
    centred = samples - samples.mean(axis=0)
    np.testing.assert_allclose(normality.covariance(samples), centred.T @ centred / 6)
    assert normality.covariance(samples[:, :1]).shape == (1, 1)
