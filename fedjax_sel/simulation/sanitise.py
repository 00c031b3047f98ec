"""Measured losses that are not finite are replaced before a strategy sees them, and counted.

A diverged client is not unknown, it is bad: NaN becomes the largest finite loss of those who answered.
"""

import jax
import jax.numpy as jnp

LARGEST = 1e6  # nats; also what infinity becomes


def losses(values: jax.Array, answered: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Makes measured losses finite.

    Args:
        values: float32 [M, ...].
        answered: bool [M]; others are not counted.

    Returns:
        Finite values of that shape within +-1e6; which clients had a value that was not finite, bool [M]; and how many
        values were replaced, int32.
    """
    counts = answered.reshape(-1, *[1] * (values.ndim - 1))
    finite = jnp.isfinite(values)
    clipped = jnp.clip(values, -LARGEST, LARGEST)
    largest = jnp.max(jnp.where(finite & counts, clipped, -jnp.inf))
    stand_in = jnp.where(jnp.isfinite(largest), largest, LARGEST)
    broken = ~finite & counts
    missing = broken.reshape(broken.shape[0], -1).any(axis=1)
    return jnp.where(jnp.isnan(values), stand_in, clipped), missing, broken.sum(dtype=jnp.int32)
