"""Probe rounds: a random cohort trains from the round's model, and the resulting model is discarded."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from fedjax_sel import devices
from fedjax_sel.models.weights import Weights
from fedjax_sel.numerics import sampling
from fedjax_sel.simulation import keys, lost_reports
from fedjax_sel.simulation.round_context import RoundContext, ToTrain, to_train
from fedjax_sel.training import client, server


class Probe(NamedTuple):
    """Result of a probe round."""

    params: Weights  # models after the server's step, [S, ...]
    took_part: jax.Array  # clients of the cohorts that trained, bool [S, K]
    reported: jax.Array  # clients whose report reached the server, bool [S, K]
    num_examples: jax.Array  # examples that the cohort trained on, int32 [S]


def probe(context: RoundContext, number: int) -> Probe:
    """Train a uniformly random cohort and take the server's step on its reports (FedCor, Alg. 2, lines 4-8).

    The result equals the model of a round with this cohort: the same federated optimizer, lost reports, and server
    optimizer. The optimizers' memories stay unchanged.

    Args:
        context: the round's inputs.
        number: index of the probe in this round.
    """
    plan, federation, available = context.plan, context.federation, context.available
    trainer = plan.trainer
    num_replicates, num_clients = federation.starts.shape
    own = jax.vmap(lambda stream: keys.of_probe(stream, context.round, number))(context.streams.facts)

    def draw(key: jax.Array, available: jax.Array | None) -> jax.Array:
        key = jax.random.fold_in(key, keys.INITIALISATION)
        return sampling.uniform_without_replacement(key, num_clients, plan.num_selected, available)

    if available is None:
        cohorts = jax.vmap(lambda key: draw(key, None))(own)
        took_part = jnp.ones(cohorts.shape, bool)
    else:
        cohorts = jax.vmap(draw)(own, available)
        took_part = jnp.take_along_axis(available, cohorts, axis=1)
    replicates, clients = devices.pairs(num_replicates, cohorts)
    job_keys = jax.vmap(lambda s, k: jax.random.fold_in(own[s], k))(replicates, clients)

    def train(shared: ToTrain, job):
        replicate, who, key = job
        kept = shared.kept(replicate, who)
        memory, received = shared.memory(replicate, kept), shared.received(replicate)
        result = client.train_and_report(
            trainer, shared.federation, received, replicate, who, key, shared.round, None, kept.optimizer, memory
        )
        averaged = trainer.optimizer.report(result.finished, memory).averaged, result.update.carried
        finite = server.is_finite(averaged)
        return (finite, result.num_examples), server.finite_part(averaged, finite)

    reported = lost_reports.arrives(plan.report_failure_rate, context.streams, context.round, cohorts, took_part)
    weights = _weights(context, cohorts, reported)
    jobs = (replicates, clients, job_keys)
    reports, sums = devices.spread_and_add(plan.mesh, train, to_train(context), jobs, plan.facts_at_once, weights)
    finite, num_examples = devices.unflatten(reports, num_replicates)
    mean, carried = jax.vmap(server.mean_of_reports)(sums, weights, finite)
    mean_update = Weights(jax.vmap(trainer.optimizer.combine)(mean), carried)
    step = jax.vmap(partial(server.new_model, plan.server))
    return Probe(
        params=step(context.carry.server, context.carry.params, mean_update, (reported & finite).any(axis=1))[0],
        took_part=took_part,
        reported=reported,
        num_examples=jnp.where(took_part, num_examples, 0).sum(axis=1, dtype=jnp.int32),
    )


def _weights(context: RoundContext, cohorts: jax.Array, reported: jax.Array) -> jax.Array:
    """Return aggregation weights by the configured rule, float32 [S, K]."""
    all_sizes = context.federation.train_sizes
    sizes = jnp.take_along_axis(all_sizes, cohorts, axis=1)
    num_reached = (
        jnp.full(all_sizes.shape[:1], all_sizes.shape[1]) if context.available is None else context.available.sum(1)
    )
    inclusion = jnp.minimum(1.0, context.plan.num_selected / jnp.maximum(num_reached, 1)) * lost_reports.chance(context)

    def weights_of(sizes: jax.Array, mask: jax.Array, total: jax.Array, inclusion: jax.Array) -> jax.Array:
        return server.cohort_weights(context.plan.aggregation, sizes, mask, total, jnp.full(sizes.shape, inclusion))

    return jax.vmap(weights_of)(sizes, reported, all_sizes.sum(axis=1), inclusion)
