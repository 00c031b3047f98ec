"""A probe round: a random cohort trains from the round's model, and the average of its models is thrown away."""

from functools import partial

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from fedjax_sel.data.federation import Federation
from fedjax_sel.models import Params
from fedjax_sel.numerics import sampling
from fedjax_sel.simulation import devices, keys
from fedjax_sel.training import client, server
from fedjax_sel.training.client import Trainer


def probe_model(
    mesh: Mesh,
    trainer: Trainer,
    federation: Federation,
    params: Params,
    streams: jax.Array,
    round: jax.Array,
    probe: int,
    num_selected: int,
    available: jax.Array | None,
    aggregation: str,
    at_once: int,
) -> tuple[Params, jax.Array, jax.Array]:
    """Trains a uniformly random cohort and averages it (FedCor, Alg. 2, lines 4-8).

    Args:
        mesh: the devices.
        trainer: static.
        federation: the data.
        params: the round's models, [S, ...].
        streams: keys of the facts, [S].
        round: from 0.
        probe: which of the round's probes.
        num_selected: K.
        available: bool [S, N], or None for everyone.
        aggregation: the rule that weighs the cohort.
        at_once: clients that a device trains together.

    Returns:
        The averaged models [S, ...], the cohorts int32 [S, K], and who of them took part, bool [S, K].
    """
    num_replicates, num_clients = federation.starts.shape
    own = jax.vmap(lambda stream: keys.of_probe(stream, round, probe))(streams)

    def draw(key: jax.Array, there: jax.Array | None) -> jax.Array:
        key = jax.random.fold_in(key, keys.INITIALISATION)
        return sampling.uniform_without_replacement(key, num_clients, num_selected, there)

    if available is None:
        cohorts = jax.vmap(lambda key: draw(key, None))(own)
        took_part = jnp.ones(cohorts.shape, bool)
    else:
        cohorts = jax.vmap(draw)(own, available)
        took_part = jnp.take_along_axis(available, cohorts, axis=1)
    replicates, clients = devices.pairs(num_replicates, cohorts)
    job_keys = jax.vmap(lambda s, k: jax.random.fold_in(own[s], k))(replicates, clients)

    def train(shared, job):
        federation, params, round = shared
        replicate, who, key = job
        received = devices.of_replicate(params, replicate)
        update = client.train(trainer, federation, received, replicate, who, key, round)
        finite = server.is_finite(update)
        return finite, server.finite_part(update, finite)

    jobs = (replicates, clients, job_keys)
    sizes = jnp.take_along_axis(federation.train_sizes, cohorts, axis=1)
    weights = jax.vmap(lambda n, m: server.cohort_weights(aggregation, n, m))(sizes, took_part)
    finite, sums = devices.spread_and_add(mesh, train, (federation, params, round), jobs, at_once, weights)
    mean = partial(server.mean_of_reports, skip=True)
    step = jax.vmap(mean)(sums, weights, devices.unflatten(finite, num_replicates))
    return jax.tree.map(jnp.add, params, step), cohorts, took_part
