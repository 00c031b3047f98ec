"""One federated round, from top to bottom: select a cohort, train it, aggregate, learn, record.

A round is a pure function (carry, round number) -> (carry, records) over all replicates at once. It runs on the devices
alone, unless images or client states live in host memory. Shapes: S replicates, N clients, K selected.
"""

import jax
import jax.numpy as jnp
from jax import lax

from fedjax_sel.data.federation import Federation
from fedjax_sel.simulation import client_table
from fedjax_sel.simulation.aggregation import aggregate, cohort_weights
from fedjax_sel.simulation.cohort_training import train_cohorts
from fedjax_sel.simulation.keys import Streams
from fedjax_sel.simulation.learning import learn, outcome_reads, record_training_losses
from fedjax_sel.simulation.plan import Carry, Plan, Records
from fedjax_sel.simulation.reachability import reachable
from fedjax_sel.simulation.recording import record
from fedjax_sel.simulation.round_context import RoundContext
from fedjax_sel.simulation.selecting import measure_cohort, select


def one_round(
    plan: Plan, carry: Carry, round: jax.Array, federation: Federation, streams: Streams
) -> tuple[Carry, Records]:
    """Run one round of all replicates.

    Two values pass through the steps below. `cohort` holds the selected clients and marks those whose report arrives.
    `selection_state` holds the strategy's state, its fact tables and the round's bill.

    Args:
        plan: the run's static configuration.
        carry: the run's state at w^t.
        round: t, int32 scalar, from 0. It is never batched, so a condition on it alone stays a real branch.
        federation: the clients' and the server's data.
        streams: random streams.

    Returns:
        The run's state at w^(t+1) and the round's records.
    """
    available = reachable(plan, federation, streams, round)
    context = RoundContext(plan, federation, carry, streams, round, available)

    cohort, selection_state = select(context)
    selection_state = measure_cohort(context, cohort, selection_state)
    reads = outcome_reads(context, cohort, selection_state)
    weights = cohort_weights(context, cohort, selection_state)
    trained, sums = train_cohorts(context, cohort, weights, reads)
    selection_state = record_training_losses(context, cohort, selection_state, trained)
    server = aggregate(context, cohort, trained, sums, weights)
    selection_state = learn(context, cohort, selection_state, trained, server, weights, reads)
    records = record(context, cohort, selection_state.bill, trained, server, weights, reads)

    carry = carry._replace(
        params=server.params, server=server.optimizer, strategy=selection_state.state, info=selection_state.info,
        shared=server.shared, evaluation=server.evaluation,
    )  # fmt: skip
    # A client whose update is not finite keeps its previous row.
    kept = cohort.selection.mask & trained.finite
    results = (carry._replace(clients=None), records)
    return carry._replace(
        clients=client_table.write(carry.clients, cohort.selection.ids, kept, trained.kept, after=results)
    ), records


def many_rounds(
    plan: Plan,
    length: int,
    some_are_idle: bool,
    carry: Carry,
    first: jax.Array,
    federation: Federation,
    streams: Streams,
) -> tuple[Carry, Records]:
    """Scan a chunk of `length` rounds; one compiled program serves every value of `first`.

    Args:
        plan: the run's static configuration.
        length: number of rounds; static.
        some_are_idle: whether the last chunk extends past the run's end, where rounds change nothing; static.
        carry: the run's state before round `first`.
        first: number of the first round, int32 scalar.
        federation: the clients' and the server's data.
        streams: random streams.

    Returns:
        The carry after the chunk, and the records with leading axes [length, S].
    """

    def body(carry: Carry, round: jax.Array):
        if not some_are_idle:
            return one_round(plan, carry, round, federation, streams)
        shapes = jax.eval_shape(lambda c: one_round(plan, c, round, federation, streams)[1], carry)
        idle = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
        return lax.cond(
            round < plan.num_rounds,
            lambda c: one_round(plan, c, round, federation, streams),
            lambda c: (c, idle),
            carry,
        )

    return lax.scan(body, carry, first + jnp.arange(length, dtype=jnp.int32))
