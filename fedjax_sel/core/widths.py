"""How wide JAX's numbers are: everything here is of 32 bits, but where it says otherwise."""

import jax

from fedjax_sel.errors import UserError


def check_32_bits() -> None:
    """Refuse a program whose JAX makes numbers of 64 bits: steps and draws would be others.

    Raises:
        UserError: it does.
    """
    if jax.config.jax_enable_x64:  # pyright: ignore[reportAttributeAccessIssue]
        raise UserError(
            "jax_enable_x64 is on, and runs are of 32 bits; leave JAX_ENABLE_X64 out, or say "
            'jax.config.update("jax_enable_x64", False) before a run'
        )
