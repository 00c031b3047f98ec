"""Plug-ins and factories: import by name, optional packages, sources, hyperparameters, digests, and registries."""

import contextlib
import dataclasses
import difflib
import functools
import hashlib
import importlib
import inspect
import logging
import math
import os
import sys
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, NamedTuple, TypeVar

from fedjax_sel.core import parsing
from fedjax_sel.core.parsing import KINDS, LONGEST, one_of, shown
from fedjax_sel.errors import RAISED_BY_PLUGINS, UserError


def optional(module: str, what: str, advice: str) -> Any:
    """Import a module of an optional package, or raise UserError; `what` names the flag or function that needs it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise UserError(f"{what}: the package {module.partition('.')[0]} is missing; {advice}") from error


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silence the log of TFDS and Orbax, whose messages do not help users; errors are raised."""
    logger = logging.getLogger("absl")
    before = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(before)


def is_plugin(name: Any) -> bool:
    """Return whether a name has the form `module:factory`."""
    return isinstance(name, str) and ":" in name


Sources = dict[str, str]  # module name -> SHA-256 of its file


def sources(name: str) -> Sources:
    """Return the digests of a loaded plug-in's source files; {} if the name is no plug-in or has no source file.

    They are the loaded modules of its package and those in its folder.
    """
    module_name = name.partition(":")[0]
    first, top = _file(module_name), module_name.partition(".")[0]
    if not is_plugin(name) or first is None:
        return {}
    found: Sources = {}
    for other in list(sys.modules):
        file, package = _file(other), other.partition(".")[0]
        if file is None or not file.is_file() or package in ("__main__", "fedjax_sel"):
            continue
        beside = file.is_relative_to(first.parent) and "site-packages" not in file.parts
        if beside or package == top:
            found[other] = hashlib.sha256(file.read_bytes()).hexdigest()
    return found


def edited(before: Mapping[str, Sources], now: Mapping[str, Sources]) -> list[str]:
    """Return a phrase for each plug-in whose source files changed; current `sources` are empty if they are gone."""
    phrases = []
    for name, files in now.items():
        then = before.get(name, files)
        changed = sorted(module for module in files.keys() & then.keys() if files[module] != then[module])
        if changed:
            phrases.append(f"{name} was edited since ({', '.join(changed)})")
    return phrases


def _file(module_name: str) -> Path | None:
    """Return the file of a loaded module; None if it has none."""
    file = getattr(sys.modules.get(module_name), "__file__", None)
    return Path(file) if isinstance(file, str) else None


class Within(NamedTuple):
    """A numeric parameter's range, as in `rate: Annotated[float, Within(0, 1)] = 0.5`; infinity and NaN are outside."""

    least: float = -math.inf
    most: float = math.inf
    above: float = -math.inf
    below: float = math.inf

    def __call__(self, value: float) -> str | None:
        """Return why a number is not in the range, as the end of a message; None if it is."""
        if self.least <= value <= self.most and self.above < value < self.below:
            return None
        return f"must be {'' if math.isfinite(value) else 'finite and '}{self}"

    def check(self, given: str, value: float, advice: str = "") -> None:
        """Reject a number that is not in the range; `given` names it in the message."""
        if (reason := self(value)) is not None:
            raise UserError(f"{given}: {reason}{advice}")

    def __str__(self) -> str:
        """Return the range in words: "above 0", "at least 1", or "from 0 to 1 (excluded)"."""
        is_open, low, high = self.above > self.least, max(self.least, self.above), min(self.most, self.below)
        if high == math.inf:
            return f"{'above' if is_open else 'at least'} {low:g}"
        return f"from {low:g}{' (excluded)' * is_open} to {high:.10g}{' (excluded)' * (self.below < self.most)}"


# Types of common parameters.
Count = Annotated[int, Within(1)]
CountOrZero = Annotated[int, Within(0)]
AtLeastOne = Annotated[float, Within(1)]
NonNegative = Annotated[float, Within(0)]
Positive = Annotated[float, Within(above=0)]
Share = Annotated[float, Within(0, 1)]
Decay = Annotated[float, Within(0, below=1)]
PositiveShare = Annotated[float, Within(most=1, above=0)]


class Parameter(NamedTuple):
    """A factory's keyword parameter."""

    kind: Any  # the type; Any if neither annotation nor default gives one
    default: Any  # inspect.Parameter.empty if required


