"""GPFL's rewards: projections on the global direction, their softmax shares, and the factor of a round's outcome."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.flatten_util import ravel_pytree

from fedjax_sel.strategies.base import Evaluation

_LARGEST_EXPONENT = 50.0  # bound of the exponents in f; keeps rewards finite and exceeds any regular change


def unit(direction: jax.Array) -> jax.Array:
    """Return a direction of any shape divided by its norm; zeros if the norm is zero."""
    largest = jnp.abs(direction).max()
    scaled = direction / jnp.where(largest > 0, largest, 1.0)  # prevents overflow and underflow of squares
    norm = jnp.sqrt(jnp.sum(scaled**2))
    return scaled / jnp.where(norm > 0, norm, 1.0)


def project(updates: Any, direction: Any, usable: jax.Array, per_tensor: bool) -> jax.Array:
    """Return c_i = <Delta_i, g> / ||g|| over the whole model, or its mean over the tensors (Na et al., Eq. 3).

    Args:
        updates: updates Delta_i, a pytree with leading axis [K, ...].
        direction: direction g, a pytree without that axis.
        usable: usable updates, bool [K].
        per_tensor: whether to project each tensor separately and average; a tensor of zeros contributes 0.

    Returns:
        Projections, float32 [K]; -inf for updates that are unusable or overflow.
    """
    flat, unravel = ravel_pytree(direction)
    units = jax.tree.map(unit, direction) if per_tensor else unravel(unit(flat))

    def inner(update: jax.Array, along: jax.Array) -> jax.Array:
        # A nonfinite entry affects only its own client's projection, which is masked below.
        return jnp.matmul(update.reshape(update.shape[0], -1), along.reshape(-1), precision=lax.Precision.HIGHEST)

    parts = jnp.stack(jax.tree.leaves(jax.tree.map(inner, updates, units)))  # [tensors, K]
    projections = parts.mean(axis=0) if per_tensor else parts.sum(axis=0)
    return jnp.where(usable & jnp.isfinite(projections), projections, -jnp.inf)


def shares(projections: jax.Array) -> jax.Array:
    """Return the softmax of the projections; zeros if all of them are -inf (Na et al., Eq. 5).

    Args:
        projections: projections c below +inf, [M].

    Returns:
        Shares, [M]; they sum to 1 or 0.
    """
    usable = projections > -jnp.inf
    largest = jnp.max(projections, initial=-jnp.inf, where=usable)
    weights = jnp.where(usable, jnp.exp(jnp.where(usable, projections - largest, 0.0)), 0.0)
    return weights / jnp.where(usable.any(), weights.sum(), 1.0)


def outcome_factor(before: Evaluation, after: Evaluation, rule: str) -> jax.Array:
    """Return f, the factor of a round's rewards (Na et al., Eq. 8), from accuracy A and loss F before and after.

    Integer counts of correct examples decide whether A rose, fell or stayed equal, because floats round. If a lower
    measure is better, A' - A is its decrease. The paper's A is a fraction; with a measure in other units the
    exponentials depend on the unit, and the rule `sign` does not.

    Args:
        before: evaluation of w^t, with A and F.
        after: evaluation of w^(t+1), with A' and F'.
        rule: `printed`: 2 exp(A' - A), or exp(F' - F) if A is unchanged. `corrected`: the same with F - F', which does
            not reward a rising loss. `sign`: 1 or -1 if A rose or fell; else 0.5 or -0.5 if F fell or rose; else 0.

    Returns:
        Factor, float32 scalar.
    """
    correct = _or_zero(after.correct - before.correct)
    fall = _or_zero(before.loss - after.loss)
    if rule == "sign":
        return jnp.where(correct != 0, jnp.sign(correct).astype(jnp.float32), 0.5 * jnp.sign(fall))
    gain = jnp.sign(correct).astype(jnp.float32) * jnp.abs(_or_zero(after.accuracy - before.accuracy))
    exponents = jnp.stack([gain, fall if rule == "corrected" else -fall])
    gained, fell = jnp.exp(jnp.clip(exponents, -_LARGEST_EXPONENT, _LARGEST_EXPONENT))
    return jnp.where(correct != 0, 2.0 * gained, fell)


def _or_zero(change: jax.Array) -> jax.Array:
    """Return a change, with 0 for NaN: a mean of huge errors can overflow before and after."""
    return jnp.where(jnp.isnan(change), 0, change)


def exploration(rule: str, rho: float, t: jax.Array, num_rounds: int) -> jax.Array:
    """Return alpha_t, the factor of the exploration bonus (Na et al., Eq. 7).

    Args:
        rule: `linear`: rho t / T. `const`: rho. `decay`: rho (1 - t / T). `tent`, from the released code: rho t / 100
            up to t = 100, then rho 200 / (t + 100).
        rho: factor of the exploration.
        t: round t, float32 scalar.
        num_rounds: number of rounds T.

    Returns:
        alpha_t, float32 scalar.
    """
    # Only the chosen rule is traced, because a run can be extended only if its program does not depend on T.
    if rule == "const":
        return rho * jnp.ones_like(t)
    if rule == "tent":
        return rho * jnp.where(t < 100, t / 100.0, 200.0 / (t + 100.0))
    share = t / num_rounds
    return rho * (share if rule == "linear" else jnp.maximum(1.0 - share, 0.0))
