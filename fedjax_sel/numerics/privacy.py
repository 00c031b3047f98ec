"""Differentially private mechanisms: clipping, Laplace and Gaussian noise, calibration, and composition.

`dp-accounting` (Google) calibrates and composes. Neighboring inputs change an answer by at most its sensitivity, in the
L1 norm for Laplace noise and in the L2 norm for Gaussian noise. A multiplier is the noise's parameter at sensitivity 1:
the scale of the Laplace law, or the standard deviation of the Gaussian.

JAX's generator is not cryptographic: the noise protects nobody outside a simulation.
"""

import functools
import math
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

Law = Literal["laplace", "gaussian"]


def clipped(vectors: jax.Array, bound: float, order: int = 2) -> jax.Array:
    """Scale vectors [..., P] down to a norm of at most `bound`, L1 or L2 by `order`; entries not finite become 0."""
    vectors = jnp.where(jnp.isfinite(vectors), vectors, 0.0)
    norms = jnp.linalg.norm(vectors, ord=order, axis=-1, keepdims=True)
    return vectors * jnp.where(norms > bound, bound / norms, 1.0)


def clipped_tree(tree: Any, bound: float) -> Any:
    """Clip a pytree of arrays as one vector; see `clipped`."""
    numbers, restored = ravel_pytree(tree)
    return restored(clipped(numbers, bound))


def bounded(values: jax.Array, bound: float) -> jax.Array:
    """Clip numbers to [0, bound]; NaN becomes the bound."""
    return jnp.clip(jnp.where(jnp.isnan(values), bound, values), 0.0, bound)


def draw(key: jax.Array, law: Law, scale: jax.Array | float, shape: tuple[int, ...]) -> jax.Array:
    """Draw independent noise, float32; `scale` is the sensitivity times the multiplier."""
    sample = jax.random.laplace if law == "laplace" else jax.random.normal
    return scale * sample(key, shape)


def standard_deviation(law: Law, multiplier: float, l1: float, l2: float) -> float:
    """Return the standard deviation of each number's noise, for an answer's L1 and L2 sensitivities."""
    return math.sqrt(2) * multiplier * l1 if law == "laplace" else multiplier * l2


@functools.cache
def multiplier(law: Law, epsilon: float, delta: float, answers: int) -> float:
    """Return the smallest multiplier for which `answers` answers are (epsilon, delta) differentially private together.

    It is infinite for Gaussian noise at delta = 0. A Gaussian with `answers` answers equals one answer with a
    sensitivity of sqrt(answers), which the analytic mechanism calibrates (Balle, Wang 2018). The composition of Laplace
    noise is by its privacy loss distribution.
    """
    import dp_accounting as accounting  # pyright: ignore[reportMissingImports]

    if law == "gaussian":
        return math.sqrt(answers) * accounting.get_sigma_gaussian(epsilon, delta) if delta else math.inf
    basic = answers / epsilon
    if answers == 1 or not delta:
        return basic
    composed = accounting.calibrate_dp_mechanism(
        accounting.pld.PLDAccountant,
        lambda scale: accounting.SelfComposedDpEvent(accounting.LaplaceDpEvent(scale), answers),
        epsilon,
        delta,
        accounting.ExplicitBracketInterval(basic / answers, 2 * basic),
    )
    return min(basic, composed)


MOST_EXACT = 2000  # epsilons of Gaussian noise, at most two seconds
MOST_COMPOSED = 24  # numbers of trainings whose composition with Laplace noise is exact, seconds


@functools.cache
def epsilons(
    law: Law, multiplier: float, delta: float, answers: int, trainings: int = 0, of_training: float = math.inf
) -> tuple[float, ...]:
    """Return the epsilon that a client spends at delta, by its numbers of answers and of trainings.

    It is at position `a * (trainings + 1) + t` for a = 0, ..., `answers` and t = 0, ..., `trainings`, never below the
    exact value. A training is a Gaussian release with the multiplier `of_training`.
    """
    import dp_accounting as accounting  # pyright: ignore[reportMissingImports]

    # Gaussian releases of a client are one release, of as many answers as their precisions add up to.
    releases = np.arange(answers + 1)[:, None] + np.arange(trainings + 1) * (multiplier / of_training) ** 2
    counts = np.unique(releases if law == "gaussian" else releases[0])[1:]
    margin = 1.0
    if trainings and len(counts) > MOST_EXACT:  # linear between these, with relative errors below 1e-5
        counts, margin = np.geomspace(counts[0], counts[-1], MOST_EXACT), 1.00001
    exact = [accounting.get_epsilon_gaussian(multiplier / math.sqrt(count), delta) for count in counts]
    spent = margin * np.interp(releases, [0.0, *counts], [0.0, *exact])
    composed_at = np.unique(np.round(np.linspace(0, math.sqrt(trainings), MOST_COMPOSED) ** 2)).astype(int)
    for trained in composed_at if law == "laplace" else ():
        accountant = accounting.pld.PLDAccountant(value_discretization_interval=1e-3 if trained else 1e-4)
        if trained:
            accountant.compose(accounting.GaussianDpEvent(of_training / math.sqrt(trained)))
        for answered in range(1, answers + 1):
            spent[answered, trained] = math.inf if trained else answered / multiplier
            if delta:
                accountant.compose(accounting.LaplaceDpEvent(multiplier))
                spent[answered, trained] = min(spent[answered, trained], accountant.get_epsilon(delta))
    if law == "laplace" and trainings:  # nearly linear in the root of the number of trainings: errors below 0.2 %
        roots = np.sqrt(np.arange(trainings + 1))
        spent[1:] = [1.002 * np.interp(roots, roots[composed_at], row[composed_at]) for row in spent[1:]]
    return tuple(map(float, spent.ravel()))
