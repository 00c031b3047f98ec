"""Any optimizer of Optax by its name, for the clients or for the server."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import optax

from fedjax_sel.core import hyperparameters as hyper
from fedjax_sel.core import texts
from fedjax_sel.core.names import one_of
from fedjax_sel.errors import UserError

# needs the loss of a step; draws noise from a key of its own; has no state for a single number
_NOT_HERE = ("lbfgs", "noisy_sgd", "sm3")
# Parameters of Optax's functions that these ranges hold for, which Optax does not check.
_SHARES = ("b1", "b2", "b3", "decay", "momentum", "rho")
_NOT_NEGATIVE = ("eps", "eps_root", "weight_decay")


def names() -> tuple[str, ...]:
    """Return the names of Optax's functions that take a learning rate and return a transformation of gradients."""
    return tuple(sorted(name for name in vars(optax) if _is_optimizer(name)))


def _is_optimizer(name: str) -> bool:
    candidate = getattr(optax, name)
    if name.startswith(("_", "scale_by_")) or name in _NOT_HERE or not inspect.isfunction(candidate):
        return False
    signature = inspect.signature(candidate)
    return "learning_rate" in signature.parameters and "GradientTransformation" in str(signature.return_annotation)


def make(flag: str, name: str, arguments: Mapping[str, Any], learning_rate: float) -> optax.GradientTransformation:
    """Build an optimizer of Optax, and try it.

    Args:
        flag: that names it, for messages; its parameters come by `flag-args`.
        name: of the function in Optax, e.g. "adam".
        arguments: its parameters; values may be texts.
        learning_rate: a number.

    Returns:
        The transformation.

    Raises:
        UserError: no such optimizer or parameter, or one that needs more than gradients and weights.
    """
    factory: Callable[..., Any] = getattr(optax, one_of(flag, name, names()))
    if "learning_rate" in arguments:
        raise UserError(f"{flag}-args of {name}: learning_rate has a flag of its own; leave it out here")
    values = hyper.convert(f"{flag}-args", name, factory, {**arguments, "learning_rate": learning_rate})
    for key, value in values.items():
        if isinstance(value, int | float) and key in _SHARES and (value < 0 or value >= 1):
            raise UserError(f"{flag}-args {key}={value} of {name}: is outside 0 (included) to 1 (excluded)")
        if isinstance(value, int | float) and key in _NOT_NEGATIVE and value < 0:
            raise UserError(f"{flag}-args {key}={value} of {name}: must be a number from 0")
    try:
        made = factory(**values)
        params = {"kernel": jnp.ones((2, 3)), "bias": jnp.ones((3,)), "scale": jnp.ones(())}
        step, _ = made.update(params, made.init(params), params)
        if not all(jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(step)):
            raise ValueError("its step from a gradient of ones is not finite")
    except Exception as error:
        raise UserError(
            f"{flag} {name}: it cannot be used here ({texts.reason(error)}); "
            f"mend {flag}-args, or choose another such as sgd or adam"
        ) from error
    return made
