"""What a hook may answer: shapes and dtypes of selections, candidates and states."""

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

Hook = tuple[Callable[..., Any], tuple[Any, ...]]  # a function and the shapes of its arguments
_shape: Any = jax.ShapeDtypeStruct


class BrokenContractError(UserError):
    """A strategy breaks the contract: one sentence that says how, and what to do."""


def trace(name: str, hook: Hook) -> Any:
    """Return the shapes of what a hook answers.

    Args:
        name: of the hook; `prepare` runs with 64-bit types.
        hook: the function and the shapes of its arguments.

    Returns:
        Shapes.

    Raises:
        BrokenContractError: it cannot be traced.
        UserError: what it raised for the user to read, unchanged.
    """
    function, arguments = hook
    with enable_x64(name == "prepare"), explained(name):
        return jax.eval_shape(function, *arguments)


@contextlib.contextmanager
def explained(name: str) -> Iterator[None]:
    """Turn what tracing a hook raises into one sentence: see `trace`."""
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
    """Check that `select` answers a Selection of the right shapes and dtypes.

    Args:
        answer: its shapes.
        num_selected: K.

    Raises:
        BrokenContractError: the first field that is wrong.
    """
    k = num_selected
    is_selection(answer)
    fields: dict[str, Any] = answer._asdict()
    for name, dtype in {"ids": "int32", "mask": "bool", "weights": "float32"}.items():
        leaf = fields[name]
        if leaf is None:
            if name == "weights":
                continue
            raise BrokenContractError(f"the selection has no `{name}`; give {dtype} [{k}], with K = {k}")
        if getattr(leaf, "shape", None) != (k,) or leaf.dtype != dtype:
            found = f"{leaf.dtype} {list(leaf.shape)}" if hasattr(leaf, "dtype") else type(leaf).__name__
            raise BrokenContractError(f"`{name}` of the selection is {found} and must be {dtype} [{k}], with K = {k}")


def is_selection(answer: Any) -> None:
    """Check that `select` answers a Selection at all.

    Args:
        answer: its shapes.

    Raises:
        BrokenContractError: it is something else.
    """
    if not isinstance(answer, Selection):
        raise BrokenContractError(
            f"`select` answers a {type(answer).__name__}; return Selection(ids, weights or None, mask)"
        )


def candidates(answer: Any, num_clients: int) -> None:
    """Check that `candidates` answers ids.

    Args:
        answer: its shapes.
        num_clients: N.

    Raises:
        BrokenContractError: it answers something else, or more than there are.
    """
    if getattr(answer, "ndim", None) != 1 or answer.dtype != "int32":
        raise BrokenContractError("`candidates` must answer int32 [d]")
    if answer.shape[0] > num_clients:
        raise BrokenContractError(f"`candidates` names {answer.shape[0]} clients, and there are {num_clients}")


def same_state(name: str, old: Any, new: Any) -> None:
    """Check that structure, shapes and dtypes of the state are the same after a hook as after `init`.

    Args:
        name: of the hook.
        old: the shapes of the state that `init` gives.
        new: of that which the hook gives.

    Raises:
        BrokenContractError: the first difference.
    """
    if jax.tree.structure(new) != jax.tree.structure(old):
        raise BrokenContractError(
            f"`{name}` answers a state of another structure than `init` does (fields, or a Static that changed); "
            "return the same NamedTuple, and keep what changes in arrays"
        )
    for (path, before), after in zip(jax.tree.leaves_with_path(old), jax.tree.leaves(new)):
        # what `prepare` answers is cast back, of a kind: float64 to float32, not to whole numbers
        alike = before.dtype == after.dtype or (name == "prepare" and before.dtype.kind == after.dtype.kind)
        if before.shape != after.shape or not alike:
            raise BrokenContractError(
                f"`{name}` makes state{jax.tree_util.keystr(path)} {after.dtype} {list(after.shape)}, and it is "
                f"{before.dtype} {list(before.shape)} after `init`; keep its dtype and shape"
            )
