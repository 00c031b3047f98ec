"""Replacement of measured losses that are not finite, before a strategy reads them.

A NaN loss means a diverged client, hence a high loss. It becomes the largest finite loss among the current and the
earlier answers.
"""

import jax
import jax.numpy as jnp

LARGEST = 1e6  # nats; replaces infinity, and clips larger losses


def losses(
    values: jax.Array, answered: jax.Array, known_before: jax.Array | float = -jnp.inf
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Make measured losses finite.

    Args:
        values: losses, float32 [M, ...], nats.
        answered: mask of the clients that answered, bool [M]; other values are not counted.
        known_before: largest loss in the fact table; -inf for an empty table.

    Returns:
        Finite losses of the same shape, within +-1e6; the mask of clients with a value that was not finite, bool [M];
        and the number of replaced values, int32.
    """
    counts = answered.reshape(-1, *[1] * (values.ndim - 1))
    finite = jnp.isfinite(values)
    clipped = jnp.clip(values, -LARGEST, LARGEST)
    largest = jnp.maximum(jnp.max(jnp.where(finite & counts, clipped, -jnp.inf)), known_before)
    stand_in = jnp.where(jnp.isfinite(largest), largest, LARGEST)
    broken = ~finite & counts
    missing = broken.reshape(broken.shape[0], -1).any(axis=1)
    return jnp.where(jnp.isnan(values), stand_in, clipped), missing, broken.sum(dtype=jnp.int32)
