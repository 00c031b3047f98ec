"""What a round would do to every client's loss under many random cohorts: the law that FedCor's process models.

Each client is trained once from the round's model. The model of a cohort is then the weighted mean of its clients'
work, so that a thousand cohorts cost one training of everybody and a thousand evaluations. Everyone can be reached and
every report arrives. Shapes: S replicates, N clients, K selected, M cohorts, B of them at once.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fedjax_sel import devices
from fedjax_sel.data import federation as fed
from fedjax_sel.data.federation import Federation
from fedjax_sel.models.weights import Weights
from fedjax_sel.numerics import sampling
from fedjax_sel.simulation import keys
from fedjax_sel.simulation.keys import Streams
from fedjax_sel.simulation.plan import Carry, Plan
from fedjax_sel.simulation.round_context import RoundContext, ToTrain, to_train
from fedjax_sel.simulation.run import SPECS, Program
from fedjax_sel.training import client, server

COHORTS_AT_ONCE = 50


class Piece(NamedTuple):
    """Some of the cohorts."""

    cohorts: np.ndarray  # int32 [S, B, K]
    changes: np.ndarray  # of the clients' losses, nats, float32 [S, B, N]


class _Everybody(NamedTuple):
    """What every client would report, [S, N, ...], and its loss as the round opens."""

    averaged: Any  # what the optimizer averages, and what models carry; zeros where it is not finite
    finite: jax.Array
    loss: jax.Array


class Meter:
    """Measures loss changes in rounds of one program; what it compiles serves all of them."""

    def __init__(self, program: Program, at_once: int = COHORTS_AT_ONCE):
        """Make the meter of a program.

        Args:
            program: of all seeds together.
            at_once: cohorts whose models are evaluated together; bounds the memory.
        """
        self._program, self._at_once = program, at_once
        plan = program.plan
        per_seed, whole = devices.PER_SEED, devices.WHOLE
        everybody = partial(_train_everybody, plan)
        self._train = jax.jit(devices.over_seeds(plan.mesh, everybody, (per_seed, whole, SPECS, per_seed), per_seed))
        pieces = partial(_losses, plan, at_once)
        specs = (per_seed, per_seed, whole, whole, SPECS, per_seed)
        self._losses = jax.jit(devices.over_seeds(plan.mesh, pieces, specs, per_seed))

    def measure(self, carry: Carry, round: int, cohorts: int) -> Iterator[Piece]:
        """Measure what random cohorts would do to every client's loss, some of them at a time.

        Cohort number m is the one that a strategy's probe number m would draw in this round.

        Args:
            carry: the state that opens the round, with a leading axis [S].
            round: t, from 0.
            cohorts: how many, M.

        Yields:
            As many as fit together, the last ones fewer.
        """
        program = self._program
        carry = devices.place(program.plan.mesh, carry, devices.PER_SEED)
        now = np.int32(round)
        everybody = self._train(carry, now, program.federation, program.streams)
        for first in range(0, cohorts, self._at_once):
            found = self._losses(everybody, carry, now, np.int32(first), program.federation, program.streams)
            drawn, changes = jax.tree.map(np.asarray, devices.fetch(found))
            kept = min(self._at_once, cohorts - first)
            yield Piece(drawn[:, :kept], changes[:, :kept])


def _train_everybody(
    plan: Plan, carry: Carry, round: jax.Array, federation: Federation, streams: Streams
) -> _Everybody:
    context = RoundContext(plan, federation, carry, streams, round, None)
    num_replicates, num_clients = federation.starts.shape
    replicates, clients = devices.pairs(num_replicates, jnp.arange(num_clients))
    job_keys = jax.vmap(lambda s, k: keys.of_client(streams.training[s], round, k))(replicates, clients)

    def train(shared: ToTrain, job: Any) -> _Everybody:
        replicate, who, key = job
        kept = shared.kept(replicate, who)
        memory, received = shared.memory(replicate, kept), shared.received(replicate)
        result = client.train_and_report(
            plan.trainer, shared.federation, received, replicate, who, key, shared.round, None, kept.optimizer, memory
        )
        averaged = plan.trainer.optimizer.report(result.finished, memory).averaged, result.update.carried
        finite = server.is_finite(averaged)
        part = fed.loss_part(shared.federation, replicate, who, plan.loss_on)
        before = client.loss(plan.trainer, shared.federation, received, part)
        return _Everybody(server.finite_part(averaged, finite), finite, before)

    jobs = (replicates, clients, job_keys)
    results = devices.spread(plan.mesh, train, to_train(context), jobs, plan.facts_at_once)
    return devices.unflatten(results, num_replicates)


def _losses(
    plan: Plan,
    at_once: int,
    everybody: _Everybody,
    carry: Carry,
    round: jax.Array,
    first: jax.Array,
    federation: Federation,
    streams: Streams,
) -> tuple[jax.Array, jax.Array]:
    """Return cohorts number `first` and on, int32 [S, B, K], and the loss changes under them, float32 [S, B, N]."""
    num_replicates, num_clients = federation.starts.shape

    def models_of(stream, sizes, everybody, state, params):
        def of_cohort(number):
            key = jax.random.fold_in(keys.of_probe(stream, round, number), keys.INITIALISATION)
            cohort = sampling.uniform_without_replacement(key, num_clients, plan.num_selected, None)
            everyone = jnp.ones(cohort.shape, bool)
            inclusion = jnp.full(cohort.shape, plan.num_selected / num_clients)
            own = server.cohort_weights(plan.aggregation, sizes[cohort], everyone, sizes.sum(), inclusion)
            weights = jnp.where(everybody.finite[cohort], own, 0.0)
            sums = jax.tree.map(
                lambda leaf: jnp.tensordot(weights, leaf[cohort], 1, precision=lax.Precision.HIGHEST),
                everybody.averaged,
            )
            averaged, carried = server.mean_of_reports(sums, own, everybody.finite[cohort])
            mean_update = Weights(plan.trainer.optimizer.combine(averaged), carried)
            arrived = everybody.finite[cohort].any()
            return cohort, server.new_model(plan.server, state, params, mean_update, arrived)[0]

        return lax.map(of_cohort, first + jnp.arange(at_once))

    cohorts, models = jax.vmap(models_of)(streams.facts, federation.train_sizes, everybody, carry.server, carry.params)

    def evaluate(shared, job):
        """Return a client's losses under all models, [B]: its examples are fetched once."""
        federation, models = shared
        replicate, who = job
        of_replicate = devices.of_replicate(models, replicate)
        part = fed.loss_part(federation, replicate, who, plan.loss_on)
        trainer = plan.trainer

        def totals(inputs, targets, counts):
            def total(weights):
                losses = client.example_losses(trainer.model, trainer.task, weights, inputs, targets)
                return jnp.sum(jnp.where(counts, losses, 0.0))

            return lax.map(total, of_replicate)

        return client.mean_over(trainer, federation, part, totals)

    jobs = devices.pairs(num_replicates, jnp.arange(num_clients))
    after = devices.spread(plan.mesh, evaluate, (federation, models), jobs, plan.facts_at_once)
    after = devices.unflatten(after, num_replicates)  # [S, N, B]
    return cohorts, jnp.swapaxes(after, 1, 2) - everybody.loss[:, None]