def parameters_of(factory: Callable[..., Any]) -> tuple[dict[str, Parameter], bool]:
    """Return a factory's keyword parameters by name, and whether it also accepts other keywords (`**options`)."""
    hints = _hints(factory)
    try:
        items = inspect.signature(factory).parameters.items()
    except (TypeError, ValueError):  # some callables written in C
        return {}, True
    parameters = {
        name: Parameter(hints.get(name, type(item.default) if type(item.default) in KINDS else Any), item.default)
        for name, item in items
        if item.kind in (item.POSITIONAL_OR_KEYWORD, item.KEYWORD_ONLY)
    }
    return parameters, any(item.kind is item.VAR_KEYWORD for _, item in items)


def _hints(factory: Any) -> dict[str, Any]:
    """Return the annotations of a function, of a class's `__init__`, or of the function inside a partial."""
    while isinstance(factory, functools.partial):
        factory = factory.func
    if not inspect.isroutine(factory):
        factory = factory.__init__ if isinstance(factory, type) else type(factory).__call__
    function = inspect.unwrap(factory)
    found = {}
    for name, annotation in getattr(function, "__annotations__", {}).items():
        with contextlib.suppress(NameError, AttributeError):  # names that exist for type checkers only
            found[name] = eval(annotation, function.__globals__) if isinstance(annotation, str) else annotation
    return found


def convert_parameters(
    flag: str, owner: str, factory: Callable[..., Any], arguments: Mapping[str, Any]
) -> dict[str, Any]:
    """Convert hyperparameters, possibly strings, to a factory's types; reject unknown, wrong and missing ones.

    `flag` and `owner` (the strategy or optimizer) are for messages.
    """
    parameters, open_ended = parameters_of(factory)
    values = {}
    for name, value in arguments.items():
        if not open_ended or name in parameters:
            one_of(f"{flag} of {owner}", name, parameters)
        kind, default = parameters.get(name, Parameter(Any, None))
        text = value if isinstance(value, str) else shown(value)
        given = f"{flag} {name}={text if len(text) <= LONGEST else '...'} of {owner}"
        values[name] = convert(given, value, kind, default)
    for name, parameter in parameters.items():
        if parameter.default is inspect.Parameter.empty and name not in values:
            raise UserError(f"{flag} of {owner}: {name!r} is missing and has no default; give {name}=...")
    return values


def convert(given: str, value: Any, kind: Any, default: Any = inspect.Parameter.empty) -> Any:
    """Convert a value to a type and check its range; `given` names the parameter in messages, with its `default`."""
    if typing.get_origin(kind) is Annotated:
        kind, *notes = typing.get_args(kind)
        converted = convert(given, value, kind, default)
        usual = f" {default:g}" if isinstance(default, int | float) else ""
        advice = "" if default is inspect.Parameter.empty else f"; leave it out for the default{usual}"
        for note in notes:
            if isinstance(note, Within) and converted is not None:
                note.check(given, converted, advice)
        return converted
    if typing.get_origin(kind) is Literal:
        by_text = {str(choice): choice for choice in typing.get_args(kind)}
        text = value if isinstance(value, str) or value not in by_text.values() else str(value)
        return by_text[one_of(given, text, by_text)]
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        kinds = [one for one in typing.get_args(kind) if one is not types.NoneType]
        if len(kinds) < len(typing.get_args(kind)) and str(value).lower() == "none":
            return None
        if len(kinds) == 1:
            return convert(given, value, kinds[0], default)
        for one in kinds:  # the first that fits
            with contextlib.suppress(UserError):
                return convert(given, value, one, default)
        wanted = " | ".join(str(getattr(one, "__name__", one)) for one in kinds)
        raise UserError(f"{given}: {shown(value)} is not of type {wanted}")
    return parsing.scalar(given, value, kind) if kind in KINDS else _number(value)


def _number(value: Any) -> Any:
    """Convert a numeric string to a number; return any other value unchanged."""
    if isinstance(value, str):
        for kind in (int, float):
            try:
                return kind(value)
            except ValueError:
                continue
    return value


