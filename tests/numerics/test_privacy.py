"""Mechanisms: the law of the noise, its calibration, and an attack that measures epsilon from below."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from fedjax_sel.numerics import privacy

pytest.importorskip("dp_accounting")
DRAWS = 10_000


@pytest.mark.parametrize("law,expected", [("laplace", stats.laplace), ("gaussian", stats.norm)])
@pytest.mark.parametrize("scale", [0.01, 3.0])
def test_the_law_of_the_noise(law, expected, scale):
    noise = np.asarray(privacy.draw(jax.random.key(1), law, scale, (20_000,)))
    assert stats.kstest(noise, expected(scale=scale).cdf).pvalue > 0.01
    deviation = privacy.standard_deviation(law, scale, 1.0, 1.0)
    assert noise.std() == pytest.approx(deviation, rel=0.03)


def gaussian_delta(deviation, epsilon):
    """Balle and Wang 2018, Theorem 8, at sensitivity 1."""
    first, second = 1 / (2 * deviation) - epsilon * deviation, -1 / (2 * deviation) - epsilon * deviation
    return stats.norm.cdf(first) - math.exp(epsilon) * stats.norm.cdf(second)


@pytest.mark.parametrize("epsilon,delta", [(0.1, 1e-5), (1.0, 1e-5), (10.0, 1e-6)])
@pytest.mark.parametrize("answers", [1, 7, 300])
def test_gaussian_calibration(epsilon, delta, answers):
    multiplier = privacy.multiplier("gaussian", epsilon, delta, answers)
    assert gaussian_delta(multiplier / math.sqrt(answers), epsilon) == pytest.approx(delta, rel=1e-4)
    spent = privacy.epsilons("gaussian", multiplier, delta, answers)
    assert spent[0] == 0 and spent[-1] == pytest.approx(epsilon, rel=1e-6) and (np.diff(spent) > 0).all()


@pytest.mark.fast_cases(4)
@pytest.mark.parametrize("epsilon,delta", [(0.1, 1e-5), (1.0, 1e-5), (4.0, 1e-6)])
@pytest.mark.parametrize("answers", [1, 2, 12])
def test_laplace_calibration(epsilon, delta, answers):
    from dp_accounting.pld import privacy_loss_distribution

    multiplier = privacy.multiplier("laplace", epsilon, delta, answers)
    one = privacy_loss_distribution.from_laplace_mechanism(multiplier, value_discretization_interval=2e-5)
    assert one.self_compose(answers).get_delta_for_epsilon(epsilon) <= delta * 1.01
    assert multiplier <= answers / epsilon  # basic composition
    spent = privacy.epsilons("laplace", multiplier, delta, answers)
    assert spent[-1] == pytest.approx(epsilon, rel=1e-3) and (np.diff(spent) > 0).all()


def test_many_answers_and_trainings_are_interpolated():
    spent = np.reshape(privacy.epsilons("gaussian", 30.0, 1e-5, 60, 70, 20.0), (61, 71))
    for answers, trainings in ((60, 70), (1, 0), (0, 1), (13, 50), (59, 3)):
        together = 1 / math.sqrt(answers / 30**2 + trainings / 20**2)
        assert gaussian_delta(together, spent[answers, trainings]) == pytest.approx(1e-5, rel=1e-3)
    assert (np.diff(spent, axis=0) > 0).all() and (np.diff(spent, axis=1) > 0).all()


def test_a_laplace_answer_and_many_trainings_are_interpolated(monkeypatch):
    spent = np.reshape(privacy.epsilons("laplace", 2.0, 1e-5, 1, 60, 20.0), (2, 61))[1]
    monkeypatch.setattr(privacy, "MOST_COMPOSED", 61)
    exact = np.reshape(privacy.epsilons.__wrapped__("laplace", 2.0, 1e-5, 1, 60, 20.0), (2, 61))[1]
    exact /= 1.002  # every number is composed
    assert (exact <= spent).all() and (spent <= 1.004 * exact).all() and (np.diff(spent) > 0).all()


def test_pure_differential_privacy_has_laplace_noise_alone():
    assert privacy.multiplier("laplace", 0.5, 0.0, 4) == 8.0
    assert privacy.epsilons("laplace", 8.0, 0.0, 4) == pytest.approx((0, 0.125, 0.25, 0.375, 0.5))
    assert privacy.multiplier("gaussian", 0.5, 0.0, 4) == math.inf


def at_most(hits):
    """The upper 97.5 % confidence bound of a probability, from a number of hits (Clopper and Pearson)."""
    return stats.beta.ppf(0.975, hits + 1, DRAWS - hits)


def attack(law, multiplier, answers):
    """False positives and false negatives of the likelihood-ratio attack, as 97.5 % upper bounds.

    The neighbors' answers are 0 and 1.
    """
    key = jax.random.key(3)
    noise = privacy.draw(key, law, multiplier, (2, DRAWS, answers))
    seen = np.asarray(noise + jnp.array([0.0, 1.0])[:, None, None], np.float64)
    ratio = (np.abs(seen) - np.abs(seen - 1) if law == "laplace" else 2 * seen - 1).sum(axis=-1)
    threshold = answers * (1 - 1e-5) if law == "laplace" and answers == 1 else 0.0
    return at_most((ratio[0] >= threshold).sum()), at_most((ratio[1] < threshold).sum())


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0])
def test_an_attack_on_laplace_noise_comes_close_to_epsilon_and_not_above(epsilon):
    false_positives, false_negatives = attack("laplace", privacy.multiplier("laplace", epsilon, 0.0, 1), 1)
    assert 0.7 * epsilon < math.log((1 - false_negatives) / false_positives) < epsilon


@pytest.mark.parametrize("epsilon", [1.0, 3.0])
@pytest.mark.parametrize("answers", [1, 9])
def test_an_attack_on_gaussian_noise_comes_close_to_epsilon_and_not_above(epsilon, answers):
    """The errors bound the mean mu of Gaussian differential privacy, and mu determines epsilon (Dong et al. 2022)."""
    multiplier = privacy.multiplier("gaussian", epsilon, 1e-5, answers)
    false_positives, false_negatives = attack("gaussian", multiplier, answers)
    mu = -stats.norm.ppf(false_positives) - stats.norm.ppf(false_negatives)
    assert 0.7 * epsilon < privacy.epsilons("gaussian", 1 / mu, 1e-5, 1)[-1] < epsilon


def test_bounds():
    vectors = jnp.array([[3.0, 4.0], [0.3, 0.4], [jnp.nan, 1.0], [jnp.inf, 0.0], [0.0, 0.0]])
    found = np.asarray(privacy.clipped(vectors, 2.0))
    np.testing.assert_allclose(found, [[1.2, 1.6], [0.3, 0.4], [0, 1], [0, 0], [0, 0]], rtol=1e-6)
    np.testing.assert_allclose(privacy.clipped(jnp.array([6.0, 2.0]), 4.0, order=1), [3.0, 1.0])
    np.testing.assert_allclose(privacy.bounded(jnp.array([-1.0, 2.0, 9.0, jnp.nan, jnp.inf]), 5.0), [0, 2, 5, 5, 5])
