"""The first half of a round: measure what the strategy buys, select the cohort, and measure what it asks of that."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from fedjax_sel.simulation import bill as bills
from fedjax_sel.simulation import faults, information, keys, lost_reports
from fedjax_sel.simulation.bill import Bill
from fedjax_sel.simulation.faults import Named
from fedjax_sel.simulation.round_context import RoundContext
from fedjax_sel.strategies import protocol
from fedjax_sel.strategies.base import Information, Selection
from fedjax_sel.strategies.protocol import Known


class Cohort(NamedTuple):
    """Who takes part in a round, leaves [S, K]."""

    named: Named  # by the strategy, as it says it
    selection: Selection  # who trains
    reports: Selection  # the same with a mask of those whose report reaches the server


def select(context: RoundContext) -> tuple[Cohort, Known]:
    """Measure what is asked before there is a cohort, and select it.

    Args:
        context: of the round.

    Returns:
        The cohort, and the strategy's state, the facts and the bill when it is selected.
    """
    plan, round, available = context.plan, context.round, context.available
    num_replicates, num_clients = context.federation.starts.shape
    of_select = jax.vmap(lambda stream: keys.of_round(stream, round))(context.streams.selection)
    of_candidates = jax.vmap(lambda key: jax.random.fold_in(key, keys.CANDIDATES))(of_select)

    def serve(info: Information, bill: Bill, who: str, ids: jax.Array | None = None) -> tuple[Information, Bill]:
        asked = None if ids is None else faults.somebody(ids, num_clients)
        return information.measure(context, info, bill, who, asked)

    nothing = bills.nothing(num_replicates, num_clients, len(plan.strategy.requests))
    known, (answer, candidates) = protocol.select(
        protocol.over_replicates(plan.strategy),
        serve,
        Known(context.carry.strategy, context.carry.info, nothing),
        protocol.Keys(of_candidates, of_select),
        round,
        available,
    )
    selection = answer._replace(ids=faults.somebody(answer.ids, num_clients))
    if available is not None:  # whoever cannot be reached does not train, whatever a strategy says
        reachable = jnp.take_along_axis(available, selection.ids, axis=1)
        selection = selection._replace(mask=selection.mask & reachable)
    arrives = lost_reports.arrives(plan.report_failure_rate, context.streams, round, selection.ids, selection.mask)
    named = Named(answer.ids, selection.mask, candidates)
    return Cohort(named, selection, selection._replace(mask=arrives)), known


def measure_cohort(context: RoundContext, cohort: Cohort, known: Known) -> Known:
    """Measure what the strategy asks of the cohort; the answers travel with its reports.

    Args:
        context: of the round.
        cohort: who is asked, and who is heard.
        known: when it was selected.
    """
    return protocol.ask_cohort(partial(information.measure, context), known, cohort.selection, cohort.reports.mask)
