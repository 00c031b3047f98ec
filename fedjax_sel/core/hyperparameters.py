"""Hyperparameters of a strategy or an optimizer: what its function takes, and values as a command line gives them.

A value is converted by the parameter's annotation, else to the type of its default, else a text that reads as a number
becomes one.
"""

import contextlib
import functools
import hashlib
import inspect
import sys
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

from fedjax_sel.core import parsing
from fedjax_sel.core.names import LONGEST, one_of, shown
from fedjax_sel.errors import UserError

_WANTED = {int: "int, a whole number", float: "float, a number", bool: "bool, true or false", str: "str, a text"}


class Parameter(NamedTuple):
    """What a factory takes."""

    kind: Any  # a type, or Any where nothing tells
    default: Any  # inspect.Parameter.empty where it must be given


def of(factory: Callable[..., Any]) -> tuple[dict[str, Parameter], bool]:
    """Return the keyword parameters of a factory.

    Args:
        factory: any callable.

    Returns:
        Name -> parameter, and whether any other keyword is taken too (`**options`).
    """
    hints = _hints(factory)
    try:
        items = inspect.signature(factory).parameters.items()
    except (TypeError, ValueError):  # some callables written in C
        return {}, True
    parameters = {
        name: Parameter(hints.get(name, _kind_of(item.default)), item.default)
        for name, item in items
        if item.kind in (item.POSITIONAL_OR_KEYWORD, item.KEYWORD_ONLY)
    }
    return parameters, any(item.kind is item.VAR_KEYWORD for _, item in items)


def _hints(factory: Callable[..., Any]) -> dict[str, Any]:
    """Return the types of a factory's annotations, of a class those of its `__init__` too; without what has none."""
    while isinstance(factory, functools.partial):
        factory = factory.func
    annotated = (factory, factory.__init__) if isinstance(factory, type) else (factory,)
    return {name: kind for one in annotated for name, kind in _hints_of(one).items()}


def _hints_of(annotated: Any) -> dict[str, Any]:
    # An annotation is somebody's code and may raise anything; or there is nothing to annotate.
    with contextlib.suppress(Exception):
        return typing.get_type_hints(annotated)
    found = {}
    for name, annotation in getattr(annotated, "__annotations__", {}).items():
        with contextlib.suppress(Exception):  # one by one: a name that is there for type checkers alone spoils no other
            namespace = getattr(annotated, "__globals__", None) or vars(sys.modules[annotated.__module__])
            kind = eval(annotation, namespace) if isinstance(annotation, str) else annotation
            found[name] = kind
    return found


