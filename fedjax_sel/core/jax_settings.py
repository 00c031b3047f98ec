"""JAX's settings: versions, and the values that affect results."""

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import jax
import jax.experimental
import jax.numpy as jnp
import numpy as np

from fedjax_sel.errors import UserError


def enable_x64(enabled: bool) -> AbstractContextManager[None]:
    """Return a context that enables or disables 64-bit array types.

    Source: `jax.experimental.enable_x64` until JAX 0.7, `jax.enable_x64` from 0.8.
    """
    if hasattr(jax, "enable_x64"):
        return jax.enable_x64(enabled)
    return jax.experimental.enable_x64(enabled)  # pyright: ignore[reportAttributeAccessIssue]


def traced_once(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that JAX traces once for all calls with equal shapes; its operations are inlined."""
    return jax.jit(function, inline=True)


PRNG = "threefry2x32"
"""The generator of all random numbers, independent of `jax_default_prng_impl`."""


class Needed(NamedTuple):
    """The required value of a JAX setting."""

    value: bool  # JAX's default
    why: str
    of_runs: bool = False  # whether only simulated runs require the value; a Selector then works with any


NEEDED = {
    "jax_enable_x64": Needed(False, "but runs use 32-bit arithmetic"),
    "jax_threefry_partitionable": Needed(True, "which changes all random draws"),
    "jax_debug_nans": Needed(False, "but rounds without an evaluation record NaN", of_runs=True),
    "jax_disable_jit": Needed(False, "but runs need compiled programs", of_runs=True),
}
"""Settings that end a run, or change it by more than rounding."""

RECORDED = {"jax_default_matmul_precision": None, "jax_disable_most_optimizations": False}
"""Settings that only change a run's rounding, with JAX's defaults."""


def check(of_runs: bool = True) -> None:
    """Reject JAX settings that break a simulated run (a Selector if not `of_runs`) or change its random draws."""
    for name, needed in NEEDED.items():
        if getattr(jax.config, name) != needed.value and (of_runs or not needed.of_runs):
            raise UserError(
                f"{name} is {'off' if needed.value else 'on'}, {needed.why}; unset {name.upper()}, or call "
                f'jax.config.update("{name}", {needed.value}) before the run'
            )


def recorded() -> dict[str, str]:
    """Return the settings in RECORDED that differ from JAX's defaults, and XLA's other flags, as text."""
    found = {name: getattr(jax.config, name, usual) for name, usual in RECORDED.items()}
    flags = sorted(flag for flag in os.environ.get("XLA_FLAGS", "").split() if "device_count" not in flag)
    changed = {name: str(value) for name, value in found.items() if value != RECORDED[name]}
    return changed | ({"XLA_FLAGS": " ".join(flags)} if flags else {})


def key(seed: Any) -> jax.Array:
    """Return a typed random key of the package's generator; the seed may be traced."""
    return jax.random.key(seed, impl=PRNG)


def is_key(leaf: Any) -> bool:
    """Return whether an array, or its shape and dtype, holds typed random keys."""
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def as_numpy(leaf: Any) -> np.ndarray:
    """Return a leaf of a state as a NumPy array, which files can hold; random keys as their key data."""
    return np.asarray(jax.random.key_data(leaf) if is_key(leaf) else leaf)


def cpu() -> Any:
    """Return this machine's CPU device for float64 work, or raise UserError if JAX was started without it."""
    try:
        return jax.local_devices(backend="cpu")[0]
    except RuntimeError as error:
        platforms = jax.config.jax_platforms  # pyright: ignore[reportAttributeAccessIssue]
        raise UserError(
            f"JAX_PLATFORMS: {platforms!r} lacks the CPU, which strategies need for their setup; set "
            f"JAX_PLATFORMS={platforms},cpu"
        ) from error
