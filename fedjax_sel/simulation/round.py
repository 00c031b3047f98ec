"""One round, from top to bottom: select a cohort, train it, aggregate, learn, record.

A round is a pure function (carry, round number) -> (carry, records) over all replicates at once. Nothing in it touches
the host. Shapes: S replicates, N clients, K selected.
"""

import jax
import jax.numpy as jnp
from jax import lax

from fedjax_sel.data.federation import Federation
from fedjax_sel.simulation import client_table
from fedjax_sel.simulation.aggregation import aggregate, cohort_weights
from fedjax_sel.simulation.cohort_training import train_cohorts
from fedjax_sel.simulation.keys import Streams
from fedjax_sel.simulation.learning import hear_training_losses, learn, what_update_reads
from fedjax_sel.simulation.plan import Carry, Plan, Records
from fedjax_sel.simulation.reachability import reachable
from fedjax_sel.simulation.recording import record
from fedjax_sel.simulation.round_context import RoundContext
from fedjax_sel.simulation.selecting import measure_cohort, select


def one_round(
    plan: Plan, carry: Carry, round: jax.Array, federation: Federation, streams: Streams
) -> tuple[Carry, Records]:
    """Play one round of all replicates.

    Args:
        plan: static.
        carry: the state at w^t.
        round: t, int32 scalar, from 0; never batched, so that what depends on it alone stays a real branch.
        federation: the data.
        streams: random streams.

    Returns:
        The state at w^(t+1) and the round's records.
    """
    available = reachable(plan, federation, streams, round)
    context = RoundContext(plan, federation, carry, streams, round, available)

    cohort, known = select(context)
    known = measure_cohort(context, cohort, known)
    reads = what_update_reads(context, cohort, known)
    weights = cohort_weights(context, cohort, known)
    trained, sums = train_cohorts(context, cohort, weights, reads)
    known = hear_training_losses(context, cohort, known, trained)
    server = aggregate(context, cohort, trained, sums, weights)
    known = learn(context, cohort, known, trained, server, weights, reads)
    records = record(context, cohort, known.bill, trained, server, weights, reads)

    carry = carry._replace(
        params=server.params, server=server.optimizer, strategy=known.state, info=known.info, shared=server.shared,
        evaluation=server.evaluation,
    )  # fmt: skip
    # A broken update leaves its client's row as it was.
    kept = cohort.selection.mask & trained.finite
    everything = (carry._replace(clients=None), records)
    return carry._replace(
        clients=client_table.write(carry.clients, cohort.selection.ids, kept, trained.kept, after=everything)
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
    """Play a chunk: `length` rounds, one program whatever `first` is, and nothing in rounds past the end.

    Args:
        plan: static.
        length: rounds; static.
        some_are_idle: whether the last chunk goes past the end; static.
        carry: the state at `first`.
        first: rounds before them, int32 scalar.
        federation: the data.
        streams: random streams.

    Returns:
        The carry and the records with leading axes [length, S].
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