def parameter_digest(value: Any) -> str:
    """Return a short digest of the parameters inside a value composed of functions, equal in every process.

    The digest covers numbers, strings, and arrays that functions close over, take as defaults, or keep as attributes.
    It does not cover code: give a value another name when its code changes.
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
        from fedjax_sel.core import jax_settings  # imported here, because --help must stay fast

        array = jax_settings.as_numpy(value)
        return f"{array.dtype} {array.shape} {hashlib.sha256(array.tobytes()).hexdigest()}"
    if hasattr(value, "__qualname__"):
        return value.__qualname__
    text = "" if _parts(value) else repr(value)
    return "" if " at 0x" in text else text


def _parts(value: Any) -> list[Any]:
    """Return the parameters inside a container, a function, or an instance; classes and modules have none."""
    if isinstance(value, str | type | types.ModuleType) or hasattr(value, "dtype"):
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
        return [value.__func__, value.__self__]
    if hasattr(value, "__wrapped__"):  # jax.jit, functools.lru_cache
        return [inspect.unwrap(value)]
    if isinstance(value, types.FunctionType):
        closure = inspect.getclosurevars(value).nonlocals
        return [value.__defaults__, value.__kwdefaults__, closure]
    return [vars(value)] if hasattr(value, "__dict__") else []


Made = TypeVar("Made")


@dataclasses.dataclass(frozen=True)
class Registry(Generic[Made]):
    """Factories by name, including plug-ins `mypackage.module:factory`.

    Attributes:
        flag: the flag that takes the name, e.g. "--algo"; `--algo-args` takes the parameters.
        kind: the type that factories return.
        factories: name -> factory; a factory's keyword arguments are its parameters.
    """

    flag: str
    kind: type[Made]
    factories: Mapping[str, Callable[..., Made]] = dataclasses.field(default_factory=dict)

    def names(self) -> tuple[str, ...]:
        """Return the registered names, in the registry's order."""
        return tuple(self.factories)

    def make(self, name: str, /, **hyperparameters: Any) -> Made:
        """Build an object by name.

        Args:
            name: one of `names()`, or `mypackage.module:factory`.
            **hyperparameters: keyword arguments of the factory; values may be strings from a command line.

        Raises:
            UserError: If a name or parameter is invalid, or a plug-in fails.
        """
        factory = self.factory(name)
        values = convert_parameters(f"{self.flag}-args", name, factory, hyperparameters)
        if not is_plugin(name):
            return factory(**values)
        try:
            made = factory(**values)
        except UserError:
            raise
        except RAISED_BY_PLUGINS as error:
            given, advice = f"calling it raised {parsing.reason(error)}", f"fix it, or change {self.flag}-args"
            raise UserError(f"{self.flag} {name}: {given}; {advice}") from error
        if not isinstance(made, self.kind):
            given = "None" if made is None else f"a value of type {type(made).__name__}"
            wanted = f"{self.kind.__module__}.{self.kind.__name__}"
            raise UserError(f"{self.flag} {name}: it returned {given}; it must return a {wanted}")
        return made

    def parameters(self, name: str) -> dict[str, Parameter]:
        """Return a factory's parameters: name -> (type, default)."""
        return parameters_of(self.factory(name))[0]

    def factory(self, name: str) -> Callable[..., Made]:
        """Return the factory of a name, or raise UserError."""
        bare, bracket, values = name.partition("[")
        if bracket:
            raise UserError(f"{self.flag} {name}: give {self.flag} {bare} {self.flag}-args {values.rstrip(']')}")
        return self._load(name) if is_plugin(name) else self.factories[one_of(self.flag, name, self.factories)]

    def _load(self, name: str) -> Callable[..., Made]:
        """Import a plug-in's factory without calling it; its module may also be in the working directory."""
        module_name, _, attribute = name.partition(":")
        if not all(part.isidentifier() for part in module_name.split(".")) or not attribute.isidentifier():
            raise UserError(f"{self.flag} {name}: not of the form mypackage.module:factory")
        if module_name.endswith(".py"):
            raise UserError(f"{self.flag} {name}: leave out .py; give {module_name.removesuffix('.py')}:{attribute}")
        here = os.getcwd()
        if "" not in sys.path and here not in sys.path:
            sys.path.append(here)
        importlib.invalidate_caches()  # the file may have been written a moment ago
        try:
            module = importlib.import_module(module_name)
        except RAISED_BY_PLUGINS as error:
            missing = error.name or "" if isinstance(error, ModuleNotFoundError) else None
            if missing is not None and f"{module_name}.".startswith(f"{missing}."):
                reason = f"there is no module {missing!r}; start from the folder with it, or install it"
            else:
                reason = f"importing {module_name!r} raised {parsing.reason(error)}; fix that first"
            raise UserError(f"{self.flag} {name}: {reason}") from error
        found: Any = getattr(module, attribute, None)
        if isinstance(found, self.kind) and not callable(found):  # a partition is callable, and so is its factory
            return lambda: found
        if not callable(found):
            functions = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
            near = difflib.get_close_matches(attribute, functions, n=1)
            own = f"name a function in it that returns a {self.kind.__name__}"
            advice = f"did you mean {near[0]!r}?" if near else own
            raise UserError(f"{self.flag} {name}: {module_name!r} has no function {attribute!r}; {advice}")
        return found  # pyright: ignore[reportReturnType] - `make` checks it
