"""Optax optimizers by name, for the clients or for the server."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import optax

from fedjax_sel.core import hyperparameters, parsing
from fedjax_sel.core.parsing import one_of
from fedjax_sel.errors import UserError

# lbfgs needs the loss of a step; noisy_sgd draws noise from its own key; sm3 has no state for a scalar
_NOT_HERE = ("lbfgs", "noisy_sgd", "sm3")
# Parameters whose range Optax does not check: [0, 1), and at least 0.
_SHARES = ("b1", "b2", "b3", "decay", "momentum", "rho")
_NOT_NEGATIVE = ("eps", "eps_root", "weight_decay")


def names() -> tuple[str, ...]:
    """Return the names of the Optax functions that take a learning rate and return a gradient transformation."""
    return tuple(sorted(name for name in vars(optax) if _is_optimizer(name)))


def _is_optimizer(name: str) -> bool:
    candidate = getattr(optax, name)
    if name.startswith(("_", "scale_by_")) or name in _NOT_HERE or not inspect.isfunction(candidate):
        return False
    signature = inspect.signature(candidate)
    return "learning_rate" in signature.parameters and "GradientTransformation" in str(signature.return_annotation)


def make(flag: str, name: str, arguments: Mapping[str, Any], learning_rate: float) -> optax.GradientTransformation:
    """Build an Optax optimizer, and test it on a small pytree.

    Args:
        flag: command-line flag that names the optimizer, for messages; `{flag}-args` takes the parameters.
        name: name of the function in Optax, e.g. "adam".
        arguments: parameters of that function; values may be strings.
        learning_rate: learning rate.

    Raises:
        UserError: the optimizer or a parameter does not exist, is out of range, or needs more than gradients and
            weights.
    """
    factory: Callable[..., Any] = getattr(optax, one_of(flag, name, names()))
    if "learning_rate" in arguments:
        raise UserError(f"{flag}-args of {name}: learning_rate has its own flag; remove it here")
    values = hyperparameters.convert(f"{flag}-args", name, factory, {**arguments, "learning_rate": learning_rate})
    for key, value in values.items():
        if isinstance(value, int | float) and key in _SHARES and (value < 0 or value >= 1):
            raise UserError(f"{flag}-args {key}={value} of {name}: must be at least 0 and below 1")
        if isinstance(value, int | float) and key in _NOT_NEGATIVE and value < 0:
            raise UserError(f"{flag}-args {key}={value} of {name}: must be at least 0")
    try:
        made = factory(**values)
        params = {"kernel": jnp.ones((2, 3)), "bias": jnp.ones((3,)), "scale": jnp.ones(())}
        step, _ = made.update(params, made.init(params), params)
        if not all(jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(step)):
            raise ValueError("its step from a gradient of ones is not finite")
    except Exception as error:
        raise UserError(
            f"{flag} {name}: this optimizer cannot be used here ({parsing.reason(error)}); "
            f"correct {flag}-args, or choose another optimizer such as sgd or adam"
        ) from error
    return made
