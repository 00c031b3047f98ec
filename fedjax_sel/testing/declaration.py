"""Checks of a strategy's declaration: its requests, its hooks, and that it reads the facts that it buys."""

import jax

from fedjax_sel.core.jax_versions import enable_x64
from fedjax_sel.strategies import contract, data_needs
from fedjax_sel.strategies.base import Strategy, keep_state
from fedjax_sel.strategies.dependencies import read
from fedjax_sel.testing import tracing
from fedjax_sel.testing.bench import Bench
from fedjax_sel.testing.report import NotApplicable, Violation, violations


def requests(bench: Bench) -> None:
    """Check that each request has a known kind, a group that can answer it, and a valid schedule."""
    with violations():
        contract.requests(bench.strategy)
        data_needs.check(bench.strategy, holdout=0.5, server_validation=0.5)  # assumes that all data exist


def traceable(bench: Bench) -> None:
    """Check that every hook can be traced, and reads only requested facts."""
    with violations():
        with contract.explained("init"):
            _ = bench.start
        with contract.explained("select"):
            contract.is_selection(bench.selection)
        for name, hook in bench.hooks().items():
            contract.trace(name, hook)


def pure(bench: Bench) -> None:
    """Check that tracing a hook twice gives the same program."""
    for name, (hook, arguments) in bench.hooks().items():
        if hook is keep_state:
            continue
        with enable_x64(name == "prepare"):
            try:
                same = tracing.program(hook, arguments) == tracing.program(hook, arguments)
            except Exception as error:
                raise Violation(
                    f"`{name}` fails when it is traced a second time ({type(error).__name__}): it stores values "
                    "outside the state; store them in the state"
                ) from error
        if not same:
            raise Violation(
                f"`{name}` gives a different program each time it is traced: it changes or draws values outside JAX; "
                "store them in the state, and draw with the key"
            )


def facts_read(bench: Bench) -> None:
    """Check that some hook reads every bought kind of fact."""
    strategy = bench.strategy
    if not strategy.requests:
        raise NotApplicable("it buys nothing")
    kinds = set()
    for name, (hook, arguments) in bench.hooks().items():
        if hook is keep_state:
            continue
        with enable_x64(name == "prepare"):
            marks = read(hook, *arguments)
        info = marks[2] if name in ("select", "candidates") else marks[1]
        kinds |= {kind for kind in info.kinds() if any(getattr(info, kind))}
        if name == "update" and any(jax.tree.leaves(marks[4].metrics)):
            kinds.add("server_metrics")
        if name == "update" and any(jax.tree.leaves(marks[4].subset_loss)):
            kinds.add("subset_loss")
    for request in strategy.requests:
        if request.kind not in kinds:
            raise Violation(f"it buys {request.kind!r} from {request.who!r} and never reads it; remove that Request")


def losses_read(strategy: Strategy, bench: Bench) -> int:
    """Return how many of the cohort's reported losses (before and after training) `update` reads."""
    if strategy.update is keep_state:
        return 0
    hook, arguments = bench.hooks()["update"]
    outcome = read(hook, *arguments)[4]
    return int(bool(outcome.losses_before)) + int(bool(outcome.losses_after))
