"""Checks of hook results: shapes and dtypes of selections, candidates and states."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import jax

from fedjax_sel.core import texts
from fedjax_sel.core.jax_versions import enable_x64
from fedjax_sel.errors import RAISED_BY_PLUGINS, UserError
from fedjax_sel.strategies.base import (
    Selection,
)

Hook = tuple[Callable[..., Any], tuple[Any, ...]]  # function and argument shapes
_shape: Any = jax.ShapeDtypeStruct


class BrokenContractError(UserError):
    """A strategy breaks the contract."""


def trace(name: str, hook: Hook) -> Any:
    """Return the shapes of a hook's result.

    Args:
        name: name of the hook; `prepare` runs with 64-bit types.
        hook: function and argument shapes.

    Raises:
        BrokenContractError: the hook cannot be traced.
        UserError: a UserError raised by the hook, unchanged.
    """
    function, arguments = hook
    with enable_x64(name == "prepare"), explained(name):
        return jax.eval_shape(function, *arguments)


@contextlib.contextmanager
def explained(name: str) -> Iterator[None]:
    """Convert the exceptions of tracing a hook into one-line errors; see `trace`."""
    try:
        yield
    except UserError:
        raise
    except (jax.errors.ConcretizationTypeError, jax.errors.TracerArrayConversionError) as error:
        raise BrokenContractError(
            f"`{name}` needs the value of a traced array ({type(error).__name__}); use jnp.where or lax.cond for `if`, "
            "jnp for numpy, and Static for counts"
        ) from error
    except RAISED_BY_PLUGINS as error:
        raise BrokenContractError(f"`{name}` cannot be traced: {texts.reason(error)}") from error


def selection(answer: Any, num_selected: int) -> None:
    """Check that `select` returns a Selection with the right shapes and dtypes.

    Args:
        answer: shapes of the result.
        num_selected: K.

    Raises:
        BrokenContractError: the first wrong field.
    """
    k = num_selected
    is_selection(answer)
    fields: dict[str, Any] = answer._asdict()
    for name, dtype in {"ids": "int32", "mask": "bool", "weights": "float32"}.items():
        leaf = fields[name]
        if leaf is None:
            if name == "weights":
                continue
            raise BrokenContractError(f"the selection has no `{name}`; return {dtype} [{k}], with K = {k}")
        if getattr(leaf, "shape", None) != (k,) or leaf.dtype != dtype:
            actual = f"{leaf.dtype} {list(leaf.shape)}" if hasattr(leaf, "dtype") else type(leaf).__name__
            raise BrokenContractError(f"`{name}` of the selection is {actual} and must be {dtype} [{k}], with K = {k}")


def is_selection(answer: Any) -> None:
    """Check that `select` returns a Selection.

    Raises:
        BrokenContractError: the result has another type.
    """
    if not isinstance(answer, Selection):
        raise BrokenContractError(
            f"`select` returns a {type(answer).__name__}; return Selection(ids, weights or None, mask)"
        )


def candidates(answer: Any, num_clients: int) -> None:
    """Check that `candidates` returns client IDs.

    Args:
        answer: shapes of the result.
        num_clients: N.

    Raises:
        BrokenContractError: the result is not int32 [d], or d exceeds N.
    """
    if getattr(answer, "ndim", None) != 1 or answer.dtype != "int32":
        raise BrokenContractError("`candidates` must return int32 [d]")
    if answer.shape[0] > num_clients:
        raise BrokenContractError(f"`candidates` returns {answer.shape[0]} IDs; return at most N = {num_clients}")


def same_state(name: str, old: Any, new: Any) -> None:
    """Check that a hook keeps the structure, shapes and dtypes of the state.

    Args:
        name: name of the hook.
        old: shapes of the state that `init` returns.
        new: shapes of the state that the hook returns.

    Raises:
        BrokenContractError: the first difference.
    """
    if jax.tree.structure(new) != jax.tree.structure(old):
        raise BrokenContractError(
            f"`{name}` returns a state with another structure than `init` (other fields, or a changed Static); "
            "return the same NamedTuple, and store changing values in arrays"
        )
    for (path, before), after in zip(jax.tree.leaves_with_path(old), jax.tree.leaves(new)):
        # The result of `prepare` is cast back within one kind of dtype: float64 to float32, but not to integers.
        same_dtype = before.dtype == after.dtype or (name == "prepare" and before.dtype.kind == after.dtype.kind)
        if before.shape != after.shape or not same_dtype:
            raise BrokenContractError(
                f"`{name}` returns state{jax.tree_util.keystr(path)} as {after.dtype} {list(after.shape)}, but `init` "
                f"returns {before.dtype} {list(before.shape)}; keep the dtype and shape"
            )
