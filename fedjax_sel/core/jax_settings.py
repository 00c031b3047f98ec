"""What JAX makes of numbers: a program may have set it to something with which nothing here is right, or runs."""

from typing import Any

import jax

from fedjax_sel.errors import UserError

_AS_JAX_BEGINS = {"jax_numpy_rank_promotion": ("raise", "allow"), "jax_numpy_dtype_promotion": ("strict", "standard")}
"""Settings that refuse sums of arrays of unlike shapes or dtypes: the value that refuses them, and that of JAX."""


def check() -> None:
    """Refuse a program whose JAX makes numbers of 64 bits, or does not bring unlike arrays together.

    Of 64 bits steps and draws would be others; the others stop strategies and other people's modules alike.

    Raises:
        UserError: it does.
    """
    if jax.config.jax_enable_x64:  # pyright: ignore[reportAttributeAccessIssue]
        raise UserError(
            "jax_enable_x64 is on, and runs are of 32 bits; leave JAX_ENABLE_X64 out, or say "
            'jax.config.update("jax_enable_x64", False) before a run'
        )
    for name, (refuses, usual) in _AS_JAX_BEGINS.items():
        if getattr(jax.config, name) == refuses:
            raise UserError(
                f"{name} is {refuses!r}, with which strategies and models do not run; leave {name.upper()} out, or say "
                f'jax.config.update("{name}", "{usual}") before a run'
            )


def cpu() -> Any:
    """Return a CPU device of this machine: work before a run is done there, in float64.

    Raises:
        UserError: JAX has started without the CPU.
    """
    try:
        return jax.local_devices(backend="cpu")[0]
    except RuntimeError as error:
        platforms = jax.config.jax_platforms  # pyright: ignore[reportAttributeAccessIssue]
        raise UserError(
            f"JAX_PLATFORMS: JAX has started with {platforms!r} and without the CPU, on which strategies prepare; set "
            f"JAX_PLATFORMS={platforms},cpu"
        ) from error
