"""Measured losses that are not finite are replaced before a strategy sees them, and counted.

A diverged client is not unknown, it is bad: NaN becomes the largest finite loss that is known, of those who answered
now and of those who answered before.
"""

import jax
import jax.numpy as jnp

LARGEST = 1e6  # nats; also what infinity becomes


def losses(
    values: jax.Array, answered: jax.Array, known_before: jax.Array | float = -jnp.inf
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Make measured losses finite.

    Args:
        values: float32 [M, ...].
        answered: bool [M]; others are not counted.
        known_before: the largest loss that a table holds already; -inf without.

    Returns:
        Finite values of that shape within +-1e6; which clients had a value that was not finite, bool [M]; and how many
        values were replaced, int32.
    """
    counts = answered.reshape(-1, *[1] * (values.ndim - 1))
    finite = jnp.isfinite(values)
    clipped = jnp.clip(values, -LARGEST, LARGEST)
    largest = jnp.maximum(jnp.max(jnp.where(finite & counts, clipped, -jnp.inf)), known_before)
    stand_in = jnp.where(jnp.isfinite(largest), largest, LARGEST)
    broken = ~finite & counts
    missing = broken.reshape(broken.shape[0], -1).any(axis=1)
    return jnp.where(jnp.isnan(values), stand_in, clipped), missing, broken.sum(dtype=jnp.int32)
