"""The contract of a federated optimizer, checked on shapes alone, as `contract` does for strategies."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
import optax

from fedjax_sel.strategies import contract
from fedjax_sel.strategies.contract import BrokenContractError
from fedjax_sel.training.optimizers.base import FederatedOptimizer, Finished, Memory, Report

_HOOKS = ("gradient", "report", "combine", "server", "init_own", "init_shared")
_COUNTS = ("vectors_down", "vectors_up", "floats_up")


def check(optimizer: FederatedOptimizer) -> None:
    """Trace all hooks on the shapes of a small model, without running them.

    Raises:
        UserError: a rule of the contract is broken, or a hook raised a UserError.
    """
    with _named(optimizer):
        if not isinstance(optimizer.name, str) or not optimizer.name:
            raise BrokenContractError("`name` must be a non-empty string")
        for name in _HOOKS:
            if not callable(getattr(optimizer, name)):
                kind = type(getattr(optimizer, name)).__name__
                raise BrokenContractError(f"`{name}` is of type {kind}; give a function, or omit it")
        for name in _COUNTS:
            count = getattr(optimizer, name)
            if not isinstance(count, int) or count < 0:
                raise BrokenContractError(f"`{name}` is {count!r}; give an integer of at least 0")
        rate = optimizer.server_learning_rate
        if not isinstance(rate, int | float) or not 0 < rate < float("inf"):
            raise BrokenContractError(f"`server_learning_rate` is {rate!r}; give a positive number")
        _trace_all(optimizer)


def _trace_all(optimizer: FederatedOptimizer) -> None:
    scalar: Any = jax.ShapeDtypeStruct((), jnp.float32)
    model: Any = contract.MODEL
    inits = {"init_own": optimizer.init_own, "init_shared": optimizer.init_shared}
    memory = Memory(*(_trace(name, init, model) for name, init in inits.items()))
    _check_model_shapes("gradient", _trace("gradient", optimizer.gradient, model, model, model, memory), model)
    of_scalar = Memory(*(_trace(f"{name} of a scalar", init, scalar) for name, init in inits.items()))
    _trace("gradient of scalars", optimizer.gradient, scalar, scalar, scalar, of_scalar)
    report = _trace("report", optimizer.report, Finished(model, scalar, scalar), memory)
    if not isinstance(report, Report):
        raise BrokenContractError(f"`report` returned a {type(report).__name__}; return Report(averaged, ...)")
    _check_memory("own", report.own, "init_own", memory.own)
    _check_memory("contributed", report.contributed, "init_shared", memory.shared)
    _check_dtype("averaged", report.averaged, jnp.number)
    _check_dtype("contributed", report.contributed, jnp.floating)  # 1/N of it is
    _check_model_shapes("combine", _trace("combine", optimizer.combine, report.averaged), model)
    with contract.explained("server"):
        server = optimizer.server(optimizer.server_learning_rate)
    if not isinstance(server, optax.GradientTransformation):
        raise BrokenContractError(
            f"`server` returned a {type(server).__name__}; return an optax.GradientTransformation"
        )
    _trace("server", lambda gradient: server.update(gradient, server.init(gradient), gradient)[0], model)
    for path, leaf in jax.tree.leaves_with_path(_trace("server's init", server.init, model)):
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            raise BrokenContractError(
                f"the state of `server` holds a random key ({jax.tree_util.keystr(path)}), whose draws would be equal "
                "in all seeds; use a server optimizer without random draws"
            )


def _trace(name: str, function: Callable[..., Any], *shapes: Any) -> Any:
    return contract.trace(name, (function, shapes))


def _check_memory(name: str, answer: Any, init: str, at_first: Any) -> None:
    """Check that a part of a report has the structure, shapes and dtypes of the memory that it updates."""
    if jax.tree.structure(answer) != jax.tree.structure(at_first):
        raise BrokenContractError(
            f"`report` returned {name} with another structure than `{init}`; return the same structure"
        )
    for (path, before), after in zip(jax.tree.leaves_with_path(at_first), jax.tree.leaves(answer)):
        if (before.shape, before.dtype) != (after.shape, after.dtype):
            raise BrokenContractError(
                f"`report` returned {name}{jax.tree_util.keystr(path)} as {after.dtype} {list(after.shape)}, but "
                f"`{init}` returned {before.dtype} {list(before.shape)}; keep dtype and shape"
            )


def _check_dtype(name: str, answer: Any, kind: Any) -> None:
    for path, leaf in jax.tree.leaves_with_path(answer):
        if not jnp.issubdtype(leaf.dtype, kind):
            raise BrokenContractError(
                f"`report` returned {name}{jax.tree_util.keystr(path)} as {leaf.dtype}, but the server takes weighted "
                "sums; return it as float32"
            )


def _check_model_shapes(name: str, answer: Any, model: Any) -> None:
    if jax.tree.map(_shape, answer) != jax.tree.map(_shape, model):
        raise BrokenContractError(f"`{name}` must return a pytree of the model's shapes")


def _shape(leaf: Any) -> tuple[int, ...]:
    return leaf.shape


@contextmanager
def _named(optimizer: FederatedOptimizer) -> Iterator[None]:
    """Add the optimizer's name to a contract error."""
    try:
        yield
    except BrokenContractError as error:
        raise BrokenContractError(f"optimizer {optimizer.name!r}: {error}") from error
