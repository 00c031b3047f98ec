"""A Selector's round where clients answer over a network, or do not: ask, tell what fits, select, report.

It knows no framework. Whoever uses it says how a question is sent.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from fedjax_sel.selector import Ask, Selector
from fedjax_sel.simulation.sanitise import LARGEST
from fedjax_sel.strategies.kinds import KINDS

Name = Any  # hashable
AskClients = Callable[[Ask, tuple[Name, ...]], Mapping[Name, Any]]
"""(what is asked, of whom) -> what those answered who did; others are left out."""

_log = logging.getLogger(__name__)


class Reported(NamedTuple):
    """What one client of a cohort sent as its training ended.

    Attributes:
        update: w_k - w, name -> array.
        facts: kind -> what it answered to the questions that travelled with its training.
        losses: `losses_before` and `losses_after`, where they are read.
        carried: what else of its model it sent, such as batch statistics.
    """

    update: Mapping[str, np.ndarray]
    facts: Mapping[str, Any] = {}
    losses: Mapping[str, float] = {}
    carried: Mapping[str, np.ndarray] = {}

    @property
    def finite(self) -> bool:
        """Whether what it sent of its model holds only finite numbers."""
        arrays = (*self.update.values(), *self.carried.values())
        return all(np.isfinite(array).all() and not np.ma.is_masked(array) for array in arrays)


def choose(
    selector: Selector, available: Iterable[Name] | None, ask: AskClients, attempts: int = 2
) -> tuple[tuple[Name, ...], np.ndarray | None]:
    """Open a round: ask what is due, tell what is answered, and select.

    Whoever does not answer is asked again as long as too few have answered for a cohort. An answer that does not fit
    counts as none, and is logged.

    Args:
        selector: between two rounds.
        available: who can be reached; None: everyone.
        ask: sends a question and waits for the answers.
        attempts: how often a client is asked at most.

    Returns:
        The cohort and its weights, as `Selector.select` gives them.

    Raises:
        UserError: too few answered.
    """
    there = None if available is None else tuple(available)
    while asks := selector.asks(there):
        for due in asks:
            names, values = _answers(due, ask, selector.num_selected, attempts)
            selector.tell(due.kind, names, values)
    return selector.select()


def _answers(due: Ask, ask: AskClients, wanted: int, attempts: int) -> tuple[tuple[Name, ...], np.ndarray]:
    found: dict[Name, Any] = {}
    wanted = min(wanted, len(due.clients))
    for attempt in range(attempts):
        left = tuple(name for name in due.clients if name not in found)
        if not left or (attempt and len(found) >= wanted):
            break
        found |= {name: value for name, value in ask(due, left).items() if name in left}
        found = dict(zip(*fitting(due, found)))
    return fitting(due, found)


def fitting(due: Ask, answers: Mapping[Name, Any]) -> tuple[tuple[Name, ...], np.ndarray]:
    """Return those answers that can be told: of the right shape, and finite.

    A loss that is not finite is bad and not unknown: as in the simulator the largest finite one stands in for it,
    unless the strategy wants to see that it is missing.

    Args:
        due: what was asked.
        answers: name -> value.

    Returns:
        The names, in the order in which they were asked, and their values, float32 [M, *shape].
    """
    rows: dict[Name, np.ndarray] = {}
    for name in due.clients:
        if name not in answers:
            continue
        try:
            row = None if np.ma.is_masked(answers[name]) else np.asarray(answers[name], np.float32)
        except (TypeError, ValueError):
            row = None
        if row is None or row.shape != due.shape:
            shape = "no number" if row is None else f"of shape {list(row.shape)}"
            _log.warning("%s of client %r is %s and not of %s; it is left out", due.kind, name, shape, list(due.shape))
            continue
        rows[name] = row
    if KINDS[due.kind].is_loss and due.options.get("nonfinite") != "missing":
        rows = dict(zip(rows, finite_losses(list(rows.values()), due.largest_known)))
    for name in [name for name, row in rows.items() if not np.isfinite(row).all()]:
        _log.warning("%s of client %r is not finite; it is left out", due.kind, name)
        del rows[name]
    return tuple(rows), np.stack(list(rows.values())) if rows else np.zeros((0, *due.shape), np.float32)


def finite_losses(losses: Sequence[Any], known: float = -np.inf) -> np.ndarray:
    """Return losses with the largest finite one in the place of NaN, within what the simulator allows.

    Args:
        losses: numbers [M, ...].
        known: the largest of those who answered before; -inf without.

    Returns:
        float32 [M, ...].
    """
    values = np.asarray(losses, np.float32)
    clipped = np.clip(values, -LARGEST, LARGEST)
    finite = clipped[np.isfinite(values)]
    largest = finite.max(initial=known)
    return np.where(np.isnan(values), largest if np.isfinite(largest) else LARGEST, clipped).astype(np.float32)


def close(
    selector: Selector,
    reports: Mapping[Name, Reported],
    step: Mapping[str, np.ndarray],
    metrics: tuple[Mapping[str, float], Mapping[str, float]] | None = None,
    subset_loss: Callable[[tuple[Name, ...]], float] | None = None,
) -> None:
    """Close a round: tell what the cohort answered with its reports, and let the strategy learn.

    Args:
        selector: that has selected.
        reports: of those who are heard of, in any order.
        step: change of the global model, name -> array.
        metrics: the server's own evaluations before and after the round, where they are read.
        subset_loss: as `Selector.update` takes it, where it is read.
    """
    for due in selector.asks():
        answers = {name: report.facts[due.kind] for name, report in reports.items() if due.kind in report.facts}
        selector.tell(due.kind, *fitting(due, answers))
    values: dict[str, Any] = {"step": dict(step), "metrics": metrics, "subset_loss": subset_loss}
    updates = [dict(report.update) for report in reports.values()]
    if updates:
        values["updates"] = jax.tree.map(lambda *leaves: np.stack(leaves), *updates)
    else:
        values["updates"] = {name: np.zeros((0, *np.shape(array)), np.float32) for name, array in step.items()}
    for name in ("losses_before", "losses_after"):
        if name in selector.reads:
            values[name] = finite_losses([report.losses[name] for report in reports.values()])
    broken = [name for name, report in reports.items() if not report.finite]
    given = {name: value for name, value in values.items() if name in selector.reads}
    selector.update(tuple(reports), broken=broken, **given)
