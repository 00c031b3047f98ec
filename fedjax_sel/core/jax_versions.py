"""What stands elsewhere in some of the JAX versions that are supported, under one name."""

from contextlib import AbstractContextManager

import jax
import jax.experimental


def enable_x64(enabled: bool) -> AbstractContextManager[None]:
    """Return a context in which arrays may have 64-bit types, or may not.

    Args:
        enabled: whether they may.

    Source: jax.experimental.enable_x64 until JAX 0.7; `jax.enable_x64` from 0.8 on, which newer versions have alone.
    """
    if hasattr(jax, "enable_x64"):
        return jax.enable_x64(enabled)
    return jax.experimental.enable_x64(enabled)  # pyright: ignore[reportAttributeAccessIssue]
