"""What tells values of one name apart: the numbers inside them, such as `num_candidates` of a strategy.

A strategy or an optimizer is made of functions, whose parameters lie where Python keeps what a function closes over.
The digest covers those, and of functions that no library has what they do, with the functions and plain values of their
own module that they read; and of an instance whose class no library has, those of the class, which its methods read.
"""

import dataclasses
import dis
import functools
import hashlib
import inspect
import sys
import types
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePath
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

_DIGITS = 6
# Of functions of these what they do is not looked at: it follows from the version, which a folder may outlive.
_LIBRARIES = {__name__.partition(".")[0], "chex", "flax", "jax", "numpy", "optax", "scipy"}


def digest(value: Any) -> str:
    """Return a few hexadecimal digits that are the same for equal values, in every process.

    Args:
        value: a tuple of functions and plain values, such as a Strategy.
    """
    return hashlib.sha256("\n".join(_words(value)).encode()).hexdigest()[:_DIGITS]


def _words(value: Any) -> Iterator[str]:
    """Yield what a value is made of; nothing of where it lies in memory."""
    waiting = [value]
    seen: dict[
        int, tuple[int, Any]
    ] = {}  # where it lies -> how many came before it, and itself, so that it stays there
    while waiting:
        value = waiting.pop()
        yield type(value).__qualname__
        if isinstance(value, str | bytes | int | float | complex | None):
            yield repr(value)
        elif isinstance(value, type | types.ModuleType):
            yield value.__name__
        elif isinstance(value, np.ndarray | np.generic | jax.Array):
            yield _of_array(value)
        elif id(value) in seen:  # a function that calls itself, or what several share
            yield f"again {seen[id(value)][0]}"
        else:
            seen[id(value)] = len(seen), value
            parts = {**_inside(value), **_of_class(type(value))}
            yield " ".join(map(str, parts))
            waiting += reversed(parts.values())


def _of_array(array: Any) -> str:
    if isinstance(array, jax.Array) and jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
        array = jax.random.key_data(array)
    array = np.asarray(array)
    return f"{array.dtype} {array.shape} {hashlib.sha256(array.tobytes()).hexdigest()}"


def _inside(value: Any) -> dict[str, Any]:
    """Return the parts of a value by name."""
    if isinstance(value, types.CodeType):  # what a function does, not where it is written: lines may move
        names = (value.co_names, value.co_varnames, value.co_freevars)
        return {"code": value.co_code, "names": names, "constants": value.co_consts}
    if isinstance(value, functools.partial):
        return {"of": value.func, "arguments": value.args, **value.keywords}
    if isinstance(value, types.MethodType):
        owner = value.__self__
        return {"of": owner, "does": value.__func__, **(_of_class(owner) if isinstance(owner, type) else {})}
    if isinstance(value, types.FunctionType):
        return _of_function(value)
    if callable(value) and hasattr(value, "__wrapped__"):  # jax.jit, functools.lru_cache
        return {"of": inspect.unwrap(value)}
    if isinstance(value, Mapping):
        return {repr(key): part for key, part in value.items()}
    if isinstance(value, tuple | list):
        return {str(place): part for place, part in enumerate(value)}
    if isinstance(value, set | frozenset):
        return {repr(part): None for part in sorted(value, key=repr)}
    if isinstance(value, types.BuiltinFunctionType | types.MethodDescriptorType | types.WrapperDescriptorType):
        return {"name": f"{getattr(value, '__module__', None)}.{value.__qualname__}"}
    return dict(value.__dict__) if hasattr(value, "__dict__") else _as_pickled(value)


def _as_pickled(value: Any) -> dict[str, Any]:
    """Return what a value without attributes is made again from, such as a range's ends, or its slots."""
    try:
        made_again = value.__reduce_ex__(2)
    except Exception:  # somebody's own code, or what cannot be copied
        return {}
    return {"from": made_again[1:3]} if isinstance(made_again, tuple) else {"from": made_again}