def convert(flag: str, owner: str, factory: Callable[..., Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Convert hyperparameters to the types that a factory wants.

    Args:
        flag: that gives them, for messages.
        owner: the name of what they are for, for messages.
        factory: takes them.
        arguments: name -> value; values may be texts.

    Returns:
        Keyword arguments for the factory.

    Raises:
        UserError: an unknown name, a value of the wrong type, or one that is missing.
    """
    parameters, open_ended = of(factory)
    values = {}
    for name, value in arguments.items():
        if not open_ended or name in parameters:
            one_of(f"{flag} of {owner}", name, parameters)
        kind = parameters[name].kind if name in parameters else Any
        asked = _Asked(flag, owner, name)
        values[name] = _convert(asked, value, kind)
        if (reason := parsing.misfit(values[name])) is not None:
            raise UserError(f"{asked.says(value)}: {shown(value)} {reason}")
    for name, parameter in parameters.items():
        if parameter.default is inspect.Parameter.empty and name not in values:
            raise UserError(f"{flag} of {owner}: {name!r} is missing and has no default; give {name}=...")
    return values


def _kind_of(default: Any) -> Any:
    return type(default) if type(default) in _WANTED else Any


class _Asked(NamedTuple):
    """Whose value it is, for messages."""

    flag: str
    owner: str
    name: str

    def says(self, value: Any) -> str:
        """Return the beginning of a message, e.g. "--algo-args steps=many of fedcor"."""
        text = value if isinstance(value, str) else shown(value)
        return f"{self.flag} {self.name}={text if len(text) <= LONGEST else '...'} of {self.owner}"


def _convert(asked: _Asked, value: Any, kind: Any) -> Any:
    if typing.get_origin(kind) is Literal:
        by_text = {str(choice): choice for choice in typing.get_args(kind)}
        text = value if isinstance(value, str) or value not in by_text.values() else str(value)
        return by_text[one_of(f"{asked.flag} {asked.name} of {asked.owner}", text, by_text)]
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return _first_that_fits(asked, value, typing.get_args(kind))
    try:
        return parsing.as_kind(value, kind) if kind in _WANTED else _number(value)
    except (TypeError, ValueError, OverflowError, KeyError) as error:
        raise UserError(f"{asked.says(value)}: {shown(value)} is not of type {_WANTED[kind]}") from error


def _first_that_fits(asked: _Asked, value: Any, kinds: tuple[Any, ...]) -> Any:
    """Convert a value of `int | None` and the like to the first of the types that it can be."""
    if types.NoneType in kinds and (value is None or (isinstance(value, str) and value.lower() == "none")):
        return None
    failures = []
    for kind in kinds:
        if kind is types.NoneType:
            continue
        try:
            return _convert(asked, value, kind)
        except UserError as error:
            failures.append(error)
    if len(failures) == 1:
        raise failures[0]
    wanted = " | ".join(str(getattr(kind, "__name__", kind)) for kind in kinds)
    raise UserError(f"{asked.says(value)}: {shown(value)} is not of type {wanted}")


def _number(value: Any) -> Any:
    """Return the number that a text reads as, and everything else as it is."""
    if isinstance(value, str):
        for kind in (int, float):
            try:
                return kind(value)
            except ValueError:
                continue
    return value


def digest(value: Any) -> str:
    """Return a short digest of the parameters inside a value made of functions, the same in every process.

    The digest covers numbers, strings, and arrays that functions close over, take as defaults, or keep as attributes.
    It does not cover code: give a value another name when its code changes.

    Args:
        value: a Strategy, an optimizer, or any nested structure of functions, arrays, and plain values.
    """
    summary, pending, visited = hashlib.sha256(), [value], {}
    while pending:
        part = pending.pop()
        summary.update(f"{type(part).__qualname__} {_leaf(part)}\n".encode())
        if id(part) not in visited:  # functions may refer to themselves
            visited[id(part)] = part
            pending += _parts(part)
    return summary.hexdigest()[:6]


def _leaf(value: Any) -> str:
    """Return an array's content, the text of a value without parts, or a function's name."""
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        import jax  # listing hyperparameters stays without it
        import numpy as np

        if isinstance(value, jax.Array) and jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key):
            value = jax.random.key_data(value)
        array = np.asarray(value)
        return f"{array.dtype} {array.shape} {hashlib.sha256(array.tobytes()).hexdigest()}"
    if hasattr(value, "__qualname__"):
        return value.__qualname__
    text = "" if _parts(value) else repr(value)
    return "" if " at 0x" in text else text


def _parts(value: Any) -> list[Any]:
    """Return the parameters inside a container, a function, or an instance; classes and modules have none."""
    if isinstance(value, str | bytes | type | types.ModuleType) or hasattr(value, "dtype"):
        return []
    if isinstance(value, Mapping):
        return [part for pair in value.items() for part in pair]
    if isinstance(value, tuple | list):
        return list(value)
    if isinstance(value, set | frozenset):
        return sorted(value, key=repr)
    if isinstance(value, functools.partial):
        return [value.func, value.args, value.keywords]
    if isinstance(value, types.MethodType):
        return [value.__self__, value.__func__]
    if hasattr(value, "__wrapped__"):  # jax.jit, functools.lru_cache
        return [inspect.unwrap(value)]
    if isinstance(value, types.FunctionType):
        closure = inspect.getclosurevars(value).nonlocals
        return [value.__defaults__, value.__kwdefaults__, closure]
    return [vars(value)] if hasattr(value, "__dict__") else []
