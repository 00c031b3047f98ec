"""Functions whose location differs between the supported JAX versions."""

from contextlib import AbstractContextManager

import jax
import jax.experimental


def enable_x64(enabled: bool) -> AbstractContextManager[None]:
    """Return a context that enables or disables 64-bit array types.

    Args:
        enabled: whether 64-bit types are enabled.

    Source: `jax.experimental.enable_x64` until JAX 0.7, `jax.enable_x64` from 0.8.
    """
    if hasattr(jax, "enable_x64"):
        return jax.enable_x64(enabled)
    return jax.experimental.enable_x64(enabled)  # pyright: ignore[reportAttributeAccessIssue]