def _of_function(function: types.FunctionType) -> dict[str, Any]:
    closed_over = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
        try:
            closed_over[name] = cell.cell_contents
        except ValueError:  # not set yet
            closed_over[name] = None
    known = _is_of_a_library(function)
    return {
        "name": function.__qualname__,
        "does": None if known else function.__code__,
        "defaults": (function.__defaults__, function.__kwdefaults__),
        **closed_over,
        **({} if known else _globals_of(function)),
    }


def _of_class(kind: type) -> dict[str, Any]:
    """Return the functions and plain values of a class and of those that it inherits from, but for libraries'."""
    found = {}
    for one in kind.__mro__:
        for name, part in sorted(vars(one).items()) if _is_somebodys(one) else ():
            part = _function_behind(part)
            method = isinstance(part, types.FunctionType)
            if method or (_tells(part) and not (name.startswith("__") and name.endswith("__"))):
                found[f"class {one.__qualname__}.{name}"] = _in_short(part)
    return found


def _function_behind(part: Any) -> Any:
    """Return the function that a class keeps in a descriptor, or what it keeps as it is."""
    kept = {staticmethod: "__func__", classmethod: "__func__", property: "fget", functools.cached_property: "func"}
    return getattr(part, kept[type(part)]) if type(part) in kept else part


def _is_somebodys(kind: type) -> bool:
    """Return whether a class is neither Python's nor of an installed package, whose parts are many and its own."""
    package = (kind.__module__ or "").partition(".")[0]
    file = getattr(sys.modules.get(kind.__module__), "__file__", None) or ""
    installed = {"site-packages", "dist-packages"} & {*PurePath(file).parts}
    return not (package in _LIBRARIES or package in sys.stdlib_module_names or installed)


def _globals_of(function: types.FunctionType) -> dict[str, Any]:
    """Return the functions and plain values of its module that a function reads, such as a notebook's constants."""
    there = function.__globals__
    names = sorted({name for name in _global_names(function.__code__) if name in there})
    return {f"global {name}": _in_short(there[name]) for name in names if _tells(there[name])}


def _in_short(value: Any) -> Any:
    """Return a library's function by its name: what it is made of is the library's own; and all else as it is.

    One that a library made of somebody's numbers, such as a schedule, closes over them.
    """
    function = inspect.unwrap(value) if callable(value) and hasattr(value, "__wrapped__") else value
    known = isinstance(function, types.FunctionType) and _is_of_a_library(function) and not function.__closure__
    return f"{function.__module__}.{function.__qualname__}" if known else value


def _global_names(code: types.CodeType) -> Iterator[str]:
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            yield str(instruction.argval)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _global_names(constant)


def _tells(value: Any, around: tuple[Any, ...] = ()) -> bool:
    """Return whether a global is what a function works with, and not a tool, whose parts are many and its own.

    Args:
        value: the global, or a part of it.
        around: what it is a part of.
    """
    if any(value is one for one in around):
        return True
    parts = _parts_that_tell(value)
    if parts is not None:
        return all(_tells(part, (*around, value)) for part in parts)
    function = inspect.unwrap(value) if callable(value) and hasattr(value, "__wrapped__") else value
    plain = str | bytes | int | float | complex | None | np.ndarray | np.generic | jax.Array | functools.partial
    return isinstance(function, types.FunctionType | plain)


def _parts_that_tell(value: Any) -> Iterable[Any] | None:
    """Return the parts of a container, or of a record of fields; None of all else."""
    if isinstance(value, Mapping):
        return value.values()
    if isinstance(value, tuple | list | set | frozenset):
        return value
    if isinstance(value, types.SimpleNamespace):
        return vars(value).values()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: getattr(value, field.name, None) for field in dataclasses.fields(value)}
        return {**fields, **getattr(value, "__dict__", {})}.values()  # what is kept beside fields, as Flax does
    return None


def _is_of_a_library(function: types.FunctionType) -> bool:
    return (function.__module__ or "").partition(".")[0] in _LIBRARIES
