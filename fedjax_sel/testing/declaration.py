"""Checks of what a strategy declares: its requests, its hooks, and that it reads what it buys."""

import jax

from fedjax_sel.errors import UserError
from fedjax_sel.simulation import information
from fedjax_sel.simulation.reads import read
from fedjax_sel.strategies.base import CANDIDATES, Request, Schedule, Strategy, UndeclaredFactError, keep_state
from fedjax_sel.testing import tracing
from fedjax_sel.testing.bench import Bench
from fedjax_sel.testing.report import NotApplicable, Violation


def requests(bench: Bench) -> None:
    """Requests name a known kind, somebody who can answer it, and a time at which they can."""
    strategy = bench.strategy
    if not isinstance(strategy.requests, tuple) or not all(isinstance(item, Request) for item in strategy.requests):
        raise Violation("`requests` is not a tuple of Request; write requests=(Request(...),)")
    for request in strategy.requests:
        _one(request)
    try:
        information.check(strategy, holdout=0.5, server_validation=0.5)  # a run has them where they are needed
    except UserError as error:
        raise Violation(str(error)) from error
    asks = any(request.who == CANDIDATES for request in strategy.requests)
    if strategy.candidates is not None and not asks:
        raise Violation("`candidates` names clients whom no request asks; drop it, or add a request to CANDIDATES")


def _one(request: Request) -> None:
    shown = f"Request({request.kind!r}, {request.who!r}, ..)"
    if not isinstance(request.when, Schedule):
        raise Violation(f"{shown} has no schedule; give at_start(), always(), every(..) or rounds(..)")
    if not request.when.before_first_round and not request.when.rules:
        raise Violation(f"{shown} is never due; give at_start(), always(), every(..) or rounds(..)")
    for rule in request.when.rules:
        if rule.first < 0 or rule.period < 1 or (rule.last is not None and rule.last < rule.first):
            raise Violation(f"{shown} has the rounds {tuple(rule)} (first, last, period), of which there are none")


def traceable(bench: Bench) -> None:
    """Every hook can be traced, and reads only facts that were bought."""
    try:
        _ = bench.start
        hooks = bench.hooks()
    except Violation:
        raise
    except Exception as error:
        raise _as_violation("init or select", error) from error
    for name, (hook, arguments) in hooks.items():
        try:
            if name == "prepare":
                with jax.enable_x64(True):
                    jax.eval_shape(hook, *arguments)
            else:
                jax.eval_shape(hook, *arguments)
        except Exception as error:
            raise _as_violation(f"`{name}`", error) from error


def _as_violation(what: str, error: Exception) -> Violation:
    first = (str(error).strip().splitlines() or [""])[0]
    if isinstance(error, UndeclaredFactError):
        return Violation(first)
    if isinstance(error, jax.errors.ConcretizationTypeError | jax.errors.TracerArrayConversionError):
        return Violation(
            f"{what} needs the value of a traced array ({type(error).__name__}); use jnp.where or lax.cond for `if`, "
            "jnp for numpy, and Static for counts"
        )
    return Violation(f"{what} cannot be traced: {type(error).__name__}: {first}")


def pure(bench: Bench) -> None:
    """Tracing a hook twice gives the same program."""
    for name, (hook, arguments) in bench.hooks().items():
        if hook is keep_state:
            continue
        with jax.enable_x64(name == "prepare"):
            try:
                same = tracing.program(hook, arguments) == tracing.program(hook, arguments)
            except Exception as error:
                raise Violation(
                    f"`{name}` fails when it is traced a second time ({type(error).__name__}): it keeps something "
                    "outside of the state; put it into the state"
                ) from error
        if not same:
            raise Violation(
                f"`{name}` becomes another program each time it is traced: it changes or draws something outside of "
                "JAX; put it into the state, and draw with the key"
            )


def facts_read(bench: Bench) -> None:
    """Every kind of fact that is bought is read by some hook."""
    strategy = bench.strategy
    if not strategy.requests:
        raise NotApplicable("it buys nothing")
    kinds = set()
    for name, (hook, arguments) in bench.hooks().items():
        if hook is keep_state:
            continue
        with jax.enable_x64(name == "prepare"):
            marks = read(hook, *arguments)
        info = marks[2] if name in ("select", "candidates") else marks[1]
        kinds |= {kind for kind in info.kinds() if any(getattr(info, kind))}
        if name == "update" and any(jax.tree.leaves(marks[4].metrics)):
            kinds.add("server_metrics")
    for request in strategy.requests:
        if request.kind not in kinds:
            raise Violation(f"it buys {request.kind!r} from {request.who!r} and never reads it; drop that Request")


def losses_read(strategy: Strategy, bench: Bench) -> int:
    """How many of a cohort's reported losses (before, after training) `update` reads from the outcome."""
    if strategy.update is keep_state:
        return 0
    hook, arguments = bench.hooks()["update"]
    outcome = read(hook, *arguments)[4]
    return int(bool(outcome.losses_before)) + int(bool(outcome.losses_after))
