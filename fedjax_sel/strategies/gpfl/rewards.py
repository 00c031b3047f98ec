"""What a round earns in GPFL: projections on the global direction, shares of them, and the outcome's factor.

The same formulas serve all readings of the paper; `gpfl` chooses among them.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.flatten_util import ravel_pytree

from fedjax_sel.strategies.base import Evaluation

_LARGEST_EXPONENT = 50.0  # of a change; keeps sums of rewards finite, and no healthy round reaches it


def unit(direction: jax.Array) -> jax.Array:
    """Return a direction over its norm, of any shape; zeros where the norm is zero."""
    largest = jnp.abs(direction).max()
    scaled = direction / jnp.where(largest > 0, largest, 1.0)  # squares neither overflow nor vanish
    norm = jnp.sqrt(jnp.sum(scaled**2))
    return scaled / jnp.where(norm > 0, norm, 1.0)


def project(updates: Any, direction: Any, usable: jax.Array, per_tensor: bool) -> jax.Array:
    """Return c_i = <Delta_i, g> / ||g|| over the whole model, or the mean of that over its tensors (Na et al., Eq. 3).

    Args:
        updates: Delta_i, a pytree with leading axis [K, ...].
        direction: g, the pytree without that axis.
        usable: whose update counts, bool [K].
        per_tensor: each tensor is projected on its own and the mean is taken; a tensor of zeros gives 0.

    Returns:
        float32 [K]; -inf for updates that do not count or are too large to be projected.
    """
    flat, unravel = ravel_pytree(direction)
    units = jax.tree.map(unit, direction) if per_tensor else unravel(unit(flat))

    def inner(update: jax.Array, along: jax.Array) -> jax.Array:
        # what is not finite spoils its own client's number alone, which is masked below
        return jnp.matmul(update.reshape(update.shape[0], -1), along.reshape(-1), precision=lax.Precision.HIGHEST)

    parts = jnp.stack(jax.tree.leaves(jax.tree.map(inner, updates, units)))  # [tensors, K]
    projections = parts.mean(axis=0) if per_tensor else parts.sum(axis=0)
    return jnp.where(usable & jnp.isfinite(projections), projections, -jnp.inf)


def shares(projections: jax.Array) -> jax.Array:
    """Return the softmax in which -inf has no share; all zero where everything is -inf (Na et al., Eq. 5).

    Args:
        projections: c, below +inf, of any length.

    Returns:
        Of the same length, sum 1 or 0.
    """
    known = projections > -jnp.inf
    largest = jnp.max(projections, initial=-jnp.inf, where=known)
    weights = jnp.where(known, jnp.exp(jnp.where(known, projections - largest, 0.0)), 0.0)
    return weights / jnp.where(known.any(), weights.sum(), 1.0)


def outcome_factor(before: Evaluation, after: Evaluation, rule: str) -> jax.Array:
    """Return what shares are multiplied by (Na et al., Eq. 8), of accuracy A and loss F of w^t and w^(t+1).

    Whether A changed, and to the better, is told by counts of correct answers, not by floats. Of a task whose measure
    falls as the model gets better, A' - A is its fall; the paper has shares of correct answers, and of a measure in
    other units the exponentials weigh rounds by these units: `sign` does not.

    Args:
        before: of w^t.
        after: of w^(t+1).
        rule: `printed`, 2 exp(A' - A), or exp(F' - F) where A did not change; `corrected`, the same with F - F', which
            does not reward a loss that rises; `sign`, 1 or -1 as A rose or fell, else 0.5 or -0.5 as F fell or rose,
            else 0.

    Returns:
        float32 scalar.
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
    """Return a change; of what is no number before or after (a mean of huge errors may not be) none is known."""
    return jnp.where(jnp.isnan(change), 0, change)


def exploration(rule: str, rho: float, t: jax.Array, num_rounds: int) -> jax.Array:
    """Return alpha_t, the factor of the exploration bonus (Na et al., Eq. 7).

    Args:
        rule: `linear`, rho t / T; `const`, rho; `decay`, rho (1 - t / T); `tent`, the released code's: rho t / 100 up
            to t = 100, then rho 200 / (t + 100).
        rho: factor.
        t: float32 scalar.
        num_rounds: T.

    Returns:
        float32 scalar.
    """
    # Only what the rule says is computed: a run whose rule knows no T can be made longer.
    if rule == "const":
        return rho * jnp.ones_like(t)
    if rule == "tent":
        return rho * jnp.where(t < 100, t / 100.0, 200.0 / (t + 100.0))
    share = t / num_rounds
    return rho * (share if rule == "linear" else jnp.maximum(1.0 - share, 0.0))
