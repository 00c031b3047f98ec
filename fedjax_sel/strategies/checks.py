"""Checks of a strategy against the contract, by shapes and by values."""

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_sel.core import jax_settings, parsing
from fedjax_sel.core.jax_settings import enable_x64
from fedjax_sel.errors import RAISED_BY_PLUGINS, UserError
from fedjax_sel.strategies import protocol
from fedjax_sel.strategies.contract import Env, Now, OutputLayer, Selection, Strategy
from fedjax_sel.strategies.facts import ALL, CANDIDATES, KINDS, SERVER, Counts, Request, Schedule

Hook = tuple[Callable[..., Any], tuple[Any, ...]]  # function and argument shapes


_VALUE_NEEDED = (
    jax.errors.ConcretizationTypeError, jax.errors.TracerArrayConversionError, jax.errors.NonConcreteBooleanIndexError,
)  # fmt: skip


class BrokenContractError(UserError):
    """A strategy breaks the contract."""


def trace(name: str, hook: Hook) -> Any:
    """Return the shapes of a hook's result, traced with 64-bit types for `init`; its UserErrors pass through."""
    function, arguments = hook
    with enable_x64(name == "init"), explained(name):
        return jax.eval_shape(function, *arguments)


def _lower(name: str, hook: Hook) -> None:
    """Lower a plug-in's hook: some NumPy calls of an array's method, e.g. np.argsort, trace and cannot be lowered."""
    function, arguments = hook
    if getattr(function, "__module__", "").startswith("fedjax_sel."):
        return
    try:
        jax.jit(lambda *args: function(*args)).lower(*arguments)
    except TypeError as error:
        raise BrokenContractError(
            f"`{name}` cannot be compiled ({parsing.reason(error)}); use jnp for numpy, such as jnp.argsort"
        ) from error


def program(name: str, hook: Hook) -> tuple[str, list[bytes]]:
    """Trace a hook without JAX's cache; return its program's text without addresses, and its constants."""
    function, arguments = hook
    with enable_x64(name == "init"):
        closed = jax.make_jaxpr(lambda *args: function(*args))(*arguments)
    return re.sub(r"0x[0-9a-f]+", "", str(closed.jaxpr)), [np.asarray(constant).tobytes() for constant in closed.consts]


@contextlib.contextmanager
def explained(name: str) -> Iterator[None]:
    """Convert the exceptions of tracing a hook into one-line errors; see `trace`."""
    try:
        yield
    except UserError:
        raise
    except _VALUE_NEEDED as error:
        raise BrokenContractError(
            f"`{name}` needs the value of a traced array ({type(error).__name__}); use jnp.where or lax.cond for `if`, "
            "jnp.where(mask, x, 0) for x[mask], jnp for numpy, and counts of `now.env`"
        ) from error
    except RAISED_BY_PLUGINS as error:
        raise BrokenContractError(f"`{name}` cannot be traced: {parsing.reason(error)}") from error


def num_places(strategy: Strategy, num_clients: int, num_selected: int) -> int:
    """Return the number of places of a Selection, after checking `max_selected`."""
    with explained("max_selected"):
        count = strategy.num_places(num_clients, num_selected)
    if not isinstance(count, int) or not num_selected <= count <= num_clients:
        raise BrokenContractError(
            f"`max_selected` returns {count!r} for N = {num_clients} and K = {num_selected}; return an integer from K "
            "to N"
        )
    return count


def selection(answer: Any, num_places: int, is_random: bool = False) -> None:
    """Check that `select` returns (shapes of) a Selection with the right shapes and dtypes.

    It has `num_places`: K, or the value of `max_selected` if the cohort size `is_random`.
    """
    k, meaning = num_places, f"{'max_selected' if is_random else 'K'} = {num_places}"
    if not isinstance(answer, Selection):
        given = "an array" if hasattr(answer, "shape") else f"a {type(answer).__name__}"
        raise BrokenContractError(f"`select` returns {given}; return Selection.of(ids, now.available)")
    for name, dtype in {"ids": "int32", "mask": "bool", "weights": "float32"}.items():
        leaf: Any = getattr(answer, name)
        if leaf is None:
            if name == "weights":
                continue
            raise BrokenContractError(f"the selection has no `{name}`; return {dtype} [{k}], with {meaning}")
        if getattr(leaf, "shape", None) != (k,) or leaf.dtype != dtype:
            actual = f"{leaf.dtype} {list(leaf.shape)}" if hasattr(leaf, "dtype") else type(leaf).__name__
            raise BrokenContractError(
                f"`{name}` of the selection is {actual} and must be {dtype} [{k}], with {meaning}"
            )


