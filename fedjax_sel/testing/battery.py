"""The battery: all checks in order, and the checks that each one requires."""

import functools
import time
from collections.abc import Callable, Collection
from typing import Any, NamedTuple

from fedjax_sel.core import texts
from fedjax_sel.errors import RAISED_BY_PLUGINS
from fedjax_sel.strategies.base import Strategy
from fedjax_sel.testing import bill, cohorts, declaration, exchangeability, programs, robustness
from fedjax_sel.testing.bench import Bench, Options
from fedjax_sel.testing.report import Finding, NotApplicable, Report, Violation


class Check(NamedTuple):
    """A check: a function of a bench that returns a remark or None, and raises Violation or NotApplicable."""

    name: str
    run: Callable[[Bench], str | None]
    needs: tuple[str, ...] = ()


_TRACED = ("requests", "traceable")
_PLAYED = (*_TRACED, "answer", "state")


def _nan(world: str) -> Check:
    return Check(f"nan: {world}", functools.partial(robustness.no_nan, world=world), (*_PLAYED, "cohort"))


CHECKS: tuple[Check, ...] = (
    Check("requests", declaration.requests),
    Check("traceable", declaration.traceable, ("requests",)),
    Check("pure", declaration.pure, _TRACED),
    Check("facts read", declaration.facts_read, _TRACED),
    Check("answer", cohorts.answer, _TRACED),
    Check("weights declared", cohorts.weights_declared, (*_TRACED, "answer")),
    Check("state", programs.state, _TRACED),
    Check("key used", programs.key_used, _TRACED),
    Check("no retrace", programs.no_retrace, (*_TRACED, "answer")),
    Check("key used once", programs.key_used_once, _PLAYED),
    Check("same key", programs.same_key, _PLAYED),
    Check("cohort", cohorts.cohort, _PLAYED),
    Check("keys matter", robustness.keys_matter, (*_PLAYED, "cohort", "key used")),
    Check("rounds matter", robustness.rounds_matter, (*_PLAYED, "cohort", "key used")),
    Check("scan and vmap", programs.scan_and_vmap, _PLAYED),
    Check("eager", programs.eager, _PLAYED),
    *(_nan(world) for world in ("ordinary", "alike", "twins", "extreme", "diverging")),
    Check("uniform", exchangeability.uniform, (*_PLAYED, "cohort")),
    Check("uniform pairs", exchangeability.uniform_pairs, (*_PLAYED, "cohort", "uniform")),
    Check("equivariant", exchangeability.equivariant, (*_PLAYED, "cohort")),
    Check("availability", cohorts.availability, _PLAYED),
    Check("nan: few available", robustness.no_nan_where_few_are_available, (*_PLAYED, "availability")),
    Check("K = 1, N - 1, N", cohorts.sizes, (*_PLAYED, "cohort")),
    Check("ledger", bill.ledger, (*_PLAYED, "cohort")),
)


def examine(
    factory: Callable[[], Strategy] | Strategy,
    *,
    num_clients: int = 12,
    num_selected: int = 3,
    rounds: int = 8,
    games: int = 256,
    seed: int = 0,
    run: bool = True,
    skip: Collection[str] = (),
) -> Report:
    """Run the battery and return its report.

    Args:
        factory: a strategy, or a function without arguments that returns one.
        num_clients: number of clients N of the synthetic federation.
        num_selected: cohort size K, below N.
        rounds: rounds per game; enough for the strategy to reach all of its phases.
        games: games over which frequencies are counted; fewer games are faster and less sensitive.
        seed: random seed.
        run: whether to run a small experiment and compare its ledger with the cost implied by the requests.
        skip: names of checks to skip.

    Returns:
        The report: for each check its status (passed, failed or skipped) and the reason.

    Raises:
        ValueError: a size is out of range, or a check name is unknown.
    """
    unknown = set(skip) - {check.name for check in CHECKS}
    if unknown:
        raise ValueError(f"skip: no check is named {sorted(unknown)[0]!r}; choose from {[c.name for c in CHECKS]}")
    for name, value, least in (("num_clients", num_clients, 2), ("rounds", rounds, 1), ("games", games, 3)):
        if value < least:
            raise ValueError(f"{name}: {value} is below {least}; give at least {least}")
    if not 1 <= num_selected < num_clients:
        raise ValueError(f"num_selected: {num_selected} is out of range; give 1 to {num_clients - 1}")
    try:
        strategy = factory if isinstance(factory, Strategy) else factory()
    except RAISED_BY_PLUGINS as error:
        return _invalid_factory(
            factory, f"calling it without arguments raises {texts.reason(error)}; bind its arguments in a lambda"
        )
    if not isinstance(strategy, Strategy):
        return _invalid_factory(
            factory, f"it returns {type(strategy).__name__} and must return a fedjax_sel.strategies.base.Strategy"
        )
    if not isinstance(strategy.name, str) or not strategy.name:
        return _invalid_factory(factory, f"its name is {strategy.name!r} and must be a nonempty string")
    bench = Bench(strategy, Options(num_clients, num_selected, rounds, games, seed, run))
    findings: dict[str, Finding] = {}
    for check in CHECKS:
        started = time.monotonic()
        status, why = _run(check, bench, findings, skip)
        findings[check.name] = Finding(status, why, time.monotonic() - started)
    return Report(strategy.name, findings)


def check_strategy(factory: Callable[[], Strategy] | Strategy, **options: Any) -> None:
    """Raise an error unless a strategy passes the battery.

    Args:
        factory: a strategy, or a function without arguments that returns one.
        **options: options of `examine`.

    Raises:
        ConformanceError: an AssertionError with one line per failed check.
    """
    examine(factory, **options).require()


def _run(check: Check, bench: Bench, findings: dict[str, Finding], skip: Collection[str]) -> tuple[str, str]:
    if check.name in skip:
        return "skipped", "by request"
    for need in check.needs:
        if findings[need].status == "failed":
            return "skipped", f"{need!r} failed"
    try:
        return "passed", check.run(bench) or ""
    except NotApplicable as reason:
        return "skipped", str(reason)
    except Violation as violation:
        return "failed", str(violation)
    except RAISED_BY_PLUGINS as error:
        return "failed", f"it raises {texts.reason(error)}"


def _invalid_factory(factory: Any, why: str) -> Report:
    name = getattr(factory, "__name__", type(factory).__name__)
    return Report(name, {"factory": Finding("failed", why, 0.0)})
