"""The first half of a round: measure the requested facts, select the cohort, and query the cohort."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from fedjax_sel.simulation import bill as bills
from fedjax_sel.simulation import faults, information, keys, lost_reports
from fedjax_sel.simulation.bill import Bill
from fedjax_sel.simulation.faults import UncheckedIds
from fedjax_sel.simulation.round_context import RoundContext
from fedjax_sel.strategies import protocol
from fedjax_sel.strategies.base import Information, Selection
from fedjax_sel.strategies.protocol import Known


class Cohort(NamedTuple):
    """The participants of a round, leaves [S, K]."""

    named: UncheckedIds  # as the strategy returned them
    selection: Selection  # its mask marks the clients that train
    reports: Selection  # the same clients; its mask marks those whose report reaches the server


def select(context: RoundContext) -> tuple[Cohort, Known]:
    """Measure the facts requested of all clients and of candidates, then let the strategy select the cohort.

    The order of the strategy's hooks is `protocol.select`'s.

    Args:
        context: the round's inputs.

    Returns:
        The cohort, and the selection state (strategy state, fact tables, bill) after the selection.
    """
    plan, round, available = context.plan, context.round, context.available
    num_replicates, num_clients = context.federation.starts.shape
    of_select = jax.vmap(lambda stream: keys.of_round(stream, round))(context.streams.selection)
    of_candidates = jax.vmap(lambda key: jax.random.fold_in(key, keys.CANDIDATES))(of_select)

    def serve(info: Information, bill: Bill, who: str, ids: jax.Array | None = None) -> tuple[Information, Bill]:
        queried = None if ids is None else faults.clip_ids(ids, num_clients)
        return information.measure(context, info, bill, who, queried)

    bill = bills.empty_bill(num_replicates, num_clients, len(plan.strategy.requests))
    selection_state, (answer, candidates) = protocol.select(
        protocol.over_replicates(plan.strategy),
        serve,
        Known(context.carry.strategy, context.carry.info, bill),
        protocol.Keys(of_candidates, of_select),
        round,
        available,
    )
    selection = answer._replace(ids=faults.clip_ids(answer.ids, num_clients))
    if available is not None:  # an unavailable client does not train, even if the strategy selected it
        reachable = jnp.take_along_axis(available, selection.ids, axis=1)
        selection = selection._replace(mask=selection.mask & reachable)
    arrives = lost_reports.arrives(plan.report_failure_rate, context.streams, round, selection.ids, selection.mask)
    named = UncheckedIds(answer.ids, selection.mask, candidates)
    return Cohort(named, selection, selection._replace(mask=arrives)), selection_state


def measure_cohort(context: RoundContext, cohort: Cohort, selection_state: Known) -> Known:
    """Measure the facts requested of the cohort; a lost report loses these answers too.

    Args:
        context: the round's inputs.
        cohort: the queried clients, and the mask of arriving reports.
        selection_state: strategy state, fact tables and bill after the selection.

    Returns:
        The selection state with the new facts and their cost.
    """
    serve = partial(information.measure, context)
    return protocol.ask_cohort(serve, selection_state, cohort.selection, cohort.reports.mask)