def candidates(answer: Any, num_clients: int) -> None:
    """Check that `candidates` returns client IDs: int32 [d] with d at most N."""
    if getattr(answer, "ndim", None) != 1 or answer.dtype != "int32":
        raise BrokenContractError("`candidates` must return int32 [d]")
    if answer.shape[0] > num_clients:
        raise BrokenContractError(f"`candidates` returns {answer.shape[0]} IDs; return at most N = {num_clients}")


def same_state(name: str, old: Any, new: Any) -> None:
    """Check that a hook keeps the structure, shapes and dtypes of the state that `init` returns."""
    if jax.tree.structure(new) != jax.tree.structure(old):
        raise BrokenContractError(
            f"`{name}` returns a state with another structure than `init` (other fields); "
            "return the same NamedTuple, and store changing values in arrays"
        )
    for (path, before), after in zip(jax.tree.leaves_with_path(old), jax.tree.leaves(new)):
        if before.shape != after.shape or before.dtype != after.dtype:
            raise BrokenContractError(
                f"`{name}` returns state{jax.tree_util.keystr(path)} as {after.dtype} {list(after.shape)}, but `init` "
                f"returns {before.dtype} {list(before.shape)}; keep the dtype and shape"
            )


_shape: Any = jax.ShapeDtypeStruct
COUNTS = Counts(num_params=39, num_classes=4, profile_size=5)
MODEL: Mapping[str, Mapping[str, Any]] = {  # 2 inputs, 5 hidden units, 4 classes
    "Dense_0": {"bias": _shape((5,), jnp.float32), "kernel": _shape((2, 5), jnp.float32)},
    "Dense_1": {"bias": _shape((4,), jnp.float32), "kernel": _shape((5, 4), jnp.float32)},
}
OUTPUT_LAYER = OutputLayer(("Dense_1", "kernel"), ("Dense_1", "bias"))


Size = tuple[int, int, int]
"""N clients, K selected and T rounds."""


def check(strategy: Strategy, size: Size, everyone_available: bool, has_clock: bool = False) -> None:
    """Check every hook by tracing it, without running it.

    The strategy must have passed `requests`. `available` is None or bool [N].
    """
    with named("strategy", strategy.name):
        table = traced(strategy, size, everyone_available, has_clock)
        state = table["observe"][1][0]
        if strategy.candidates is not None:
            candidates(trace("candidates", table["candidates"]), size[0])
        for name in ("observe", "update"):
            same_state(name, state, trace(name, table[name]))
        for name in ("select", "update"):
            _lower(name, table[name])


def knows_inclusion(strategy: Strategy, size: Size, everyone_available: bool, has_clock: bool = False) -> bool:
    """Return whether a strategy knows its expected selection counts; arguments as for `check`."""
    if strategy.inclusion is None:
        return False
    table = traced(strategy, size, everyone_available, has_clock)
    with named("strategy", strategy.name):
        counts = trace("inclusion", (strategy.inclusion, table["select"][1][1:]))
        if counts is not None and (getattr(counts, "shape", None) != size[:1] or counts.dtype != jnp.float32):
            raise BrokenContractError("`inclusion` must return float32 [N], or None if the counts are unknown")
    return counts is not None


def traced(strategy: Strategy, size: Size, everyone_available: bool, has_clock: bool = False) -> dict[str, Hook]:
    """Return name -> hook with its argument shapes, in a run of the given size; traces `init` and `select`."""
    num_clients, num_selected, _ = size
    places = num_places(strategy, num_clients, num_selected)
    key = jax.eval_shape(lambda: jax_settings.key(0))
    sizes, shares = _shape((num_clients,), jnp.int32), _shape((num_clients,), jnp.float32)
    env = Env(*size, COUNTS.num_classes, COUNTS.num_params, sizes, shares, sizes, MODEL, OUTPUT_LAYER, has_clock)
    info = jax.eval_shape(lambda: protocol.empty_information(strategy, COUNTS, num_clients))
    available: Any = None if everyone_available else _shape((num_clients,), jnp.bool_)
    now = Now(env, info, _shape((), jnp.int32), available)
    with explained("init"):
        state = protocol.state_shapes(strategy, key, now)
    answer = trace("select", (strategy.select, (key, state, now)))
    selection(answer, places, strategy.max_selected is not None)
    outcome = protocol.outcome_shapes(strategy, places, MODEL, has_clock)
    table: dict[str, Hook] = {
        "init": (strategy.init, (key, now)),
        "observe": (strategy.observe, (state, now)),
        "select": (strategy.select, (key, state, now)),
        "update": (strategy.update, (state, now, answer, outcome)),
    }
    if strategy.candidates is not None:
        table["candidates"] = (strategy.candidates, (key, state, now))
    return table


def requests(strategy: Strategy, has_holdout: bool = True, server_has_data: bool = True) -> None:
    """Reject requests that are malformed, not in the catalog, or can never be served."""
    with named("strategy", strategy.name):
        if not isinstance(strategy.requests, tuple) or not all(isinstance(item, Request) for item in strategy.requests):
            raise BrokenContractError("`requests` is not a tuple of Request; write requests=(Request(...),)")
        if strategy.candidates is not None and CANDIDATES not in [request.who for request in strategy.requests]:
            raise BrokenContractError(
                "it has a `candidates` function but no request to CANDIDATES; remove it, or add a request"
            )
        for request in strategy.requests:
            shown = f"Request({request.kind!r}, {request.who!r}, ..)"
            if not isinstance(request.when, Schedule):
                raise BrokenContractError(f"{shown} has no schedule; add at_start(), always(), every(..) or rounds(..)")
            pairs = request.options if isinstance(request.options, tuple) else [None]
            if not all(isinstance(pair, tuple) and len(pair) == 2 for pair in pairs):
                raise BrokenContractError(f"{shown} has options that are not pairs; write options=((name, value),)")
    options: dict[str, tuple] = {}
    for request in strategy.requests:
        name = f"strategy {strategy.name!r} requests {request.kind!r}"
        _check_request(strategy.name, request)
        if options.setdefault(request.kind, request.options) != request.options:
            raise UserError(f"{name} twice with different options; use the same options in both requests")
        if request.who == CANDIDATES and strategy.candidates is None:
            raise UserError(f"{name} from its candidates, but has no `candidates` function; add one")
        if request.option("on") == "holdout" and not has_holdout:
            raise UserError(f"{name} on held-out data, but clients hold out no data; add --holdout 0.2")
        if request.is_on_validation_data and not server_has_data:
            raise UserError(f"{name} on the server's own data, but the server has none; add --server-validation 0.05")


def _check_request(strategy: str, request: Request) -> None:
    """Check a request against the catalog."""
    name = f"strategy {strategy!r} requests {request.kind!r}"
    if request.kind not in KINDS:
        raise UserError(f"{name}; the simulator serves {', '.join(KINDS)}")
    kind = KINDS[request.kind]
    if request.who not in kind.who:
        raise UserError(f"{name} from {request.who!r}; request it from {' or '.join(kind.who)}")
    for option, value in request.options:
        allowed = kind.options[parsing.one_of(f"options of {request.kind} in {strategy}", option, kind.options)]
        if isinstance(allowed, type):
            if not isinstance(value, allowed) or value < 1:
                raise UserError(f"{name} with {option}={value!r}; give a whole number of at least 1")
        elif value not in allowed:
            raise UserError(f"{name} with {option}={value!r}; give one of {', '.join(map(str, allowed))}")
    for first, last, period in request.when.rules:
        if first < 0 or period < 1 or (last is not None and last < first):
            raise UserError(f"{name} in rounds {first} to {last}, every {period}, which contains no rounds")
    if request.who != ALL and request.when.before_first_round:
        raise UserError(f"{name} from {request.who!r} before the first round; only {ALL!r} can answer at_start()")
    if request.who == SERVER and not request.when.in_every_round:
        raise UserError(f"{name} in some rounds only; the server evaluates in every round: use always()")


@contextlib.contextmanager
def named(kind: str, name: str) -> Iterator[None]:
    """Prefix contract errors with the kind and the name of their object."""
    try:
        yield
    except BrokenContractError as error:
        raise BrokenContractError(f"{kind} {name!r}: {error}") from error
